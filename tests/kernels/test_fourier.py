import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.kernels.fourier import LinearFeatures, QuadratureFourierFeatures, RandomFourierFeatures
from kernel_bandits.posterior import ExactPosterior, FeaturePosterior

KERNELS = [
    kb.Gaussian(0.4),
    kb.Gaussian([0.3, 1.0, 0.5]),
    kb.Exponential(0.8),
    kb.Matern(0.6, 1.5),
    kb.Matern(0.6, 2.5),
]


def points(seed, count=40, dimension=3):
    return np.random.default_rng(seed).random((count, dimension))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_random_features_average_to_the_kernel(kernel):
    """Each entry is a mean of D/2 independent cosines: within 5 standard deviations of at most 1/√(D/2)."""
    X = points(0)
    features = RandomFourierFeatures(kernel, 20_000, np.random.SeedSequence(0))(X)
    assert np.abs(features @ features.T - kernel(X)).max() < 5 / np.sqrt(10_000)
    np.testing.assert_allclose((features**2).sum(axis=1), 1.0)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_quadrature_is_exact_to_rounding_with_enough_nodes(dimension):
    X = points(0, dimension=dimension)
    kernel = kb.Gaussian([0.6, 0.8, 1.0][:dimension])
    errors = []
    for nodes in (4, 8, 16):
        features = QuadratureFourierFeatures(kernel, nodes**dimension)(X)
        assert features.shape[1] == nodes**dimension
        errors.append(np.abs(features @ features.T - kernel(X)).max())
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-8


def test_quadrature_takes_hundreds_of_nodes():
    X = points(0, dimension=1)
    features = QuadratureFourierFeatures(kb.Gaussian(0.1), 600)(X)
    np.testing.assert_allclose(features @ features.T, kb.Gaussian(0.1)(X), atol=1e-8)


def test_linear_features_give_the_exact_posterior_of_the_linear_kernel():
    X, queries = points(0, 100), points(1, 20)
    rewards = X @ [1.0, -2.0, 0.5] + 0.3
    for intercept in (True, False):
        kernel = kb.Linear(offset=float(intercept)) if intercept else kb.Linear()
        exact, features = ExactPosterior(kernel, 0.2), FeaturePosterior(kernel, 0.2, LinearFeatures(intercept))
        for point, reward in zip(X, rewards, strict=True):
            exact, features = exact.updated(point, reward), features.updated(point, reward)
        one, other = exact.predict(queries), features.predict(queries)
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-8)
        np.testing.assert_allclose(one.std, other.std, atol=1e-6)
        assert features.log_determinant == pytest.approx(exact.log_determinant, abs=1e-8)
        assert features.effective_dimension == pytest.approx(exact.effective_dimension, abs=1e-8)
        assert features.approximation == "exact"


def test_lin_ucb_is_k_ucb_with_a_linear_kernel():
    environment = kb.environments.Bump()
    linear = kb.run(kb.lin_ucb(regularization=0.5, interactions=False, seed=0), environment, 120, seed=0)
    kernel = kb.run(kb.k_ucb(kb.Linear(offset=1.0), regularization=0.5, seed=0), environment, 120, seed=0)
    np.testing.assert_array_equal(linear.action_indices, kernel.action_indices)


@pytest.mark.parametrize("columns", [0, 2])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_lin_ucb_with_interactions_is_k_ucb_with_the_kernel_that_it_names(named, intercept, columns):
    generator = np.random.default_rng(0)
    linear = kb.lin_ucb(regularization=0.5, intercept=intercept, seed=0)
    exact = None
    for _ in range(40):
        context = generator.normal(size=columns)
        actions = np.eye(3) if named else generator.normal(size=(4, 3))
        decision = linear.select(context, actions)
        if exact is None:
            exact = kb.k_ucb(linear.posterior.kernel, regularization=0.5, seed=0)
        other = exact.select(context, actions)
        assert decision.mean == pytest.approx(other.mean, abs=1e-9)
        assert decision.std == pytest.approx(other.std, abs=1e-7)
        reward = generator.normal()
        for policy in (linear, exact):
            policy.update(context, decision.action, reward)


def test_what_is_best_may_depend_on_the_context():
    generator = np.random.default_rng(0)
    personal, additive = kb.lin_ucb(seed=0), kb.lin_ucb(interactions=False, seed=0)
    for _ in range(200):
        context, arm = generator.normal(size=2), generator.integers(2)
        reward = (1.0 if arm else -1.0) * context[0]
        for policy in (personal, additive):
            policy.update(context, np.eye(2)[arm], reward)
    chosen = [personal.select([x, 0.0], np.eye(2)).index for x in (-1.0, 1.0)]
    assert chosen == [0, 1]
    assert len({additive.select([x, 0.0], np.eye(2)).index for x in (-1.0, 1.0)}) == 1


