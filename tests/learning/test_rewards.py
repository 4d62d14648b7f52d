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
    rewards, is_outlier = _normal_but_for_a_handful(seed, count, outlier)
    units = RewardUnits.of(rewards)
    bounded = units.bounded(rewards)
    low, middle, high = np.quantile(rewards, (0.1, 0.5, 0.9))
    # the deciles of a standard normal variable are 2·1.2816 apart
    reach = math.log(count) * (high - low) / (2.0 * 1.2816)
    np.testing.assert_allclose(np.abs(bounded[is_outlier] - middle), reach, rtol=1e-3)
    assert units.bounded(outlier) == (bounded.max() if outlier > 0 else bounded.min())
    inside = np.abs(rewards - middle) <= 0.999 * reach
    np.testing.assert_array_equal(bounded[inside], rewards[inside])


def test_hardly_an_ordinary_reward_beside_outliers_is_bounded():
    # a normal variable is log 100 standard deviations from its mean with probability 4e-6, and 0.8·log 100, if the
    # spread is taken for a fifth too small, with 2.3e-4
    bounded = total = 0
    for seed in range(200):
        rewards, is_outlier = _normal_but_for_a_handful(seed, 100, 1e60)
        ordinary = rewards[~is_outlier]
        bounded += np.count_nonzero(RewardUnits.of(rewards).bounded(ordinary) != ordinary)
        total += len(ordinary)
    assert bounded <= 2.3e-4 * total


def _normal_but_for_a_handful(seed, count, outlier):
    """Return normal rewards of which log n are outliers, and which are."""
    generator = np.random.default_rng(seed)
    rewards, is_outlier = generator.standard_normal(count), np.zeros(count, dtype=bool)
    is_outlier[generator.choice(count, math.ceil(math.log(count)), replace=False)] = True
    rewards[is_outlier] = outlier
    return rewards, is_outlier


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
    """The outlier lies next to a reward at the bound, which is none; jackpots lie next to each other."""
    points = np.array([[0.0], [0.1], [5.0], [5.2], [9.0]])
    units = RewardUnits(0.0, 1.0)
    assert not return_to_their_places(points, np.array([3.0, 1.0, 0.0, 0.5, 0.0]), units)
    assert not return_to_their_places(points, np.array([-3.0, 0.0, 1.0, 0.5, 1.0]), units)
    assert return_to_their_places(points, np.array([0.5, 0.5, 3.0, 3.0, 0.0]), units)
    # six of twenty lie next to each other, less than half, and by chance it were 20²/2,000
    many, jackpots = np.arange(2000.0)[:, None], [*range(100, 106), *range(200, 2000, 125)][:20]
    assert return_to_their_places(many, np.where(np.isin(many[:, 0], jackpots), 3.0, 0.5), units)
    alone = np.where(np.isin(many[:, 0], range(0, 2000, 100)), 3.0, 0.5)
    assert not return_to_their_places(many, alone, units)
