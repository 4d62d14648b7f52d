"""Observations with weights: every posterior equals generalised least squares, computed densely."""

import numpy as np
import pytest
from observing import learn

import kernel_bandits as kb
from kernel_bandits.environments import Round
from kernel_bandits.kernels.fourier import RandomFourierFeatures
from kernel_bandits.posterior import ExactPosterior, FeaturePosterior, NystromPosterior, SplitPosterior

KERNEL, RIDGE = kb.Matern(0.5), 0.2


def data(count=90, seed=0, columns=2):
    generator = np.random.default_rng(seed)
    points = generator.random((count, columns))
    rewards = np.sin(6.0 * points[:, 0]) + points[:, -1] + 0.1 * generator.standard_normal(count)
    return points, rewards, np.exp(generator.normal(0.0, 1.5, count)), generator.random((12, columns))


def generalised_least_squares(features, residual, rewards, weights, query_features, query_residual):
    """Mean and variance of ridge regression with noise covariance λ·diag(1/weights), by normal equations."""
    precision = RIDGE * np.eye(features.shape[1]) + features.T @ (weights[:, None] * features)
    mean = query_features @ np.linalg.solve(precision, features.T @ (weights * rewards))
    explained = np.einsum("ij,ji->i", query_features, np.linalg.solve(precision, query_features.T))
    log_determinant = np.linalg.slogdet(precision / RIDGE)[1]
    return mean, query_residual + RIDGE * explained, log_determinant, float(weights @ residual)


def projected(posterior, points, queries):
    anchors = posterior.dictionary_points
    factor = np.linalg.cholesky(KERNEL(anchors))
    features, query_features = (np.linalg.solve(factor, KERNEL(anchors, each)).T for each in (points, queries))
    residual, query_residual = (
        KERNEL.diag(each) - (phi**2).sum(axis=1) for each, phi in ((points, features), (queries, query_features))
    )
    return features, residual, query_features, query_residual


def weighted(posterior, late=False):
    """Return the posterior with the data in it, learned with another reward awaited all along if it is late."""
    points, rewards, weights, queries = data()
    if not late:
        return learn(posterior, points, rewards, weights)
    return learn(posterior.awaiting([7], queries[:1]), points, rewards, weights).abandoned([7])


def rules():
    return [kb.Kors(), kb.PosteriorVariance(), kb.Fixed(data(20, 9)[0]), kb.Resampling()]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("late", [False, True])
def test_projected_equals_generalised_least_squares(rule, late):
    points, rewards, weights, queries = data()
    posterior = weighted(NystromPosterior(KERNEL, RIDGE, rule, np.random.default_rng(1)), late)
    features, residual, query_features, query_residual = projected(posterior, points, queries)
    mean, variance, log_determinant, trace = generalised_least_squares(
        features, residual, rewards, weights, query_features, query_residual
    )
    prediction = posterior.predict(queries)
    np.testing.assert_allclose(prediction.mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(prediction.std**2, variance, rtol=0, atol=1e-8)
    assert posterior.log_determinant == pytest.approx(log_determinant, abs=1e-8)
    assert posterior.residual_trace == pytest.approx(trace, abs=1e-7)
    np.testing.assert_allclose(posterior.observed_rewards, rewards, atol=1e-12)


@pytest.mark.parametrize("late", [False, True])
def test_exact_equals_generalised_least_squares(late):
    points, rewards, weights, queries = data()
    posterior = weighted(ExactPosterior(KERNEL, RIDGE), late)
    noise = np.diag(RIDGE / weights)
    solved = np.linalg.solve(KERNEL(points) + noise, KERNEL(points, queries))
    prediction = posterior.predict(queries)
    np.testing.assert_allclose(prediction.mean, solved.T @ rewards, rtol=0, atol=1e-8)
    variance = KERNEL.diag(queries) - (KERNEL(points, queries) * solved).sum(axis=0)
    np.testing.assert_allclose(prediction.std**2, variance, rtol=0, atol=1e-8)
    root = np.sqrt(weights)
    gram = root[:, None] * KERNEL(points) * root / RIDGE
    assert posterior.log_determinant == pytest.approx(np.linalg.slogdet(np.eye(len(points)) + gram)[1], abs=1e-8)
    dimension = np.trace(np.linalg.solve(KERNEL(points) + noise, KERNEL(points)))
    assert posterior.effective_dimension == pytest.approx(dimension, abs=1e-8)
    np.testing.assert_allclose(posterior.observed_weights, weights)


def test_features_equal_generalised_least_squares():
    points, rewards, weights, queries = data()
    feature_map = RandomFourierFeatures(KERNEL, 40, np.random.SeedSequence(0))
    posterior = weighted(FeaturePosterior(KERNEL, RIDGE, feature_map))
    mean, variance, _, _ = generalised_least_squares(
        feature_map(points), np.zeros(len(points)), rewards, weights, feature_map(queries), 0.0
    )
    np.testing.assert_allclose(posterior.predict(queries).mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.predict(queries).std ** 2, variance, rtol=0, atol=1e-8)


def test_arms_equal_one_regression_each():
    points, rewards, weights, queries = data()
    arms = np.eye(2)[np.arange(len(points)) % 2]
    posterior = SplitPosterior(kb.PerArm(KERNEL, 2), RIDGE, lambda kernel, ridge, _: ExactPosterior(kernel, ridge))
    posterior = learn(posterior, np.hstack([points, arms]), rewards, weights)
    for arm in range(2):
        own = ExactPosterior(KERNEL, RIDGE).learned(points[arm::2], rewards[arm::2], weights[arm::2])
        joint = np.hstack([queries, np.tile(np.eye(2)[arm], (len(queries), 1))])
        np.testing.assert_allclose(posterior.predict(joint).mean, own.predict(queries).mean, atol=1e-12)
    np.testing.assert_allclose(posterior.observed_weights, weights)


# of a dictionary that is drawn again, every point is one
EVERY_POINT = {"oversampling": 1e9}


@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "cbkb", "thompson_sampling", "random_features_ucb"])
def test_a_weight_of_two_is_two_rewards_of_their_mean(name):
    options = EVERY_POINT if name == "cbkb" else {}
    twice, once = (getattr(kb, name)(KERNEL, seed=0, **options) for _ in range(2))
    points, rewards, _, queries = data(30)
    once.update_many(points[:, :1], points[:, 1:], rewards)
    twice.update_many(points[:, :1], points[:, 1:], rewards)
    point = points[3]  # an anchor, or no new direction: both dictionaries stay the same
    once.update(point[:1], point[1:], 0.75, weight=2.0)
    for reward in (0.5, 1.0):
        twice.update(point[:1], point[1:], reward)
    one, other = once.posterior.predict(queries), twice.posterior.predict(queries)
    if once.dictionary_size == twice.dictionary_size:
        np.testing.assert_allclose(one.mean, other.mean, rtol=0, atol=1e-7)
        np.testing.assert_allclose(one.std, other.std, rtol=0, atol=1e-7)


