"""Detect when rewards leave their predictions for good, and since when."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray

# Observations before residuals count: fewer are about the prior.
FIRST_TESTED = 16
# A residual beyond this many standard deviations counts as this many: one outlier is no change.
LARGEST = 3.0
# Shifts below this many standard deviations are no change.
TOLERATED = 0.5


def residual(reward: float, mean: float, std: float, variance: float, unit: float) -> float:
    """Return z = (reward − mean)/√(std² + λ) with λ = variance·unit², within ±``LARGEST``."""
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


@dataclass(frozen=True)
class Cusum:
    """Two-sided CUSUM test of standardised residuals; frozen, so that a failed update changes nothing.

    Attributes:
        tolerated: shifts below this many standard deviations are no change.
        limit: of the statistics.
        above: the statistic of rewards above what was predicted.
        below: the same below.
        above_since: the round after which the statistic has been positive, where a change would have been.
        below_since: the same of the other.
    """

    tolerated: float
    limit: float
    above: float = 0.0
    below: float = 0.0
    above_since: int = 0
    below_since: int = 0

    def after(self, z: float, time: int) -> Cusum:
        """Return the test with one more :func:`residual`, of a decision made at a time in rounds."""
        above, below = next_statistics(self.above, self.below, z, self.tolerated)
        return Cusum(
            self.tolerated,
            self.limit,
            above,
            below,
            self.above_since if above else time + 1,
            self.below_since if below else time + 1,
        )

    @property
    def changed_at(self) -> int | None:
        """The round of the change; None if there was none."""
        if max(self.above, self.below) <= self.limit:
            return None
        return self.above_since if self.above > self.below else self.below_since

    def anew(self, time: int) -> Cusum:
        """Return a test that has seen nothing yet."""
        return Cusum(self.tolerated, self.limit, above_since=time, below_since=time)
