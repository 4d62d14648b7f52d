"""Rewards against what was predicted of them: does the model still hold?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias

from kernel_bandits.arrays import FloatArray
from kernel_bandits.learning.defaults import FIRST_TESTED_ROUND as FIRST_TESTED
from kernel_bandits.learning.defaults import TOLERATED_SHIFT as TOLERATED
from kernel_bandits.posteriors.base import Facts
from kernel_bandits.posteriors.drift import (
    next_mean_square,
    next_statistics,
    residual,
    residuals,
)

# With this limit of the CUSUM test a stream of standard normals alarms once in about 10,000 rounds (Siegmund 1985).
LIMIT = 8.0
# A warning ends after this many rewards without another alarm. A shift that stays raises one sooner from 1.25 standard
# deviations on; one of 1.0 is warned of in 98 % of all rounds, and one of 0.8 in 86 %.
CALM = 64
# A reward that is about to be learned, the mean and std predicted of it, λ and its unit, t, and how often the kernel
# has changed.
Predicted: TypeAlias = tuple[float, float, float, float, float, int, int]
# Rewards wait until this many are compared with their predictions at once, which costs a third of one by one.
TOGETHER = 64


@dataclass(frozen=True, slots=True)
class Residuals:
    """Standardised residuals z = (reward − mean)/√(std² + λ) of the rewards as they came.

    The test measures them in units of their own scale where it is above 1: a model that has just been fitted may be too
    sure of itself, which is no change of the process.

    Attributes:
        count: how many there were.
        mean_square: the running mean of z², near 1 for a model that holds.
        above: the CUSUM statistic of rewards above what was predicted.
        below: the same below.
        changed_at: the observation at which a change was seen last; None if none was.
        shifted_up: whether rewards were larger than predicted then.
        kernel_changes: how often the kernel had changed.
        calm: rewards since a change was seen last.
    """

    count: int = 0
    mean_square: float = 1.0
    above: float = 0.0
    below: float = 0.0
    changed_at: int | None = None
    shifted_up: bool = False
    kernel_changes: int = 0
    calm: int = 0

    def after(self, predicted: Iterable[Predicted]) -> Residuals:
        """Return these with further rewards, oldest first, and what was predicted of them."""
        return self._after(
            (residual(reward, mean, std, regularization, unit), round_index, kernel_changes)
            for reward, mean, std, regularization, unit, round_index, kernel_changes in predicted
        )

    def after_many(self, rewards: FloatArray, means: FloatArray, stds: FloatArray, facts: Facts) -> Residuals:
        """Return these with rewards (n,) that a posterior with such facts is about to learn one after the other."""
        found = residuals(rewards, means, stds, facts.regularization, facts.unit).tolist()
        rounds = range(facts.round_index, facts.round_index + len(found))
        return self._after(zip(found, rounds, repeat(len(facts.kernel_changes)), strict=False))

    def _after(self, found: Iterable[tuple[float, int, int]]) -> Residuals:
        """Return these with further residuals, each with t and how often the kernel has changed."""
        count, square, above, below = self.count, self.mean_square, self.above, self.below
        changed_at, shifted_up, changes, calm = self.changed_at, self.shifted_up, self.kernel_changes, self.calm
        for z, round_index, kernel_changes in found:
            if kernel_changes != changes:
                above, below, changes = 0.0, 0.0, kernel_changes
            if round_index < FIRST_TESTED:
                continue
            square = next_mean_square(square, count, z)
            above, below = next_statistics(above, below, z / math.sqrt(square) if square > 1.0 else z, TOLERATED)
            count += 1
            calm += 1
            if above > LIMIT or below > LIMIT:
                changed_at, shifted_up, above, below, calm = round_index, above > below, 0.0, 0.0, 0
        return Residuals(count, square, above, below, changed_at, shifted_up, changes, calm)

    def warning(self, advice: str) -> str | None:
        """Return in words what has changed, and what to do; None if nothing has, or if that is long past."""
        if self.changed_at is None or self.calm >= CALM:
            return None
        return (
            f"rewards around observation {self.changed_at} were {'above' if self.shifted_up else 'below'} what was "
            f"predicted of them for longer than chance explains: the process seems to have changed; {advice}."
        )
