"""The gradient of mean + bonus·std, of every posterior, against differences of its own predictions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk
from test_kernel_gradients import differences

import kernel_bandits as kb

KERNELS = [
    kb.Gaussian([0.3, 0.7, 1.0]),
    2.0 * kb.Matern(0.5, smoothness=1.5) + kb.Linear(offset=1.0),
    kb.TensorProduct(kb.Polynomial(2), kb.Exponential(0.5), context_dimension=1),
    kb.TensorProduct(kb.Mixed(0.5, 0.3, 0.4), kb.Mixed(1.0, 0.4, 0.9, 0.7, centre=0.5), context_dimension=1),
    sk.RBF(0.5) * 2.0,
]
POSTERIORS = {
    "exact": lambda kernel: kb.k_ucb(kernel, seed=0),
    "projected": lambda kernel: kb.ek_ucb(kernel, seed=0),
    "few anchors": lambda kernel: kb.ek_ucb(kernel, dictionary=kb.Kors(max_size=4), seed=0),
    "history-free": lambda kernel: kb.ek_ucb(kernel, dictionary=kb.Kors(history="none"), seed=0),
    "resampled": lambda kernel: kb.cbbkb(kernel, seed=0),
    "fixed": lambda kernel: kb.ek_ucb(kernel, dictionary=kb.Fixed(np.random.default_rng(1).random((9, 3))), seed=0),
}
FEATURES = {
    "linear": lambda: kb.lin_ucb(interactions=False, seed=0),
    "linear without intercept": lambda: kb.lin_ucb(intercept=False, interactions=False, seed=0),
    "linear with interactions": lambda: kb.lin_ucb(seed=0),
    "random": lambda: kb.random_features_ucb(kb.Matern([0.3, 0.7, 1.0]), seed=0),
    "quadrature": lambda: kb.random_features_ucb(kb.Gaussian(0.7), feature_map="quadrature", seed=0),
}


def learned(policy, count, seed=0):
    generator = np.random.default_rng(seed)
    if count:
        points = generator.random((count, 3))
        rewards = np.sin(5 * points.sum(axis=1)) + 0.1 * generator.normal(size=count)
        policy.update_many(points[:, :1], points[:, 1:], rewards)
    return policy.posterior


def assert_gradient(posterior, points, bonus):
    def upper_bounds(moved):
        evaluation = posterior.evaluate(moved)
        return evaluation.mean + bonus * evaluation.std

    expected = differences(upper_bounds, points)
    gradient = posterior.gradient(points, posterior.evaluate(points), bonus)
    tolerance = 1e-5 * (1 + np.abs(expected).max())
    np.testing.assert_allclose(gradient, expected, atol=tolerance)
    # a search in one context needs the gradient in the action columns alone
    shared = points.copy()
    shared[:, 0] = points[0, 0]
    evaluation = posterior.evaluate(shared)
    by_action = posterior.gradient(shared, evaluation, bonus, 1)
    np.testing.assert_allclose(
        by_action, posterior.gradient(shared, evaluation, bonus)[:, 1:], rtol=0, atol=1e-3 * tolerance
    )


@pytest.mark.parametrize("count", [0, 1, 90])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("name", POSTERIORS)
def test_gradient_agrees_with_differences(name, kernel, count):
    posterior = learned(POSTERIORS[name](kernel), count)
    for bonus in (0.0, 1.7):
        assert_gradient(posterior, np.random.default_rng(2).random((6, 3)), bonus)


@pytest.mark.parametrize("count", [0, 1, 90])
@pytest.mark.parametrize("name", FEATURES)
def test_gradient_on_features_agrees_with_differences(name, count):
    posterior = learned(FEATURES[name](), count)
    for bonus in (0.0, 1.7):
        assert_gradient(posterior, np.random.default_rng(2).random((6, 3)), bonus)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.sampled_from([2, 20, 150]), bonus=st.sampled_from([0.0, 0.5, 3.0]))
def test_gradient_of_random_posteriors(seed, count, bonus):
    generator = np.random.default_rng(seed)
    kernel = kb.Matern(float(generator.uniform(0.2, 1.0)), smoothness=2.5)
    regularization = float(10 ** generator.uniform(-3, 0))
    for policy in (
        kb.k_ucb(kernel, regularization=regularization, seed=0),
        kb.ek_ucb(kernel, regularization=regularization, seed=0),
    ):
        assert_gradient(learned(policy, count, seed), generator.random((5, 3)), bonus)


@pytest.mark.parametrize("name", [*POSTERIORS, *FEATURES])
def test_gradient_while_rewards_are_pending(name):
    """Pending points narrow the standard deviation, and the mean waits: the gradient is that of the two together."""
    policy = POSTERIORS[name](KERNELS[0]) if name in POSTERIORS else FEATURES[name]()
    learned(policy, 30)
    generator = np.random.default_rng(4)
    for _ in range(6):
        policy.ask(generator.random(1), generator.random((5, 2)))
    assert policy.posterior.awaited_count == 6
    for bonus in (0.0, 1.7):
        assert_gradient(policy.posterior, generator.random((6, 3)), bonus)


def test_gradient_is_finite_where_the_standard_deviation_vanishes():
    """The linear kernel is 0 at the origin; with next to no noise every posterior is sure of what it has seen."""
    for kernel in (kb.Linear(), kb.Gaussian(0.5), kb.Exponential(0.5)):
        for build in (kb.k_ucb, kb.ek_ucb):
            posterior = learned(build(kernel, regularization=1e-12, seed=0), 20)
            points = np.concatenate([np.zeros((1, 3)), posterior.dictionary_points[:5]])
            gradient = posterior.gradient(points, posterior.evaluate(points), 1.0)
            assert np.isfinite(gradient).all()


def test_gradient_writes_nothing():
    posterior = learned(kb.ek_ucb(kb.Gaussian(0.5), seed=0), 60)
    points = np.random.default_rng(3).random((7, 3))
    evaluation = posterior.evaluate(points)
    first = posterior.gradient(points, evaluation, 1.0)
    np.testing.assert_array_equal(posterior.gradient(points, evaluation, 1.0), first)
    np.testing.assert_array_equal(posterior.evaluate(points).mean, evaluation.mean)


IN_CONTEXT = {
    "given": lambda: kb.ek_ucb(
        kb.TensorProduct(kb.Gaussian(0.5), kb.Matern(0.4) + kb.Constant(0.2), context_dimension=1), seed=0
    ),
    "sheared": lambda: kb.ek_ucb(
        kb.TensorProduct(
            kb.Gaussian(0.5),
            kb.Mixed(0.5, 0.7, 1.0, 0.4, centre=0.3),
            context_dimension=1,
            shear=kb.kernels.Shear(np.array([[0.4], [-0.2]]), np.array([0.5])),
        ),
        seed=0,
    ),
    "foreign": lambda: kb.ek_ucb(kb.TensorProduct(kb.Gaussian(0.5), sk.RBF(0.5), context_dimension=1), seed=0),
    "joint": lambda: kb.ek_ucb(kb.Gaussian(0.5), seed=0),
    "exact": lambda: kb.k_ucb(kb.Matern(0.5), seed=0),
    "learned": lambda: kb.ek_ucb(seed=0),
    "forgetting": lambda: kb.ek_ucb(forgetting=kb.Window(40), seed=0),
    "ageing": lambda: kb.ek_ucb(kb.Gaussian(0.5), forgetting=kb.Wander(30.0), seed=0),
}


@pytest.mark.parametrize("name", IN_CONTEXT)
def test_the_bound_in_one_context_is_that_of_joint_points(name):
    """Up to a constant, which a learned posterior leaves out."""
    policy, generator = IN_CONTEXT[name](), np.random.default_rng(5)
    learned(policy, 70)
    policy.ask(generator.random(1), generator.random((5, 2)))
    posterior = policy.posterior
    assert posterior.awaited_count == 1
    context, actions = generator.random(1), generator.random((7, 2))
    points = np.hstack([np.tile(context, (7, 1)), actions])
    evaluation = posterior.evaluate(points)
    expected = evaluation.mean + 1.7 * evaluation.std - posterior.prior_mean
    slopes = posterior.gradient(points, evaluation, 1.7, 1)
    bound = posterior.bound_in(context, 1.7)
    values, gradients = bound.with_gradients(actions)
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    np.testing.assert_allclose(bound.values(actions), values, rtol=1e-12)
    np.testing.assert_allclose(gradients, slopes, rtol=0, atol=1e-9 * np.abs(slopes).max())


def test_the_bound_without_contexts_is_that_of_the_actions():
    posterior = learned(kb.ek_ucb(kb.Mixed(0.5, 0.7, 1.0, 0.4), seed=0), 30)
    points = np.random.default_rng(6).random((5, 3))
    evaluation = posterior.evaluate(points)
    values, gradients = posterior.bound_in(np.empty(0), 1.7).with_gradients(points)
    np.testing.assert_allclose(values, evaluation.mean + 1.7 * evaluation.std, rtol=1e-12)
    np.testing.assert_allclose(gradients, posterior.gradient(points, evaluation, 1.7), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("kernel", "far"),
    [
        (kb.TensorProduct(kb.Gaussian(0.5), kb.Mixed(0.5, 0.7, 1.0), context_dimension=1), 1e160),
        (kb.TensorProduct(kb.Gaussian(0.5), kb.Polynomial(3), context_dimension=1), 1e120),
        (kb.Polynomial(3), 1e120),
    ],
)
def test_a_bound_is_refused_where_the_kernel_is_not_finite(kernel, far):
    bound = learned(kb.ek_ucb(kernel, seed=0), 20).bound_in(np.zeros(1), 1.0)
    with pytest.raises(kb.InputError, match="not finite"):
        bound.values(np.full((2, 2), far))
