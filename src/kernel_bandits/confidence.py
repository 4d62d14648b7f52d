"""Radii of the confidence set: how many of the paper's σ the upper bound lies above the mean.

A radius object answers the paper's β for a posterior; the bonus of an action is β·std/√λ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from kernel_bandits.arrays import InputError
from kernel_bandits.posteriors.base import Posterior


class Confidence(ABC):
    """A rule for the radius β of the confidence set."""

    @abstractmethod
    def radius(self, posterior: Posterior[Any]) -> float:
        """The paper's β for the next round; enters the upper bound linearly, as β·std/√λ."""


@dataclass(frozen=True)
class ConstantRadius(Confidence):
    """β = value at every round, the paper's practice (it used 0.1)."""

    value: float

    def __post_init__(self) -> None:
        _require_non_negative("value", self.value)

    def radius(self, posterior: Posterior[Any]) -> float:  # noqa: ARG002 (the same for every posterior)
        return self.value


@dataclass(frozen=True)
class StandardDeviations(Confidence):
    """β = number·√λ: the bonus is ``number`` Gaussian-process standard deviations, whatever λ.

    The default of every policy, with number = 1: the setting that works on all environments here.
    """

    number: float = 1.0

    def __post_init__(self) -> None:
        _require_non_negative("number", self.number)

    def radius(self, posterior: Posterior[Any]) -> float:
        return self.number * math.sqrt(posterior.regularization)


def _require_non_negative(name: str, value: float) -> None:
    if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
        raise InputError(f"{name}: expected a finite number of at least 0, got {value!r}.")
