"""Law 3: the KORS score is the appendix's; and what each rule promises."""

import dense
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits.dictionaries import Candidate, Fixed, Kors, PosteriorVariance
from kernel_bandits.posterior import NystromPosterior


class CoinsThatSucceed:
    """A stand-in for the generator of coins: every coin is 0, so every point comes up."""

    def random(self, count):
        return np.zeros(count)


class FirstComesUp:
    """A stand-in for the generator of coins: the first is 0, the others are fair."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def random(self, count):
        return np.append(0.0, self.generator.random(count - 1))


def candidate_at(posterior, point):
    evaluation = posterior.evaluate(point[None, :])
    return Candidate(
        point,
        posterior.dictionary_points,
        evaluation.features[0],
        float(evaluation.residual[0]),
        float(evaluation.prior_variance[0]),
        float(evaluation.residual[0]) / posterior.regularization + float(evaluation.explained[0]),
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(0, 12),
    mu=st.sampled_from([1e-2, 0.3, 1.0, 10.0, 100.0]),
    accuracy=st.sampled_from([0.0, 0.5, 1.0]),
    oversampling=st.sampled_from([0.01, 0.1, 0.5, 2.0]),
    kernel=st.sampled_from([kb.Gaussian(0.3), kb.Exponential(0.5), 3.0 * kb.Matern(0.4)]),
)
def test_score_is_the_appendix_formula_with_the_augmented_dictionary(seed, size, mu, accuracy, oversampling, kernel):
    """Past probabilities are those the rule itself used, below one where oversampling is small."""
    generator = np.random.default_rng(seed)
    points = generator.random((size + 1, 2))
    rule = Kors(leverage_regularization=mu, leverage_accuracy=accuracy, oversampling=oversampling)
    posterior = NystromPosterior(kernel, 0.1, rule, CoinsThatSucceed())
    probabilities = []
    for point in points[:size]:
        probabilities.append(posterior.dictionary.propose(candidate_at(posterior, point)).probability)
        posterior = posterior.updated(point, 0.0)
    assert posterior.dictionary_size == size
    expected = dense.kors_score(kernel, points[:size], probabilities, points[size], mu, accuracy)
    # directions down to 1e-6 of k(s, s) are kept, which amplifies rounding as much
    assert posterior.dictionary.score(candidate_at(posterior, points[size])) == pytest.approx(expected, abs=1e-8)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), mu=st.sampled_from([0.3, 10.0, 100.0]))
def test_points_that_add_no_direction_keep_their_weight_in_the_score(seed, mu):
    """Repeats come up again: they are no anchors, but the appendix's dictionary holds each with its weight."""
    generator = np.random.default_rng(seed)
    places = generator.random((3, 2))
    kernel = kb.Gaussian(0.3)
    rule = Kors(leverage_regularization=mu, oversampling=0.4)
    posterior = NystromPosterior(kernel, 0.1, rule, CoinsThatSucceed())
    drawn, probabilities = [], []
    for place in generator.integers(3, size=15):
        probabilities.append(posterior.dictionary.propose(candidate_at(posterior, places[place])).probability)
        drawn.append(places[place])
        posterior = posterior.updated(places[place], 0.0)
    assert posterior.dictionary_size <= 3
    for query in np.vstack([places, generator.random((3, 2))]):
        expected = dense.kors_score(kernel, np.array(drawn), probabilities, query, mu, 0.5)
        assert posterior.dictionary.score(candidate_at(posterior, query)) == pytest.approx(expected, abs=1e-10)


def test_frequencies_are_the_probabilities():
    """2,000 independent second points of the same probability: a count within 5 standard deviations."""
    kernel, first, second = kb.Gaussian(0.3), np.array([0.2, 0.2]), np.array([0.3, 0.2])
    count, probability = 0, None
    for seed in range(2000):
        posterior = NystromPosterior(kernel, 1.0, Kors(oversampling=1.0), FirstComesUp(seed)).updated(first, 0.0)
        probability = posterior.dictionary.propose(candidate_at(posterior, second)).probability
        count += posterior.updated(second, 0.0).dictionary_size == 2
    assert 0.1 < probability < 0.9
    assert abs(count - 2000 * probability) < 5 * np.sqrt(2000 * probability * (1 - probability))


