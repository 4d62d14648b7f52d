"""The evidence of mixed kernels: a multivariate normal density, and its derivatives."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

from kernel_bandits.kernels import Mixed, Shear, TensorProduct
from kernel_bandits.learning.blocks import Block, Similarity, block_evidence

# What a precision matrix of three correlated columns may be.
METRIC = np.array([[0.6, -0.2, 0.0], [-0.2, 0.5, 0.1], [0.0, 0.1, 0.3]])


def described(generator, count=12):
    contexts, actions = generator.normal(size=(count, 3)), generator.normal(size=(count, 2))
    actions[count // 2 :] = actions[: count - count // 2]
    rewards = generator.normal(size=count)
    same = (actions[:, None, :] == actions).all(axis=2).astype(float)
    similarities = Similarity.of(contexts, 3), decorrelated(contexts), Similarity.of(actions, 2)
    return contexts, actions, Block(*similarities, rewards, same_action=same)


def decorrelated(contexts):
    return contexts @ METRIC @ contexts.T


def test_the_evidence_is_the_density_of_the_rewards():
    contexts, actions, block = described(np.random.default_rng(0))
    parameters = np.log([0.3, 0.5, 0.6, 0.8, 0.7, 0.2, 0.4, 0.9, 0.6, 1.3])
    evidence = block_evidence(parameters, [block], mean_precision=1.0)
    metric = (0.5 * np.eye(3) / 3 + 0.6 * METRIC) / 1.1
    kernel = TensorProduct(Mixed(0.3, 1.1, 0.8, 0.7, metric=metric), Mixed(1.0, 0.4, 0.9, 1.3, own=0.6), 3)
    covariance = kernel(np.hstack([contexts, actions])) + 0.2 * np.eye(12)
    density = multivariate_normal(np.full(12, evidence.mean), covariance).logpdf(block.rewards)
    assert evidence.value == pytest.approx(density - 0.5 * evidence.mean**2, abs=1e-9)
    # the mean is the one that makes it largest
    for other in (evidence.mean - 0.01, evidence.mean + 0.01):
        worse = multivariate_normal(np.full(12, other), covariance).logpdf(block.rewards) - 0.5 * other**2
        assert worse < evidence.value


@pytest.mark.parametrize("arms", [True, False])
def test_gradients_are_those_of_differences(arms):
    generator = np.random.default_rng(1)
    if arms:
        blocks = [
            Block(Similarity.of(contexts, 3), decorrelated(contexts), None, generator.normal(size=len(contexts)))
            for contexts in (generator.normal(size=(n, 3)) for n in (1, 7, 9))
        ]
        parameters = np.log([0.3, 0.5, 0.6, 0.8, 0.7, 0.2])
    else:
        blocks, parameters = [described(generator)[2]], np.log([0.3, 0.5, 0.6, 0.8, 0.7, 0.2, 0.4, 0.9, 0.6, 1.3])
    slope = approx_fprime(parameters, lambda theta: block_evidence(theta, blocks, 1.0).value, 1e-6)
    np.testing.assert_allclose(block_evidence(parameters, blocks, 1.0).gradient, slope, atol=1e-4)


def in_box(generator, count=14):
    """Observations in a box of two settings, with three sensors, and what they are made of."""
    sensors, settings = generator.normal(size=(count, 3)), generator.normal(size=(count, 2))
    similarities = Similarity.of(sensors, 3), decorrelated(sensors), Similarity.of(settings, 2)
    unit = np.sqrt(2.0)
    block = Block(*similarities, generator.normal(size=count), settings=settings / unit, sensors=sensors / unit)
    parameters = np.log([0.3, 0.5, 0.6, 0.8, 0.7, 0.2, 0.4, 0.9, np.exp(-60.0), 1.3, 0.5, 2.0])
    moves = np.array([[0.3, -0.2, 0.1], [0.0, 0.4, -0.5]])
    return sensors, settings, block, np.append(parameters, moves.ravel()), moves


def test_settings_that_sensors_move_have_the_evidence_of_a_sheared_kernel():
    sensors, settings, block, parameters, moves = in_box(np.random.default_rng(2))
    evidence = block_evidence(parameters, [block], mean_precision=1.0)
    metric = (0.5 * np.eye(3) / 3 + 0.6 * METRIC) / 1.1
    kernel = TensorProduct(
        Mixed(0.3, 1.1, 0.8, 0.7, metric=metric),
        Mixed(1.0, 0.4, 0.9, 1.3, scale=[0.5, 2.0]),
        3,
        Shear(moves, np.zeros(3)),
    )
    covariance = kernel(np.hstack([sensors, settings])) + 0.2 * np.eye(14)
    density = multivariate_normal(np.full(14, evidence.mean), covariance).logpdf(block.rewards)
    assert evidence.value == pytest.approx(density - 0.5 * evidence.mean**2, abs=1e-9)


def test_gradients_by_widths_and_moves_are_those_of_differences():
    _, _, block, parameters, _ = in_box(np.random.default_rng(3))
    slope = approx_fprime(parameters, lambda theta: block_evidence(theta, [block], 1.0).value, 1e-6)
    np.testing.assert_allclose(block_evidence(parameters, [block], 1.0).gradient, slope, atol=1e-4)


@pytest.mark.parametrize("kind", ["arms", "described", "correlated"])
def test_gradients_in_the_relevance_of_variables_are_those_of_differences(kind):
    """Three context columns of two variables, and two action columns."""
    generator, labels = np.random.default_rng(2), np.array([0, 1, 1])
    theta = np.log([0.3, 0.5, 0.6, 0.8, 0.7, 0.2])
    contexts, _, block = described(generator)
    block = replace(block, contexts=Similarity.of(contexts, 2, labels))
    if kind == "described":
        theta = np.append(theta, np.log([0.4, 0.9, 0.6, 1.3]))
    else:
        block = replace(block, actions=None, same_action=None)
    if kind == "correlated":
        arms = generator.integers(3, size=12)
        theta, block = np.append(theta, 0.3), replace(block, other_arm=(arms[:, None] != arms).astype(float))
    relevance = np.array([0.4, -0.7, 1.1, 0.2] if kind == "described" else [0.4, -0.7])

    def evidence(weights):
        return block_evidence(theta, [block.weighted(weights)], 1.0, of_relevance=True)

    slope = approx_fprime(relevance, lambda weights: evidence(weights).value, 1e-6)
    np.testing.assert_allclose(evidence(relevance).relevance_gradient, slope, atol=1e-4)
