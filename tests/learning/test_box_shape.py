"""What rewards in a box show of the settings."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.mixed import CURVED, FLAT, PLANE

BOX = kb.Box([0.0, 0.0], [1.0, 2.0])


def shape_of(expected, seed, noise=0.1, count=24):
    """What a policy has learned from points all over the box."""
    generator = np.random.default_rng(seed)
    points = BOX.sample(generator, count)
    rewards = expected(*points.T) + noise * generator.normal(size=count)
    policy = kb.k_ucb(seed=0)
    policy.select([], BOX)
    policy.update_many(np.empty((count, 0)), points, rewards)
    return policy.posterior.shape


@pytest.mark.parametrize("seed", range(3))
def test_a_part_of_the_model_has_to_earn_its_parameters(seed):
    assert shape_of(lambda x, y: 0.0 * (x + y), seed) == FLAT
    # some two nats, which are less than the price of three parameters
    assert shape_of(lambda x, y: 0.15 * x + 0.0 * y, seed) == FLAT
    assert shape_of(lambda x, y: 3.0 * x - y, seed) == PLANE
    assert shape_of(lambda x, y: np.sin(6.0 * x) * np.cos(2.0 * y), seed, noise=0.02) == CURVED
