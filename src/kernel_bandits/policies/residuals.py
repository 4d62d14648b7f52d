"""Rewards against what was predicted of them: does the model still hold?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kernel_bandits.arrays import FloatArray
from kernel_bandits.posteriors.base import Posterior

# Observations before residuals count: fewer are about the prior.
FIRST = 16
# A residual beyond this many standard deviations counts as this many: one outlier is no change.
LARGEST = 3.0
# Two-sided CUSUM test: shifts below half a standard deviation are tolerated, and with the limit a stream of standard
# normals alarms once in about 10,000 rounds (Siegmund 1985).
TOLERATED, LIMIT = 0.5, 8.0
# Share of the newest residual in the running mean of squares.
SHARE = 1.0 / 64.0


@dataclass(slots=True)
class Residuals:
    """Standardised residuals z = (reward − mean)/√(std² + λ) of the rewards as they came; never written to.

    One is made in every round, and a frozen one takes three times as long.

    Attributes:
        count: how many there were.
        mean_square: the running mean of z², near 1 for a model that holds.
        above: the CUSUM statistic of rewards above what was predicted.
        below: the same below.
        changed_at: the observation at which a change was seen last; None if none was.
        shifted_up: whether rewards were larger than predicted then.
        kernel_changes: how often the kernel had changed.
    """

    count: int = 0
    mean_square: float = 1.0
    above: float = 0.0
    below: float = 0.0
    changed_at: int | None = None
    shifted_up: bool = False
    kernel_changes: int = 0

    def after(self, posterior: Posterior[Any], reward: float, mean: float, std: float) -> Residuals:
        """Return these with one more reward, which is about to be learned, and what was predicted of it."""
        above, below, changes = self.above, self.below, len(posterior.kernel_changes)
        if changes != self.kernel_changes:
            above = below = 0.0
        if posterior.round_index < FIRST:
            return Residuals(self.count, self.mean_square, above, below, self.changed_at, self.shifted_up, changes)
        std /= posterior.unit
        z = (reward - mean) / posterior.unit / math.sqrt(std * std + posterior.regularization)
        z = max(-LARGEST, min(z, LARGEST))
        mean_square = self.mean_square + max(SHARE, 1.0 / (self.count + 2)) * (z * z - self.mean_square)
        above, below = max(0.0, above + z - TOLERATED), max(0.0, below - z - TOLERATED)
        if max(above, below) <= LIMIT:
            return Residuals(self.count + 1, mean_square, above, below, self.changed_at, self.shifted_up, changes)
        return Residuals(self.count + 1, mean_square, 0.0, 0.0, posterior.round_index, above > below, changes)

    def warning(self, forgets: bool) -> str | None:
        """Return in words what has changed; None if nothing has."""
        if self.changed_at is None:
            return None
        advice = (
            "a shorter half-life or window follows it faster"
            if forgets
            else ("if it was no single event, pass forgetting=kernel_bandits.Discount(half_life=…)")
        )
        return (
            f"rewards around observation {self.changed_at} were {'above' if self.shifted_up else 'below'} what was "
            f"predicted of them for too long to be chance: the process has changed; {advice}."
        )


def standardised(rewards: FloatArray, means: FloatArray, stds: FloatArray, regularization: float) -> FloatArray:
    """Return z = (reward − mean)/√(std² + λ) for each of n predictions, shape (n,)."""
    result: FloatArray = (rewards - means) / (stds**2 + regularization) ** 0.5
    return result
