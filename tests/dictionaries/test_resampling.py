"""Contextual BKB and BBKB: chances, frequencies, batches, and the posterior after each drawing."""

import pickle

import dense
import numpy as np
import pytest
from scipy import stats

import kernel_bandits as kb
from kernel_bandits.dictionaries import Resampling
from kernel_bandits.dictionaries.base import PlayedPoints
from kernel_bandits.posterior import NystromPosterior

KERNEL, RIDGE = kb.Gaussian(0.3), 0.1


def resampled(kernel=KERNEL, seed=0, **options):
    rule = Resampling(**{"batch_variance_limit": 1.0, **options})
    return NystromPosterior(kernel, RIDGE, rule, np.random.default_rng(seed))


def learn(posterior, points, rewards):
    for point, reward in zip(points, rewards, strict=True):
        posterior = posterior.updated(point, reward)
    return posterior


def stream(seed, count):
    generator = np.random.default_rng(seed)
    points = generator.random((count, 2))
    return points, np.sin(6 * points[:, 0]) + 0.1 * generator.normal(size=count)


# Rough enough that no anchor is redundant, so that the dictionary is exactly what was drawn.
ROUGH = kb.Exponential(0.5)


def dense_variances(anchors, points, queries, kernel=KERNEL):
    return dense.nystrom(kernel, anchors, points, np.zeros(len(points)), RIDGE, queries).std ** 2 / RIDGE


def test_probabilities_by_the_formula():
    rule = resampled(oversampling=3.0).dictionary
    variances = np.array([0.0, 1e-12, 0.1, 1 / 3, 5.0])
    np.testing.assert_allclose(rule.probabilities(variances), [0.0, 3e-12, 0.3, 1.0, 1.0], rtol=1e-12)


def test_frequencies_agree_with_the_probabilities():
    """4,000 drawings of 40 points. Every count within its two-sided 1e-6 binomial band: false alarm below 4e-5."""
    points, rewards = stream(0, 40)
    posterior = learn(resampled(oversampling=1.5), points, rewards)
    variances = dense_variances(posterior.dictionary_points, points, points)
    chances = np.minimum(1.0, 1.5 * variances)
    assert ((chances > 0.05) & (chances < 0.95)).sum() > 20
    draws, counts, dictionary = 4000, np.zeros(40), posterior.dictionary
    played = PlayedPoints(points, lambda: variances)
    for _ in range(draws):
        anchors, dictionary = dictionary.redrawn(played)
        counts += (points[:, None] == anchors).all(axis=2).any(axis=1)
    low, high = stats.binom.interval(1 - 1e-6, draws, chances)
    assert ((counts >= low) & (counts <= high)).all()


@pytest.mark.parametrize("limit", [1.0, 1.5, 3.0])
def test_posterior_equals_from_scratch_after_every_observation(limit):
    points, rewards = stream(0, 80)
    queries = stream(1, 10)[0]
    posterior = resampled(batch_variance_limit=limit)
    for t, (point, reward) in enumerate(zip(points, rewards, strict=True), start=1):
        posterior = posterior.updated(point, reward)
        expected = dense.nystrom(KERNEL, posterior.dictionary_points, points[:t], rewards[:t], RIDGE, queries)
        prediction = posterior.predict(queries)
        np.testing.assert_allclose(prediction.mean, expected.mean, atol=1e-8)
        np.testing.assert_allclose(prediction.std, expected.std, atol=1e-8)
        assert posterior.log_determinant == pytest.approx(expected.log_determinant, abs=1e-8)
        assert posterior.residual_trace == pytest.approx(expected.residual_trace, abs=1e-8)
    np.testing.assert_array_equal(posterior.observed_points, points)
    np.testing.assert_array_equal(posterior.observed_rewards, rewards)


def reference_run(points, coins, oversampling, limit):
    """BBKB written from the paper's description: the set of anchors after each observation."""
    anchors, batch_anchors, batch_points, batch, seen = np.empty((0, 2)), np.empty((0, 2)), np.empty((0, 2)), 0.0, []
    for t in range(1, len(points) + 1):
        # σ² of the newest point, frozen at the anchors and observations of the batch's start
        batch += dense_variances(batch_anchors, batch_points, points[t - 1 : t], ROUGH)[0] if t > 1 else 1 / RIDGE
        if 1 + batch > limit:
            past = points[:t]
            variances = dense_variances(anchors, past, past, ROUGH) if len(anchors) else np.full(t, 1 / RIDGE)
            anchors = past[coins.random(t) < np.minimum(1, oversampling * variances)]
            batch_anchors, batch_points, batch = anchors, past, 0.0
        seen.append({tuple(anchor) for anchor in anchors})
    return seen


@pytest.mark.parametrize("limit", [1.0, 1.3, 2.0, 6.0])
def test_draws_when_and_what_the_description_says(limit):
    points, rewards = stream(3, 70)
    posterior = resampled(ROUGH, seed=5, oversampling=0.8, batch_variance_limit=limit)
    expected = reference_run(points, np.random.default_rng(5), 0.8, limit)
    changes = 0
    for t, (point, reward) in enumerate(zip(points, rewards, strict=True)):
        posterior = posterior.updated(point, reward)
        assert {tuple(anchor) for anchor in posterior.dictionary_points} == expected[t]
        changes += t > 0 and expected[t] != expected[t - 1]
    assert changes >= (60 if limit == 1.0 else 3)