def test_posterior_variance_rule_is_the_exact_leverage_score_when_everything_is_kept():
    """At μ = λ with Z = S the exact ridge leverage of the next point is σ²/(1 + σ²)."""
    generator = np.random.default_rng(0)
    points, kernel, regularization = generator.random((20, 2)), kb.Exponential(0.5), 0.3
    rule = PosteriorVariance(leverage_accuracy=0.0, oversampling=1.0)
    posterior = NystromPosterior(kernel, regularization, rule, CoinsThatSucceed())
    for point in points[:19]:
        posterior = posterior.updated(point, 0.0)
    gram = kernel(points)
    exact = np.linalg.solve(gram + regularization * np.eye(20), gram)[19, 19]
    assert posterior.dictionary.score(candidate_at(posterior, points[19])) == pytest.approx(exact, abs=1e-10)


def test_kors_scores_no_more_once_the_dictionary_is_full():
    posterior = kb.ek_ucb(kb.Gaussian(0.2), dictionary=Kors(max_size=3), seed=0).posterior
    for point in np.random.default_rng(0).random((30, 2)):
        posterior = posterior.updated(point, 0.0)
    assert posterior.dictionary_size == 3
    with pytest.raises(kb.UnavailableError, match="score: the dictionary has the 3 anchors it may have"):
        posterior.dictionary.score(candidate_at(posterior, np.full(2, 0.5)))


def test_cap_stops_growth_but_not_learning():
    generator = np.random.default_rng(0)
    points = generator.random((500, 2))
    rewards = np.sin(6 * points[:, 0])
    free = kb.ek_ucb(kb.Gaussian(0.2), seed=0).posterior
    capped = kb.ek_ucb(kb.Gaussian(0.2), dictionary=Kors(max_size=10), seed=0).posterior
    for point, reward in zip(points, rewards, strict=True):
        free, capped = (posterior.updated(point, reward) for posterior in (free, capped))
        assert capped.dictionary_size <= 10
    assert free.dictionary_size > 10
    np.testing.assert_array_equal(capped.dictionary_points, free.dictionary_points[:10])
    expected = dense.nystrom(kb.Gaussian(0.2), capped.dictionary_points, points, rewards, 0.1, points[:20])
    np.testing.assert_allclose(capped.predict(points[:20]).mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(capped.predict(points[:20]).std, expected.std, atol=1e-8)


def test_fixed_dictionary_never_changes_and_passes_over_repeats():
    generator = np.random.default_rng(0)
    anchors = generator.random((5, 2))
    posterior = NystromPosterior(kb.Gaussian(0.3), 0.1, Fixed(np.vstack([anchors, anchors[::-1]])))
    kept = posterior.dictionary_points
    assert sorted(map(tuple, kept)) == sorted(map(tuple, anchors))
    points, rewards = generator.random((50, 2)), generator.random(50)
    for point, reward in zip(points, rewards, strict=True):
        posterior = posterior.updated(point, reward)
    np.testing.assert_array_equal(posterior.dictionary_points, kept)
    expected = dense.nystrom(kb.Gaussian(0.3), anchors, points, rewards, 0.1, points[:9])
    np.testing.assert_allclose(posterior.predict(points[:9]).mean, expected.mean, atol=1e-10)


def test_larger_leverage_regularization_keeps_fewer_points():
    """The paper's trade-off, and the sign the authors' code has inverted (correct sizes 198, 65, 10 on its stream)."""
    points = np.random.default_rng(0).random((1000, 2))
    sizes = []
    for mu in (1.0, 10.0, 100.0):
        rule = Kors(leverage_regularization=mu, oversampling=1.0, leverage_accuracy=0.5)
        posterior = NystromPosterior(kb.Gaussian(0.1), 1.0, rule, np.random.default_rng(1))
        for point in points:
            posterior = posterior.updated(point, 0.0)
        sizes.append(posterior.dictionary_size)
    assert sizes[0] > 2 * sizes[1] > 4 * sizes[2]
    assert sizes[0] < 400


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: kb.ek_ucb(kb.Gaussian(), dictionary="nystrom"), r"write one of kb.Kors\(\)"),
        (lambda: kb.ek_ucb(kb.Gaussian(), dictionary="kors"), r"write dictionary=kb.Kors\(\)"),
        (lambda: kb.ek_ucb(kb.Gaussian(), dictionary=kb.Kors), r"kb.Kors\(…\), with parentheses"),
        (lambda: kb.ek_ucb(kb.Gaussian(), dictionary=[[0.5]]), r"write dictionary=kb.Fixed\(points\)"),
        (lambda: kb.Fixed(np.empty((0, 2))), "at least one row"),
        (lambda: kb.Fixed([[np.nan]]), "finite"),
        (lambda: kb.ek_ucb(kb.Gaussian(), dictionary=kb.Fixed([[0.5, 0.5]])).select([0.5], [[0.5, 0.5]]), "2 columns"),
        (lambda: kb.Kors(oversampling=0.0), "oversampling"),
        (lambda: kb.Kors(leverage_accuracy=-0.1), "leverage_accuracy"),
        (lambda: kb.Kors(leverage_regularization=-1.0), "leverage_regularization"),
        (lambda: kb.PosteriorVariance(max_size=0), "max_size"),
        (lambda: kb.ek_ucb(kb.Gaussian(), dictionary=kb.Kors(history="some")), "expected 'all' or 'none'"),
    ],
)
def test_bad_options_are_named(build, words):
    with pytest.raises(kb.InputError, match=words):
        build()


