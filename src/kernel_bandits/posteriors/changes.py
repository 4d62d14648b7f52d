"""Detect when rewards leave their predictions for good, and since when."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.learning.defaults import LARGEST_RESIDUAL as LARGEST
from kernel_bandits.learning.defaults import RESIDUAL_COUNT as FULL
from kernel_bandits.learning.defaults import RESIDUAL_SHARE as SHARE


def residual(reward: float, mean: float, std: float, variance: float, unit: float) -> float:
    """Return z = (reward − mean)/√(std² + λ) with λ = variance·unit², within ±``LARGEST_RESIDUAL``."""
    # the square of a tiny unit is 0
    z = (reward - mean) / unit / math.sqrt((std / unit) ** 2 + variance)
    # written out, here and below, since every reward passes: max and min take several times as long
    return z if -LARGEST <= z <= LARGEST else LARGEST if z > LARGEST else -LARGEST


def residuals(rewards: FloatArray, means: FloatArray, stds: FloatArray, variance: float, unit: float) -> FloatArray:
    """Return the :func:`residual` of each of n rewards, shape (n,)."""
    z = (rewards - means) / unit / np.sqrt((stds / unit) ** 2 + variance)
    return np.where(z >= -LARGEST, np.minimum(z, LARGEST), -LARGEST)


def next_statistics(above: float, below: float, z: float, tolerated: float) -> tuple[float, float]:
    """Return the two statistics of a CUSUM test (Page 1954) after one more residual."""
    above, below = above + z - tolerated, below - z - tolerated
    return above if above > 0.0 else 0.0, below if below > 0.0 else 0.0


def next_mean_square(mean_square: float, count: int, z: float) -> float:
    """Return the running mean of z² after one more residual, given how many there were; it starts at 1."""
    return mean_square + (SHARE if count > FULL else max(SHARE, 1.0 / (count + 2))) * (z * z - mean_square)


@dataclass(frozen=True)
class Cusum:
    """Two-sided CUSUM test of standardised residuals; frozen, so that a failed update changes nothing.

    It measures residuals in units of their own scale where that is above 1, and begins again when the kernel has
    changed: a kernel that was learned from few rewards is too sure of itself, which is no change of the process.

    Attributes:
        tolerated: shifts below this many standard deviations are no change.
        limit: of the statistics.
        above: the statistic of rewards above what was predicted.
        below: the same below.
        above_since: the round after which the statistic has been positive, where a change would have been.
        below_since: the same of the other.
        count: how many residuals there were.
        mean_square: the running mean of z².
        kernel_changes: how often the kernel had changed.
    """

    tolerated: float
    limit: float
    above: float = 0.0
    below: float = 0.0
    above_since: int = 0
    below_since: int = 0
    count: int = 0
    mean_square: float = 1.0
    kernel_changes: int = 0

    def after(self, z: float, time: int, kernel_changes: int = 0) -> Cusum:
        """Return the test with one more :func:`residual`.

        Args:
            z: the residual.
            time: of its decision, in rounds.
            kernel_changes: how often the kernel has changed.
        """
        mean_square = next_mean_square(self.mean_square, self.count, z)
        before = self if kernel_changes == self.kernel_changes else self.anew(time)
        scaled = z / math.sqrt(mean_square) if mean_square > 1.0 else z
        above, below = next_statistics(before.above, before.below, scaled, self.tolerated)
        return Cusum(
            self.tolerated,
            self.limit,
            above,
            below,
            before.above_since if above else time + 1,
            before.below_since if below else time + 1,
            self.count + 1,
            mean_square,
            kernel_changes,
        )

    @property
    def changed_at(self) -> int | None:
        """The round of the change; None if there was none."""
        if max(self.above, self.below) <= self.limit:
            return None
        return self.above_since if self.above > self.below else self.below_since

    def anew(self, time: int) -> Cusum:
        """Return a test that has seen no shift yet, of residuals of the same scale."""
        return replace(self, above=0.0, below=0.0, above_since=time, below_since=time)