@pytest.mark.parametrize("interactions", [True, False], ids=["products", "sum"])
@pytest.mark.parametrize("actions", [np.eye(3), np.array([[500.0], [501.0], [502.0]])], ids=["arms", "described"])
def test_far_columns_are_centred_in_the_kernel_that_is_named(actions, interactions):
    generator, policy = np.random.default_rng(0), kb.lin_ucb(interactions=interactions, seed=0)
    offset = np.array([1e6, 0.0])
    rounds = []
    for _ in range(40):
        context, action = offset + generator.random(2), actions[generator.integers(3)]
        rounds.append((context, action, context[0] - offset[0] + action[0] / actions.max()))
        policy.update(*rounds[-1])
    exact = kb.k_ucb(policy.posterior.kernel, seed=0)
    for each in rounds:
        exact.update(*each)
    prediction, expected = (each.predict(offset + 0.5, actions) for each in (policy, exact))
    np.testing.assert_allclose(prediction.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(prediction.std, expected.std, atol=1e-6)
    np.testing.assert_allclose(prediction.mean, 0.5 + actions[:, 0] / actions.max(), atol=0.1)


def test_a_choice_is_learned_right_after_an_update_that_failed_in_between():
    policy, alone = kb.lin_ucb(seed=0), kb.lin_ucb(seed=0)
    offered = [[500.0], [900.0]]
    decision, _ = policy.select([0.5], offered), alone.select([0.5], offered)
    with pytest.raises(kb.InputError):
        policy.update([0.5], [700.0], 1.0, outputs={"pressure": 1.0})
    policy.update([0.5], decision.action, 1.0)
    alone.update([0.5], decision.action, 1.0)
    np.testing.assert_array_equal(policy.predict([0.5], offered).mean, alone.predict([0.5], offered).mean)


def test_columns_near_0_and_models_without_an_intercept_are_left_alone():
    for options, context in (({}, [99.0, 3.0]), ({"intercept": False}, [1e6, 3.0])):
        policy = kb.lin_ucb(**options, seed=0)
        policy.select(context, np.eye(2))
        assert policy.posterior.feature_map.centre is None


@pytest.mark.parametrize("offset", [1e3, 1e6, 1.7e12])
@pytest.mark.parametrize("actions", [np.eye(3), np.array([[0.1], [0.5], [0.9]])], ids=["arms", "described"])
def test_an_offset_of_a_column_hides_nothing(actions, offset):
    policy, generator, earned = kb.lin_ucb(seed=0), np.random.default_rng(0), 0.0
    for number in range(120):
        context = generator.random(2)
        decision = policy.select([offset + context[0], context[1]], actions)
        expected = (2.0 * context[0] - 1.0) * (1.0 - decision.index)
        policy.update(decision.context, decision.action, expected + 0.1 * generator.standard_normal())
        earned += expected * (number >= 60)
    # the best action earns 1/2 on average, one at random 0
    assert earned / 60 > 0.35


def test_fourier_features_come_close_to_k_ucb():
    environment = kb.environments.Chessboard()
    exact = kb.run(kb.k_ucb(kb.Gaussian(0.3), seed=0), environment, 100, seed=0)
    quadrature = kb.random_features_ucb(kb.Gaussian(0.3), number_of_features=20**2, feature_map="quadrature", seed=0)
    result = kb.run(quadrature, environment, 100, seed=0)
    np.testing.assert_array_equal(result.action_indices, exact.action_indices)
    assert quadrature.posterior.approximation == "random features"
    assert quadrature.dictionary_size == 400


@pytest.mark.parametrize("intercept", [True, False])
def test_before_the_first_round_the_kernel_has_the_intercept_and_nothing_else_at_zero(intercept):
    kernel = kb.lin_ucb(intercept=intercept, seed=0).posterior.kernel
    np.testing.assert_array_equal(kernel.diag(np.array([[0.0, 0.0], [1.0, 2.0]])), [intercept, intercept + 5.0])


def test_history_is_not_kept():
    policy = kb.lin_ucb(seed=0)
    policy.update([0.5], [0.5], 1.0)
    with pytest.raises(kb.UnavailableError, match="keeps no observations"):
        _ = policy.observed_points


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (lambda: kb.random_features_ucb(kb.Linear()), "random features are known for"),
        (lambda: kb.random_features_ucb(kb.Gaussian(), number_of_features=7), "pairs"),
        (lambda: kb.random_features_ucb(kb.Gaussian([0.1, 0.2])).select([0.1, 0.2], [[0.1]]), "2 lengthscales"),
        (lambda: kb.random_features_ucb(kb.Matern(), feature_map="quadrature"), "known for Gaussian"),
        (lambda: kb.random_features_ucb(kb.Gaussian(), feature_map="orthogonal"), "'random' or 'quadrature'"),
        (
            lambda: kb.random_features_ucb(kb.Gaussian(), feature_map="quadrature").select([0.0] * 3, [[0.0]]),
            "at most 3 columns",
        ),
        (
            lambda: kb.random_features_ucb(kb.Gaussian(), number_of_features=3, feature_map="quadrature").select(
                [0.0], [[0.0]]
            ),
            "at least 4 are needed",
        ),
    ],
)
def test_bad_options_are_named(play, words):
    with pytest.raises(kb.InputError, match=words):
        play()