def test_cbbkb_with_limit_one_is_cbkb():
    environment = kb.environments.Chessboard()
    batched = kb.run(kb.cbbkb(kb.Gaussian(0.1), batch_variance_limit=1.0, seed=2), environment, 100, 2)
    every_round = kb.run(kb.cbkb(kb.Gaussian(0.1), seed=2), environment, 100, 2)
    np.testing.assert_array_equal(batched.action_indices, every_round.action_indices)
    np.testing.assert_array_equal(batched.dictionary_size, every_round.dictionary_size)


def test_oversampling_sets_the_size_whatever_the_limit():
    points, rewards = stream(0, 400)

    def size(oversampling, limit):
        posterior = learn(resampled(oversampling=oversampling, batch_variance_limit=limit), points, rewards)
        return posterior.dictionary_size, posterior.effective_dimension

    small, large = size(1.0, 1.5), size(1.0, 4.0)
    assert large[0] == pytest.approx(small[0], rel=0.5)
    assert size(4.0, 4.0)[0] > 1.5 * large[0]
    # E m = Σ min(1, q̄σ²) ≤ q̄·Σσ² ≈ q̄·d_eff·(1 + …): of the order of q̄ times the effective dimension
    assert 0.3 * large[1] < large[0] < 3 * large[1]


def test_a_point_that_is_drawn_twice_is_one_anchor():
    generator = np.random.default_rng(0)
    places = generator.random((12, 2))
    order = generator.integers(12, size=300)
    points, rewards = places[order], generator.normal(size=300)
    queries = generator.random((9, 2))
    posterior = learn(resampled(batch_variance_limit=1.2), points, rewards)
    anchors = posterior.dictionary_points
    assert len({tuple(anchor) for anchor in anchors}) == len(anchors)
    expected = dense.nystrom(KERNEL, anchors, points, rewards, RIDGE, queries)
    np.testing.assert_allclose(posterior.predict(queries).mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(posterior.predict(queries).std, expected.std, atol=1e-8)
    np.testing.assert_array_equal(posterior.observed_points, points)
    np.testing.assert_array_equal(posterior.observed_rewards, rewards)


class FailingKernel:
    """NaN for more rows than it is willing to compare."""

    def __init__(self):
        self.most_rows = 10**9

    def __call__(self, X, Y=None):
        gram = KERNEL(X, Y)
        return gram if len(X) <= self.most_rows else np.full_like(gram, np.nan)

    def diag(self, X):
        return KERNEL.diag(X)


def test_a_resampling_that_fails_changes_nothing():
    kernel = FailingKernel()
    policy = kb.cbkb(kernel, seed=0)
    for point, reward in zip(*stream(0, 30), strict=True):
        policy.update(point[:1], point[1:], reward)
    before = pickle.dumps(policy)
    kernel.most_rows = 5
    with pytest.raises(kb.InputError, match="not finite"):
        policy.update([0.5], [0.5], 1.0)
    kernel.most_rows = 10**9
    assert pickle.dumps(policy) == before


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: kb.cbbkb(KERNEL, batch_variance_limit=0.5), "at least 1"),
        (lambda: kb.cbbkb(KERNEL, oversampling=-1.0), "oversampling"),
    ],
)
def test_bad_options_are_named(build, words):
    with pytest.raises(kb.InputError, match=words):
        build()


def test_the_first_point_is_an_anchor_until_the_first_resampling():
    """At λ = 100 nothing is drawn for a long time: without an anchor all actions look alike, with one they do not."""
    points, rewards = stream(0, 30)
    rule = Resampling(batch_variance_limit=1.505, oversampling=100.0, keeps_first=True)
    posterior = NystromPosterior(KERNEL, 100.0, rule, np.random.default_rng(0))
    for t, (point, reward) in enumerate(zip(points, rewards, strict=True), start=1):
        posterior = posterior.updated(point, reward)
        np.testing.assert_array_equal(posterior.dictionary_points, points[:1])
        expected = dense.nystrom(KERNEL, points[:1], points[:t], rewards[:t], 100.0, points)
        np.testing.assert_allclose(posterior.predict(points).mean, expected.mean, atol=1e-10)
        np.testing.assert_allclose(posterior.predict(points).std, expected.std, atol=1e-10)
    # 1 + t·k/λ passes 1.505 with the fifty-first point, since the variances of the batch are frozen at k/λ
    more, values = stream(1, 60)
    sizes = []
    for point, reward in zip(more, values, strict=True):
        posterior = posterior.updated(point, reward)
        sizes.append(posterior.dictionary_size)
    assert sizes[:20] == [1] * 20
    assert sizes[20] > 1
    bulk = NystromPosterior(KERNEL, 100.0, rule, np.random.default_rng(0)).learned(
        np.concatenate([points, more]), np.concatenate([rewards, values])
    )
    np.testing.assert_array_equal(bulk.dictionary_points, posterior.dictionary_points)
