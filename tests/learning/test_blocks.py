"""The evidence of mixed kernels: a multivariate normal density, and its derivatives."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

from kernel_bandits.kernels import Mixed, Shear, TensorProduct
from kernel_bandits.learning import blocks
from kernel_bandits.learning.blocks import Block, Similarity, block_evidence
from kernel_bandits.learning.columns import Warp
from kernel_bandits.learning.mixed import MixedObjective
from kernel_bandits.learning.prior import ARM_PRIOR as PRIOR
from kernel_bandits.learning.prior import BOX_PRIOR, DESCRIBED_PRIOR
from kernel_bandits.numerics.packed import pack

# What a precision matrix of three correlated columns may be.
METRIC = np.array([[0.6, -0.2, 0.0], [-0.2, 0.5, 0.1], [0.0, 0.1, 0.3]])


def described(generator, count=12):
    contexts, actions = generator.normal(size=(count, 3)), generator.normal(size=(count, 2))
    actions[count // 2 :] = actions[: count - count // 2]
    rewards = generator.normal(size=count)
    same = pack((actions[:, None, :] == actions).all(axis=2).astype(float))
    similarities = Similarity.of(contexts, 3), decorrelated(contexts), Similarity.of(actions, 2)
    return contexts, actions, Block(*similarities, rewards, same_action=same)


def decorrelated(contexts):
    return pack(contexts @ METRIC @ contexts.T)


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


def warped(kind):
    """θ, a block of three context columns of two variables and two action columns, and a warp of them."""
    generator, labels = np.random.default_rng(2), np.array([0, 1, 1])
    theta = np.log([0.3, 0.5, 0.6, 0.8, 0.7, 0.2])
    contexts, actions, block = described(generator)
    block = replace(block, contexts=Similarity.of(contexts, 2, labels))
    warp = Warp(np.array([0.4, -0.7]), np.empty(0), np.empty((0, 0)))
    if kind in ("described", "moved"):
        theta, warp = np.append(theta, np.log([0.4, 0.9, 0.6, 1.3])), replace(warp, actions=np.array([1.1, 0.2]))
    else:
        block = replace(block, actions=None, same_action=None)
    if kind == "correlated":
        arms = generator.integers(3, size=12)
        theta, block = np.append(theta, 0.3), replace(block, other_arm=pack((arms[:, None] != arms).astype(float)))
    if kind == "moved":
        block = replace(block, same_action=None, movable=True)
        warp = replace(warp, moves=np.array([[0.3, -0.2, 0.1], [0.0, 0.4, -0.5]]))
    return theta, contexts, actions, block, warp


@pytest.mark.parametrize("kind", ["arms", "described", "correlated", "moved"])
def test_gradients_in_a_warp_are_those_of_differences(kind):
    theta, _, _, block, warp = warped(kind)
    sizes = block.warp_sizes

    def evidence(both):
        numbers = sizes.warp(both[len(theta) :])
        return block_evidence(both[: len(theta)], [block], 1.0, warp=numbers)

    both = np.append(theta, warp.flat)
    assert sizes.total == len(warp.flat)
    slope = approx_fprime(both, lambda each: evidence(each).value, 1e-6)
    np.testing.assert_allclose(evidence(both).gradient, slope, atol=1e-4)


def test_a_warp_has_the_evidence_of_a_sheared_kernel():
    theta, contexts, actions, block, warp = warped("moved")
    evidence = block_evidence(theta, [block], mean_precision=1.0, warp=warp)
    grow, widths = np.diag(np.exp([0.4, -0.7, -0.7])), np.exp([-1.1, -0.2])
    # columns that are exp ρ times as large, and W of those that are not
    metric = (0.5 * np.eye(3) / 2 + 0.6 * np.linalg.inv(grow) @ METRIC @ np.linalg.inv(grow)) / 1.1
    kernel = TensorProduct(
        Mixed(0.3, 1.1, 0.8, 0.7, metric=metric, scale=1.0 / np.diag(grow), variables=2),
        Mixed(1.0, 0.4, 0.9, 1.3, scale=widths),
        3,
        Shear(warp.moves, np.zeros(3)),
    )
    covariance = kernel(np.hstack([contexts, actions])) + 0.2 * np.eye(12)
    density = multivariate_normal(np.full(12, evidence.mean), covariance).logpdf(block.rewards)
    assert evidence.value == pytest.approx(density - 0.5 * evidence.mean**2, abs=1e-9)


def objectives(prior):
    """Of contexts alone, and of described actions."""
    generator = np.random.default_rng(2)
    contexts = generator.normal(size=(9, 3))
    alone = Block(Similarity.of(contexts, 3), decorrelated(contexts), None, generator.normal(size=9))
    return [MixedObjective([block], prior, False, 1.0) for block in (alone, described(generator)[2])]


@pytest.mark.parametrize("prior", [PRIOR, DESCRIBED_PRIOR, BOX_PRIOR], ids=["contexts", "described", "box"])
def test_at_the_medians_of_a_prior_signal_and_noise_make_up_the_variance_of_rewards(prior):
    for objective in objectives(prior):
        assert objective.penalty(objective.medians)[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("total_width", [1.0, 2.0])
def test_the_prior_has_the_gradient_it_says(total_width):
    for objective in objectives(replace(PRIOR, total_width=total_width)):
        parameters = objective.medians + np.random.default_rng(3).normal(size=len(objective.medians))
        slope = approx_fprime(parameters, lambda theta, of=objective: of.penalty(theta)[0], 1e-7)
        np.testing.assert_allclose(objective.penalty(parameters)[1], slope, atol=1e-4)


@pytest.mark.parametrize("signal_width", [0.0, 2.0])
def test_parts_may_be_larger_or_smaller_together_at_the_price_of_one_fact(signal_width):
    """The prior of the logarithms of the parts is N(medians, diag w² + s²·11ᵀ), computed densely."""
    for objective in objectives(replace(PRIOR, signal_width=signal_width, total_width=1e9)):
        offset = np.random.default_rng(4).normal(size=len(objective.medians))
        covariance = np.diag(PRIOR.widths(objective.blocks[0], two_valued=False) ** 2)
        covariance[: blocks.LENGTH, : blocks.LENGTH] += signal_width**2
        expected = 0.5 * offset @ np.linalg.solve(covariance, offset)
        assert objective.penalty(objective.medians + offset)[0] == pytest.approx(expected, rel=1e-9)
