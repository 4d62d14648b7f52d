"""The evidence of mixed kernels is a multivariate normal density, and the slopes are those of the learned function."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kernel_bandits.kernels import Mixed, Shear, TensorProduct
from kernel_bandits.learning import evidence as parts
from kernel_bandits.learning.columns import Warp, column_factors
from kernel_bandits.learning.evidence import Block, Similarity, log_evidence
from kernel_bandits.learning.mixed import MixedObjective
from kernel_bandits.learning.prior import ARM_PRIOR as PRIOR
from kernel_bandits.learning.prior import BOX_PRIOR, DESCRIBED_PRIOR
from kernel_bandits.numerics.packed import pack, unpack

# What a precision matrix of three correlated columns may be.
METRIC = np.array([[0.6, -0.2, 0.0], [-0.2, 0.5, 0.1], [0.0, 0.1, 0.3]])


def described(generator, count=12):
    contexts, actions = generator.normal(size=(count, 3)), generator.normal(size=(count, 2))
    actions[count // 2 :] = actions[: count - count // 2]
    rewards = generator.normal(size=count)
    same = pack((actions[:, None, :] == actions).all(axis=2).astype(float))
    similarities = Similarity.of(contexts, 3), *decorrelated(contexts), Similarity.of(actions, 2)
    return contexts, actions, Block(*similarities, rewards, same_action=same)


def decorrelated(contexts):
    return contexts @ METRIC, pack(contexts @ METRIC @ contexts.T)


def test_the_evidence_is_the_density_of_the_rewards():
    contexts, actions, block = described(np.random.default_rng(0))
    parameters = np.log([0.3, 0.5, 0.6, 0.8, 0.7, 0.2, 0.4, 0.9, 0.6, 1.3])
    evidence = log_evidence(parameters, [block], mean_precision=1.0)
    metric = (0.5 * np.eye(3) / 3 + 0.6 * METRIC) / 1.1
    kernel = TensorProduct(Mixed(0.3, 1.1, 0.8, 0.7, metric=metric), Mixed(1.0, 0.4, 0.9, 1.3, own=0.6), 3)
    covariance = kernel(np.hstack([contexts, actions])) + 0.2 * np.eye(12)
    density = multivariate_normal(np.full(12, evidence.mean), covariance).logpdf(block.rewards)
    assert evidence.value == pytest.approx(density - 0.5 * evidence.mean**2, abs=1e-9)
    # the mean is the one that makes it largest
    for other in (evidence.mean - 0.01, evidence.mean + 0.01):
        worse = multivariate_normal(np.full(12, other), covariance).logpdf(block.rewards) - 0.5 * other**2
        assert worse < evidence.value


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
        block = replace(block, same_action=None)
        warp = replace(warp, moves=np.array([[0.3, -0.2, 0.1], [0.0, 0.4, -0.5]]))
    return theta, contexts, actions, block, warp


@pytest.mark.parametrize("kind", ["arms", "described", "correlated", "moved"])
def test_slopes_are_those_of_the_learned_function(kind):
    """By differences of Σ α_b·k(s, s_b), with one observation moved and the others where they are."""
    theta, contexts, actions, block, warp = warped(kind)
    values, here = np.exp(theta), block.warped(warp)
    weights = log_evidence(theta, [here], mean_precision=1.0).weights[0]
    by_contexts, by_actions = here.slopes(values, weights)
    by_contexts = by_contexts * column_factors(warp.contexts, block.contexts.labels)
    by_contexts = by_contexts + here.decorrelated_slopes(values, weights)

    def function(row, context, action):
        moved, acted = contexts.copy(), actions.copy()
        moved[row], acted[row] = context, action
        similar = None if block.actions is None else Similarity.of(acted, 2)
        both = replace(
            block,
            contexts=Similarity.of(moved, 2, block.contexts.labels),
            pulls=decorrelated(moved)[0],
            decorrelated=decorrelated(moved)[1],
            actions=similar,
        ).warped(warp)
        if both.same_action is not None:
            # what an action has of its own has no slope
            both = replace(both, same_action=block.same_action)
        factors = [unpack(each, 12) for each in both.factors(values) if each is not None]
        gram = np.prod(factors, axis=0)[row]
        # of the point itself nothing is left where it was
        return gram @ np.where(np.arange(12) == row, 0.0, weights)

    if by_actions is not None:
        by_actions = by_actions * column_factors(warp.actions, np.arange(2))
        if warp.moves.size:
            by_contexts = by_contexts - by_actions @ warp.moves
    row, step = 4, 1e-5
    alone = replace(here, rewards=here.rewards)
    own_weights = np.zeros(12)
    own_weights[row] = weights[row]
    own_contexts, own_actions = alone.slopes(values, own_weights)
    own_contexts = own_contexts * column_factors(warp.contexts, block.contexts.labels)
    own_contexts = own_contexts + alone.decorrelated_slopes(values, own_weights)
    if own_actions is not None:
        own_actions = own_actions * column_factors(warp.actions, np.arange(2))
        if warp.moves.size:
            own_contexts = own_contexts - own_actions @ warp.moves
        slopes = [
            (function(row, contexts[row], actions[row] + each) - function(row, contexts[row], actions[row] - each))
            / (2.0 * step)
            for each in step * np.eye(2)
        ]
        np.testing.assert_allclose((by_actions - own_actions)[row], slopes, atol=1e-6)
    slopes = [
        (function(row, contexts[row] + each, actions[row]) - function(row, contexts[row] - each, actions[row]))
        / (2.0 * step)
        for each in step * np.eye(3)
    ]
    np.testing.assert_allclose((by_contexts - own_contexts)[row], slopes, atol=1e-6)


@pytest.mark.parametrize("kind", ["arms", "described", "correlated", "moved"])
def test_slopes_in_relevance_are_those_of_the_evidence(kind):
    """By differences of the log evidence at its best mean."""
    theta, _, _, block, warp = warped(kind)
    here = block.warped(warp)
    weights = log_evidence(theta, [here], mean_precision=1.0).weights[0]
    of_contexts, of_actions = np.split(here.relevance_slopes(np.exp(theta), weights), [3])
    found = np.append(np.bincount(block.contexts.labels, of_contexts), of_actions)
    step = 1e-5
    values = [
        [log_evidence(theta, [block.warped(warp.moved(sign * each))], 1.0).value for sign in (1.0, -1.0)]
        for each in step * np.eye(len(warp.relevance))
    ]
    np.testing.assert_allclose(found, -np.diff(values).ravel() / (2.0 * step), atol=1e-6)


def test_a_warp_has_the_evidence_of_a_sheared_kernel():
    theta, contexts, actions, block, warp = warped("moved")
    evidence = log_evidence(theta, [block.warped(warp)], mean_precision=1.0)
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
    alone = Block(Similarity.of(contexts, 3), *decorrelated(contexts), None, generator.normal(size=9))
    return [MixedObjective([block], prior, False, 1.0) for block in (alone, described(generator)[2])]


@pytest.mark.parametrize("prior", [PRIOR, DESCRIBED_PRIOR, BOX_PRIOR], ids=["contexts", "described", "box"])
def test_at_the_medians_of_a_prior_signal_and_noise_make_up_the_variance_of_rewards(prior):
    for objective in objectives(prior):
        assert objective.penalty(objective.medians) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("signal_width", [0.0, 2.0])
def test_parts_may_be_larger_or_smaller_together_at_the_price_of_one_fact(signal_width):
    """The prior of the logarithms of the parts is N(medians, diag w² + s²·11ᵀ), computed densely."""
    for objective in objectives(replace(PRIOR, signal_width=signal_width, total_width=1e9)):
        offset = np.random.default_rng(4).normal(size=len(objective.medians))
        covariance = np.diag(PRIOR.widths(objective.blocks[0], two_valued=False) ** 2)
        covariance[: parts.LENGTH, : parts.LENGTH] += signal_width**2
        expected = 0.5 * offset @ np.linalg.solve(covariance, offset)
        assert objective.penalty(objective.medians + offset) == pytest.approx(expected, rel=1e-9)
