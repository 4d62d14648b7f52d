"""A posterior that learns a whole history at once: which anchors it has, and that it goes on as any other."""

import dense
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from observing import learn

import kernel_bandits as kb
from kernel_bandits.dictionaries import Fixed, Kors, PosteriorVariance
from kernel_bandits.posterior import ExactPosterior, NystromPosterior, nystrom
from kernel_bandits.posterior.basis import AnchorBasis
from kernel_bandits.posterior.nystrom import ANCHORS_PER_DIMENSION, MOST_OBSERVATIONS, UNEXPLAINED_SHARE

KERNEL = 2.0 * kb.Matern([0.3, 0.5])
RULES = {
    "kors": Kors,
    "kors at another μ": lambda **options: Kors(leverage_regularization=0.4, **options),
    "posterior variance": PosteriorVariance,
}


def posterior_of(rule, kernel=KERNEL):
    return NystromPosterior(kernel, 0.05, rule, np.random.default_rng(0))


def stream(seed, count):
    generator = np.random.default_rng(seed)
    points = generator.random((count, 2))
    return points, np.sin(5 * points.sum(axis=1)) + 0.1 * generator.normal(size=count)


def assert_is_dense(posterior, points, rewards):
    queries = stream(7, 30)[0]
    expected = dense.nystrom(KERNEL, posterior.dictionary_points, points, rewards, posterior.regularization, queries)
    prediction = posterior.predict(queries)
    np.testing.assert_allclose(prediction.mean, expected.mean, atol=1e-8, rtol=0)
    np.testing.assert_allclose(prediction.std, expected.std, atol=1e-8, rtol=0)
    assert posterior.log_determinant == pytest.approx(expected.log_determinant, abs=1e-7)
    assert posterior.residual_trace == pytest.approx(expected.residual_trace, abs=1e-7)
    assert posterior.round_index == len(points)


@pytest.mark.parametrize("history", ["all", "none"])
@pytest.mark.parametrize("count", [1, 6, 700])
@pytest.mark.parametrize("rule", RULES)
def test_it_is_the_projected_posterior_of_the_whole_history(rule, count, history):
    """Without a history too: what comes at once is known at once."""
    points, rewards = stream(0, count)
    posterior = posterior_of(RULES[rule](history=history)).of_history(points, rewards, points[:200])
    assert_is_dense(posterior, points, rewards)
    assert posterior.dimension == 2
    if history == "none":
        with pytest.raises(kb.UnavailableError):
            _ = posterior.observed_points
        return
    np.testing.assert_array_equal(posterior.observed_points, points)
    np.testing.assert_array_equal(posterior.observed_rewards, rewards)
    # and goes on, with directions that come later
    later, earned = stream(1, 60)
    size = posterior.dictionary_size
    posterior = learn(posterior, later, earned)
    assert_is_dense(posterior, np.vstack([points, later]), np.append(rewards, earned))
    assert count > 6 or posterior.dictionary_size > size


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 80),
    candidates=st.integers(1, 80),
    scale=st.floats(0.03, 3.0),
    mu=st.sampled_from([1e-9, 1e-3, 0.1, 3.0, 100.0]),
)
def test_anchors_are_points_of_the_history_and_leave_little_of_it_unexplained(seed, count, candidates, scale, mu):
    """Also where a single candidate stands for it all."""
    points, rewards = stream(seed, count)
    posterior = NystromPosterior(
        3.0 * kb.Gaussian(scale), 0.1, Kors(leverage_regularization=mu), np.random.default_rng(seed)
    )
    posterior = posterior.of_history(points, rewards, points[:candidates])
    anchors = posterior.dictionary_points
    assert 1 <= len(anchors) <= count
    assert {anchor.tobytes() for anchor in anchors} <= {point.tobytes() for point in points}
    # the other limit is the share of k = 3 below which a direction would be noise
    limit = max(UNEXPLAINED_SHARE * mu * posterior.effective_dimension, 3e-6 * count)
    assert posterior.residual_trace <= limit + 1e-9


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    distinct=st.integers(1, 60),
    concentration=st.sampled_from([0.02, 0.1, 1.0]),
    scale=st.sampled_from([0.05, 0.2, 0.6]),
    mu=st.sampled_from([1e-3, 0.1, 1.0, 10.0]),
)
@example(seed=931, distinct=42, concentration=0.02, scale=0.6, mu=1.0)
@example(seed=848, distinct=57, concentration=0.02, scale=0.6, mu=0.1)
def test_a_few_points_that_are_played_again_and_again(seed, distinct, concentration, scale, mu):
    """What is left of the one played most counts as often as it was played; the choice of anchors comes to an end."""
    generator = np.random.default_rng(seed)
    places = generator.random((distinct, 2))
    weights = generator.dirichlet(np.full(distinct, concentration))
    points = np.concatenate([places, places[generator.choice(distinct, size=MOST_OBSERVATIONS - distinct, p=weights)]])
    posterior = NystromPosterior(kb.Matern(scale), 0.1, Kors(leverage_regularization=mu), generator)
    posterior = posterior.of_history(points, generator.random(len(points)), places)
    dimension = posterior.effective_dimension
    enough = max(UNEXPLAINED_SHARE * mu * dimension, 1e-6 * len(points)) + 1e-9
    assert posterior.residual_trace <= enough or posterior.dictionary_size >= ANCHORS_PER_DIMENSION * dimension


