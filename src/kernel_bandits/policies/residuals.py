"""Rewards against what was predicted of them: does the model still hold?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kernel_bandits.arrays import FloatArray
from kernel_bandits.posteriors.base import Posterior
from kernel_bandits.posteriors.facts import Evaluation

# Observations before residuals count: fewer are about the prior.
FIRST = 16
# A residual beyond this many standard deviations counts as this many: one outlier is no change.
LARGEST = 3.0
# Two-sided CUSUM test: shifts below half a standard deviation are tolerated, and with the limit a stream of standard
# normals alarms once in about 10,000 rounds (Siegmund 1985).
TOLERATED, LIMIT = 0.5, 8.0
# Share of the newest residual in the running mean of squares.
SHARE = 1.0 / 64.0
# From this many residuals on that is the larger share; before, it is that of a mean of all.
FEW = 62


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

    def after(self, posterior: Posterior[Any], reward: float, evaluation: Evaluation, row: int) -> Residuals:
        """Return these with one more reward, which is about to be learned, and what was predicted of it."""
        count, square, above, below = self.count, self.mean_square, self.above, self.below
        changed_at, up, changes = self.changed_at, self.shifted_up, len(posterior.kernel_changes)
        if changes != self.kernel_changes:
            above = below = 0.0
        round_index, unit = evaluation.round_index, posterior.unit
        if round_index < FIRST:
            return Residuals(count, square, above, below, changed_at, up, changes)
        # comparisons in place of max and min, for every round comes here
        std = evaluation.std.item(row) / unit
        z = (reward - evaluation.mean.item(row)) / unit / math.sqrt(std * std + posterior.regularization)
        if not -LARGEST <= z <= LARGEST:
            z = LARGEST if z > 0.0 else -LARGEST
        square += (SHARE if count > FEW else 1.0 / (count + 2)) * (z * z - square)
        above, below = above + z - TOLERATED, below - z - TOLERATED
        if above > LIMIT or below > LIMIT:
            return Residuals(count + 1, square, 0.0, 0.0, round_index, above > below, changes)
        above, below = above if above > 0.0 else 0.0, below if below > 0.0 else 0.0
        return Residuals(count + 1, square, above, below, changed_at, up, changes)

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