def test_white_noise_in_a_scikit_learn_kernel_is_no_direction():
    """Points that repeat: the anchors span the smooth part, and the std keeps the noise that the kernel has."""
    kernel = sk.RBF(0.5) + sk.WhiteKernel(0.1)
    generator = np.random.default_rng(0)
    places = generator.random((15, 2))
    policy = kb.ek_ucb(kernel, seed=0)
    for place in places[generator.integers(15, size=400)]:
        policy.update(place[:1], place[1:], np.sin(5 * place[0]))
    assert policy.dictionary_size <= 15
    anchors = policy.dictionary_points
    points, rewards = policy.observed_points, policy.posterior.observed_rewards
    expected = dense.nystrom(kb.Gaussian(0.5), anchors, points, rewards, 0.1, places)
    prediction = policy.posterior.predict(places)
    np.testing.assert_allclose(prediction.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(prediction.std**2, expected.std**2 + 0.1, atol=1e-6)


def test_a_kernel_of_the_wrong_shape_or_kind_is_named():
    class Transposed:
        def __call__(self, X, Y=None):
            return kb.Gaussian(0.5)(Y, X)

        def diag(self, X):
            return np.ones(len(X))

    policy = kb.ek_ucb(Transposed(), seed=0)
    policy.update([0.1], [0.5], 1.0)
    with pytest.raises(kb.InputError, match=r"must be float64 of shape \(len\(X\), len\(Y\)\)"):
        policy.select([0.5], [[0.5], [0.6], [0.7]])
    # what scikit-learn makes of RBF(0.5) + Gaussian(0.5), unless our kernels are registered: it takes ours for a number
    mistaken = sk.Sum(sk.RBF(0.5), sk.ConstantKernel(kb.Gaussian(0.5)))
    with pytest.raises(kb.InputError, match="ours comes first"):
        kb.ek_ucb(mistaken, seed=0).update([0.1], [0.5], 1.0)
