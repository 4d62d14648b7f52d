"""What a learned model sees of rewards: in a unit whose square is a number, without those that would hide the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from kernel_bandits.arrays import FloatArray

Rewards = TypeVar("Rewards", float, FloatArray)
# Fewer rewards say nothing of their tails.
FEWEST = 16
# A handful of rewards, log n of n, are most of the variance if they hold this share of the squared deviations.
DOMINANT_SHARE = 0.75
# The first and the last decile of a normal distribution are this many standard deviations apart.
NORMAL_DECILES = 2.563
# Rewards that differ by less than this share of themselves are equal up to rounding.
ROUNDING = 2.0**-48
# Rewards vary by at least and at most this much in the unit they are learned in: variances are their squares.
LEAST_DEVIATION, LARGEST_DEVIATION = 2.0**-200, 2.0**400


@dataclass(frozen=True)
class RewardUnits:
    """Bounds within which rewards count, and the unit in which they are learned.

    A least-squares fit weighs deviations by their squares. If a handful of n rewards hold most of the squares, neither
    the mean nor the variance can be estimated, and the other rewards hardly count. Tails are heavy then: the standard
    deviation is more than log n times the robust one, by deciles, and that because of log n rewards alone. For normal
    and exponential rewards this does not happen; for Cauchy ones it does as n grows. Rewards then count up to log n
    robust standard deviations from the median, where they are still the largest or the smallest. Where half of the
    rewards are equal but for rounding, as those of rare clicks, there is no scale to compare with and all count as they
    are; so do rare rewards once there are more than a handful.

    Where no tail is heavy, the bounds are √n times the largest deviation so far, which a tail with a finite variance
    passes once in n times as many rewards.

    Attributes:
        low: rewards below count as this.
        high: rewards above count as this.
        unit: a power of two; 1 unless the squares of rewards would underflow.
    """

    low: float = -math.inf
    high: float = math.inf
    unit: float = 1.0

    @classmethod
    def of(cls, rewards: FloatArray, unit: float = 1.0) -> RewardUnits:
        """Return the units of the rewards (n,) seen so far; with another unit than before only if it must be."""
        low, lower, middle, upper, high = np.quantile(rewards, (0.1, 0.25, 0.5, 0.75, 0.9)).tolist()
        deviations = np.abs(rewards - middle)
        largest = float(deviations.max())
        if not largest:
            return cls(unit=unit)
        count, bound = len(rewards), math.inf
        if count >= FEWEST:
            robust = (high - low) / NORMAL_DECILES
            are_spread = upper - lower > ROUNDING * max(abs(lower), abs(upper))
            is_heavy = are_spread and _is_heavy(deviations, robust)
            bound = math.log(count) * robust if is_heavy else math.sqrt(count) * largest
        extent = min(largest, bound)
        if not LEAST_DEVIATION <= extent / unit <= LARGEST_DEVIATION:
            unit = 1.0 if extent >= LEAST_DEVIATION else math.ldexp(1.0, math.frexp(extent)[1])
        return cls(middle - bound, middle + bound, unit)

    def bounded(self, rewards: Rewards) -> Rewards:
        """Return what of rewards counts, in the units of the data."""
        if isinstance(rewards, float):
            return min(max(rewards, self.low), self.high)
        return np.clip(rewards, self.low, self.high)


def _is_heavy(deviations: FloatArray, robust: float) -> bool:
    """Return whether a handful of deviations hide the others, given their robust standard deviation."""
    with np.errstate(over="ignore"):
        # far beyond, so that the sum of their squares stays finite
        squares = np.minimum(deviations / robust, 1e100) ** 2
    few = math.log(len(deviations))
    total = float(squares.sum())
    if total <= few**2 * len(squares):
        return False
    top = np.partition(squares, -math.ceil(few))[-math.ceil(few) :]
    return float(top.sum()) > DOMINANT_SHARE * total
