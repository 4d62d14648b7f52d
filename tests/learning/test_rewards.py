"""The bounds within which rewards count."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_bandits.learning.columns import RewardUnits, return_to_their_places
from kernel_bandits.learning.defaults import FEWEST_REWARDS_WITH_TAILS as FEWEST

SIZES = st.integers(FEWEST, 2000)
SEEDS = st.integers(0, 2**32 - 1)
LIGHT = {
    "normal": lambda generator, count: generator.standard_normal(count),
    "uniform": lambda generator, count: generator.random(count),
    "two values, one in ten": lambda _, count: np.arange(count) % 10 == 0,
    "a first click": lambda _, count: np.arange(count) == count // 2,
    "clicks of different worth": lambda generator, count: (generator.random(count) < 0.05) * generator.random(count),
}


@pytest.mark.parametrize("name", LIGHT)
@given(seed=SEEDS, count=SIZES)
def test_rewards_without_heavy_tails_count_as_they_are(name, seed, count):
    rewards = np.asarray(LIGHT[name](np.random.default_rng(seed), count), dtype=float)
    np.testing.assert_array_equal(RewardUnits.of(rewards).bounded(rewards), rewards)


@given(seed=SEEDS, count=st.integers(100, 2000), outlier=st.sampled_from([1e4, 1e60, -1e60, 1e100]))
def test_a_handful_of_outliers_counts_as_log_n_robust_deviations(seed, count, outlier):
    generator = np.random.default_rng(seed)
    rewards = generator.standard_normal(count)
    places = generator.choice(count, math.ceil(math.log(count)), replace=False)
    rewards[places] = outlier
    units = RewardUnits.of(rewards)
    bounded = units.bounded(rewards)
    # the decile range of a standard normal sample is that of the distribution, give or take
    assert np.abs(bounded).max() <= 2.0 * math.log(count)
    assert units.bounded(outlier) == bounded[places[0]] == (bounded.max() if outlier > 0 else bounded.min())
    ordinary = np.delete(np.arange(count), places)
    np.testing.assert_array_equal(bounded[ordinary], rewards[ordinary])


@given(seed=SEEDS, count=SIZES, exponent=st.integers(-190, 300))
def test_bounds_are_those_of_the_rewards_in_any_unit(seed, count, exponent):
    rewards = np.random.default_rng(seed).standard_cauchy(count)
    here, there = RewardUnits.of(rewards), RewardUnits.of(np.ldexp(rewards, exponent))
    assert (math.ldexp(here.low, exponent), math.ldexp(here.high, exponent)) == (there.low, there.high)


def test_deviations_without_squares_count_as_none():
    rewards = 1e-200 * np.random.default_rng(0).standard_normal(100)
    assert len(set(RewardUnits.of(rewards).bounded(rewards).tolist())) == 1


@given(seed=SEEDS, count=SIZES)
def test_a_later_reward_within_the_range_of_a_finite_variance_counts_as_it_is(seed, count):
    generator = np.random.default_rng(seed)
    rewards, later = np.split(generator.standard_normal(2 * count), 2)
    np.testing.assert_array_equal(RewardUnits.of(rewards).bounded(later), later)


def test_equal_rewards_have_no_bounds():
    assert RewardUnits.of(np.full(100, 3.0)) == RewardUnits()


def test_rewards_that_are_equal_but_for_rounding_have_no_scale():
    # 0.1 + 0.2 is not 0.3
    rewards = np.r_[np.full(16, 0.3), np.full(14, 0.1 + 0.2), 9.8, 9.8]
    np.testing.assert_array_equal(RewardUnits.of(rewards).bounded(rewards), rewards)


def test_a_reward_at_a_bound_counts_in_full():
    units, rewards = RewardUnits(-1.0, 2.0), np.array([-1.0, 0.0, 2.0])
    assert not units.cuts(rewards)
    assert units.cuts(np.append(rewards, 2.1))
    assert units.cuts(np.append(rewards, -1.1))


def test_only_rewards_beyond_the_bounds_are_neighbours_of_each_other():
    """The outlier lies next to a reward at the bound, which is none; two jackpots lie next to each other."""
    points = np.array([[0.0], [0.1], [5.0], [5.2], [9.0]])
    units = RewardUnits(0.0, 1.0)
    assert not return_to_their_places(points, np.array([3.0, 1.0, 0.0, 0.5, 0.0]), units)
    assert not return_to_their_places(points, np.array([-3.0, 0.0, 1.0, 0.5, 1.0]), units)
    assert return_to_their_places(points, np.array([0.5, 0.5, 3.0, 3.0, 0.0]), units)