def test_late_rewards_take_weights_too():
    generator = np.random.default_rng(0)
    at_once, late = kb.k_ucb(KERNEL, regularization=RIDGE, seed=0), kb.k_ucb(KERNEL, regularization=RIDGE, seed=0)
    actions = np.linspace(0, 1, 5)[:, None]
    for _ in range(10):
        decisions = [late.ask(generator.random(1), actions) for _ in range(3)]
        for decision in reversed(decisions):
            variance = float(generator.uniform(0.01, 2.0))
            late.tell(decision.id, 1.0, noise_variance=variance)
            at_once.update(decision.context, decision.action, 1.0, weight=RIDGE / variance)
    queries = generator.random((6, 2))
    np.testing.assert_allclose(late.posterior.predict(queries).mean, at_once.posterior.predict(queries).mean, atol=1e-9)
    np.testing.assert_allclose(late.posterior.predict(queries).std, at_once.posterior.predict(queries).std, atol=1e-9)
    assert late.pending == ()


def test_a_bad_weight_changes_nothing():
    policy = kb.ek_ucb(KERNEL, seed=0)
    policy.update([0.5], [0.5], 1.0)
    for options in (
        {"weight": 0.0},
        {"weight": np.inf},
        {"noise_variance": -1.0},
        {"weight": 1.0, "noise_variance": 1.0},
    ):
        with pytest.raises(kb.InputError, match=next(iter(options))):
            policy.update([0.5], [0.5], 1.0, **options)
    assert policy.round_index == 1
    with pytest.raises(kb.InputError, match="uniform play learns nothing"):
        kb.uniform(seed=0).update([0.5], [0.5], 1.0, weight=2.0)
    with pytest.raises(kb.InputError, match="give weight="):
        kb.ek_ucb(seed=0).update([0.5], [0.5], 1.0, noise_variance=2.0)


def test_a_learned_kernel_keeps_weights_when_it_is_rebuilt():
    policy = kb.k_ucb(seed=0)
    points, rewards, weights, queries = data(40)
    for point, reward, weight in zip(points, rewards, weights, strict=True):
        policy.update(point[:1], point[1:], reward, weight=weight)
    posterior = policy.posterior
    assert posterior.kernel_changes
    kernel, ridge = posterior.kernel, posterior.regularization
    centred = rewards - posterior.prior_mean
    solved = np.linalg.solve(kernel(points) + np.diag(ridge / weights), kernel(points, queries))
    np.testing.assert_allclose(posterior.predict(queries).mean, posterior.prior_mean + solved.T @ centred, atol=1e-7)


class Unequal(kb.environments.Environment):
    """Two halves of the actions: one is measured well and one badly."""

    def next_round(self, contexts):
        return Round(contexts.random(1), np.linspace(0.0, 1.0, 16)[:, None])

    def expected_rewards(self, context, actions):
        return np.sin(6.0 * actions[:, 0] + 3.0 * context[0])

    def noise_variance(self, context, action):
        return 0.01 if action[0] < 0.5 else 4.0

    def noise(self, noise, context, action):
        return noise.standard_normal() * np.sqrt(self.noise_variance(context, action))


class Unaware(Unequal):
    """The same, and nobody knows."""

    def noise(self, noise, context, action):
        return noise.standard_normal() * np.sqrt(Unequal.noise_variance(self, context, action))

    def noise_variance(self, context, action):
        return None


def test_a_run_passes_the_noise_variance_on():
    totals = []
    for environment in (Unequal(), Unaware()):
        regrets = [
            kb.run(kb.ek_ucb(kb.Matern(0.4), regularization=1.0, seed=s), environment, 300, seed=s).regret[-1]
            for s in range(3)
        ]
        totals.append(np.mean(regrets))
    assert totals[0] < 0.8 * totals[1]
