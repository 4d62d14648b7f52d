"""The score of rewards left out: what dense predictions from the others miss, and its derivatives."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from kernel_bandits.kernels import Mixed
from kernel_bandits.learning.blocks import Block, Similarity, balanced_score, block_evidence, left_out_score
from kernel_bandits.learning.columns import Warp
from kernel_bandits.numerics.packed import pack

PARAMETERS = np.log([0.3, 0.5, 0.6, 0.8, 0.7, 0.2])


def block(generator, count):
    contexts = generator.normal(size=(count, 3))
    return Block(Similarity.of(contexts, 3), pack(contexts @ contexts.T), None, generator.normal(1.0, size=count))


def covariance(one):
    """Of the rewards of a block at ``PARAMETERS``, with a mean of variance ½ that all share left out."""
    # 0.5·⟨x, y⟩/3 + 0.6·⟨x, y⟩ is 1.1·⟨x, My⟩
    kernel = Mixed(0.3, 1.1, 0.8, 0.7, metric=(0.5 / 3 + 0.6) / 1.1 * np.eye(3))
    return kernel(one.contexts.columns) + 0.2 * np.eye(len(one.rewards))


def test_it_is_what_predictions_from_all_other_rewards_miss():
    generator = np.random.default_rng(0)
    blocks = [block(generator, count) for count in (6, 4)]
    # the mean c is unknown with variance 1/2, so that the arms say something of each other
    prior = np.full((10, 10), 0.5)
    prior[:6, :6] += covariance(blocks[0])
    prior[6:, 6:] += covariance(blocks[1])
    rewards = np.concatenate([one.rewards for one in blocks])
    errors = []
    for left in range(10):
        others = np.delete(np.arange(10), left)
        errors.append(
            rewards[left] - prior[left, others] @ np.linalg.solve(prior[np.ix_(others, others)], rewards[others])
        )
    score = left_out_score(PARAMETERS, blocks, 2.0)
    assert score.value == pytest.approx(-5.0 * np.log(np.mean(np.square(errors)) * 2.0 * np.pi * np.e), abs=1e-9)
    assert score.mean == pytest.approx(block_evidence(PARAMETERS, blocks, 2.0).mean, abs=1e-12)


@pytest.mark.parametrize("correlated", [False, True])
def test_gradients_are_those_of_differences(correlated):
    generator = np.random.default_rng(1)
    blocks, parameters = [block(generator, count) for count in (3, 7, 9)], PARAMETERS
    if correlated:
        arms = generator.integers(2, size=9)
        blocks = [replace(blocks[2], other_arm=pack((arms[:, None] != arms).astype(float)))]
        parameters = np.append(PARAMETERS, np.log(1.4))
    warp = Warp(np.array([0.4, -0.3, 0.1]), np.empty(0), np.empty((0, 0)))

    def value(numbers):
        one = replace(warp, contexts=numbers[len(parameters) :])
        return left_out_score(numbers[: len(parameters)], blocks, 1.0, warp=one).value

    slope = approx_fprime(np.append(parameters, warp.contexts), value, 1e-7)
    np.testing.assert_allclose(left_out_score(parameters, blocks, 1.0, warp=warp).gradient, slope, atol=2e-5)


def test_the_balanced_score_is_the_mean_of_both():
    generator = np.random.default_rng(4)
    blocks, warp = [block(generator, count) for count in (5, 8)], Warp(np.full(3, 0.2), np.empty(0), np.empty((0, 0)))
    both = [score(PARAMETERS, blocks, 1.0, warp=warp) for score in (block_evidence, left_out_score)]
    balanced = balanced_score(PARAMETERS, blocks, 1.0, warp=warp)
    assert balanced.value == pytest.approx(0.5 * (both[0].value + both[1].value), abs=1e-12)
    np.testing.assert_allclose(balanced.gradient, 0.5 * (both[0].gradient + both[1].gradient), atol=1e-12)


def test_the_gradient_of_many_observations_is_that_of_a_difference():
    """As many as leave the paths that are for few."""
    generator = np.random.default_rng(5)
    arms, direction = generator.integers(2, size=140), generator.normal(size=10)
    one = replace(block(generator, 140), other_arm=pack((arms[:, None] != arms).astype(float)))
    numbers = np.concatenate([PARAMETERS, [0.3], [0.4, -0.3, 0.1]])

    def score(at):
        return balanced_score(at[:7], [one], 1.0, warp=Warp(at[7:], np.empty(0), np.empty((0, 0))))

    ahead, behind = score(numbers + 1e-5 * direction), score(numbers - 1e-5 * direction)
    slope = (ahead.value - behind.value) / 2e-5
    assert score(numbers).gradient @ direction == pytest.approx(slope, abs=1e-4)


def test_a_common_scale_of_kernel_and_noise_does_not_matter():
    generator = np.random.default_rng(2)
    blocks, larger = [block(generator, 8)], PARAMETERS.copy()
    larger[[0, 1, 2, 3, 5]] += np.log(3.0)
    # as long as the mean is as unknown
    one, other = left_out_score(PARAMETERS, blocks, 1.0), left_out_score(larger, blocks, 1.0 / 3.0)
    assert one.value == pytest.approx(other.value, abs=1e-9)


def test_rewards_that_are_exact_but_for_a_few_ask_for_more_noise_than_the_evidence_allows():
    """Nine of ten rewards are what a line says, and every tenth is chance, wherever it is."""
    generator = np.random.default_rng(3)
    contexts = generator.normal(size=(120, 3))
    rewards = np.where(contexts[:, 0] > 0.0, 1.0, -1.0)
    rewards[::10] *= -1.0
    one = Block(Similarity.of(contexts, 3), pack(contexts @ contexts.T / 3.0), None, rewards)
    noises = np.log(np.geomspace(0.01, 3.0, 30))

    def best(score):
        theta = np.log([0.2, 0.2, 0.2, 2.0, 0.7, 1.0])
        values = [score(np.append(theta[:5], noise), [one], 1.0).value for noise in noises]
        return noises[int(np.argmax(values))]

    assert best(left_out_score) > best(block_evidence) + np.log(2.0)