@pytest.mark.parametrize("noise", [0.05, 1.0, 20.0])
def test_widths_and_means_are_nearly_exact_with_fewer_anchors_than_are_drawn(noise):
    """However long the history and however noisy the rewards; the candidates are an eighth of it."""
    generator = np.random.default_rng(0)
    points = generator.random((2048, 2))
    rewards = np.sin(5 * points.sum(axis=1)) + noise**0.5 * generator.normal(size=2048)
    kernel = kb.Matern(0.4)
    fresh = NystromPosterior(kernel, noise, Kors(oversampling=1.0), np.random.default_rng(0))
    chosen, drawn = fresh.of_history(points, rewards, points[:256]), fresh.learned(points, rewards)
    exact = ExactPosterior(kernel, noise).learned(points, rewards)
    queries = generator.random((200, 2))
    ours, theirs = chosen.predict(queries), exact.predict(queries)
    assert chosen.dictionary_size < drawn.dictionary_size
    assert (ours.std / theirs.std).mean() < 1.03
    assert np.abs(ours.mean - theirs.mean).mean() < 0.1 * theirs.std.mean()


@pytest.mark.parametrize("mu", [0.05, 0.4])
def test_scores_are_leverage_scores_of_the_whole_history(mu):
    """Where the anchors span the history, k − u of the KORS score is the posterior variance at noise μ, exactly."""
    points, rewards = stream(0, 12)
    rule = Kors(leverage_regularization=mu, leverage_accuracy=0.5)
    # every point is an anchor because they lie far apart
    kernel = kb.Gaussian(0.05)
    posterior = NystromPosterior(kernel, 0.05, rule, np.random.default_rng(0)).of_history(points, rewards, points)
    assert posterior.dictionary_size == 12
    exact = ExactPosterior(kernel, mu).learned(points, rewards)
    for query in np.vstack([points[:3], points[:3] + 0.02, stream(1, 3)[0]]):
        evaluation = posterior.evaluate(query[None, :])
        unexplained = exact.predict(query[None, :]).std.item() ** 2
        seen = evaluation.features[0], evaluation.residual.item(), 1.0, 0.0
        candidate = kb.dictionaries.Candidate(query, posterior.dictionary_points, *seen)
        assert posterior.dictionary.score(candidate) == pytest.approx(1.5 * unexplained / (unexplained + mu), abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_a_cap_holds_and_the_most_telling_candidates_stay(rule):
    points, rewards = stream(0, 300)
    free, capped = (
        posterior_of(RULES[rule](**options)).of_history(points, rewards, points) for options in ({}, {"max_size": 9})
    )
    assert free.dictionary_size > 9
    assert capped.dictionary_size == 9
    assert_is_dense(capped, points, rewards)
    arbitrary = NystromPosterior(KERNEL, 0.05, Fixed(points[:9])).learned(points, rewards)
    assert capped.residual_trace < 0.8 * arbitrary.residual_trace
    assert capped.learned(*stream(1, 50)).dictionary_size == 9


def test_where_no_anchor_is_chosen_it_is_a_log_like_any_other():
    points, rewards = stream(0, 80)
    fresh = NystromPosterior(KERNEL, 0.05, Fixed(stream(3, 20)[0]))
    one, other = fresh.of_history(points, rewards, points[:5]), fresh.learned(points, rewards)
    queries = stream(2, 20)[0]
    np.testing.assert_allclose(one.predict(queries).mean, other.predict(queries).mean, atol=1e-10)
    np.testing.assert_allclose(one.predict(queries).std, other.predict(queries).std, atol=1e-10)
    np.testing.assert_array_equal(one.dictionary_points, other.dictionary_points)


def test_a_kernel_that_is_not_finite_is_named():
    class Broken(kb.Gaussian):
        def __call__(self, X, Y=None):
            return np.where(super().__call__(X, Y) < 0.5, np.nan, 1.0)

    points, rewards = stream(0, 30)
    posterior = posterior_of(RULES["kors"](), Broken(0.2))
    with pytest.raises(kb.InputError, match="not finite"):
        posterior.of_history(points, rewards, points)


def test_a_kernel_that_is_zero_has_no_anchors():
    fresh = posterior_of(RULES["kors"](), kb.Linear())
    posterior = fresh.of_history(np.zeros((3, 2)), np.ones(3), np.zeros((3, 2)))
    assert (posterior.round_index, posterior.dictionary_size) == (3, 0)
    posterior = posterior.updated([1.0, 2.0], 1.0)
    assert posterior.predict([[1.0, 2.0]]).mean.item() == pytest.approx(1.0, abs=0.05)


def test_it_comes_before_anything_else():
    points, rewards = stream(0, 5)
    posterior = posterior_of(RULES["kors"]()).learned(points, rewards)
    with pytest.raises(kb.UnavailableError, match="5 observations"):
        posterior.of_history(points, rewards, points)


def test_scores_far_below_the_noise():
    """The sum over the history, to which λ was added and of which μ is a billionth, is not found by subtraction."""
    points, rewards = stream(0, 30)
    rule = Kors(leverage_regularization=1e-13)
    posterior = NystromPosterior(KERNEL, 1e4, rule, np.random.default_rng(0)).of_history(points, rewards, points)
    assert posterior.dictionary.draws == posterior.dictionary_size == 30
    assert_is_dense(posterior, points, rewards)


def test_anchors_are_chosen_from_a_bounded_number_of_candidates(monkeypatch):
    """A first handful of them misses most of a rough function: more join them, up to the limit and no further."""
    monkeypatch.setattr(nystrom, "MOST_CANDIDATES", 40)
    sizes, choose = [], AnchorBasis.chosen

    def recording(kernel, regularization, candidates, *limits):
        sizes.append(len(candidates))
        return choose(kernel, regularization, candidates, *limits)

    monkeypatch.setattr(AnchorBasis, "chosen", recording)
    generator = np.random.default_rng(0)
    points = generator.random((300, 2))
    posterior = NystromPosterior(kb.Gaussian(0.1), 0.01, kb.Kors(), generator)
    posterior = posterior.of_history(points, np.sin(20.0 * points[:, 0]), points[:20])
    assert sizes[0] == 20 < max(sizes) <= 40
    assert posterior.dictionary_size <= 40
