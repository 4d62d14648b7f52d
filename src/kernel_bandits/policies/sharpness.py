"""How sharply the probability of an action falls with its gap: the γ of inverse-gap weighting."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from kernel_bandits.arrays import as_positive
from kernel_bandits.posteriors.base import Posterior


class Sharpness(ABC):
    """Returns γ, in units of one over the reward."""

    @abstractmethod
    def value(self, posterior: Posterior[Any], number_of_actions: float) -> float:
        """Return γ for the next round, at least 0, with A actions on offer."""


@dataclass(frozen=True)
class InformationSharpness(Sharpness):
    """γ = c·√(A·t/(λ·log det(I + K/λ))): what Foster & Rakhlin (2020) ask for, from what the model has learned.

    Their γ is of the order √(A·t/R), where R bounds the squared errors of the predictions so far, Σ(μ_i − f)². For a
    kernel ridge regression R is about λ·log det(I + K_t/λ), which every posterior tracks. The product has the units of
    squared rewards, so the schedule needs no horizon and no scale.

    Args:
        scale: c; √8 minimises the bound. The default was chosen on the paper's environments, where less exploration
            pays.
    """

    scale: float = 8.0

    def __post_init__(self) -> None:
        as_positive("scale", self.scale)

    def value(self, posterior: Posterior[Any], number_of_actions: float) -> float:
        squared_errors = posterior.regularization * posterior.log_determinant
        if squared_errors <= 0.0:
            return 0.0
        return self.scale * math.sqrt(number_of_actions * posterior.round_index / squared_errors) / posterior.unit


@dataclass(frozen=True)
class PowerSharpness(Sharpness):
    """γ = c·t^p, by hand; p = 0 for a constant, ½ for the rate of the theory.

    Args:
        scale: c, in units of one over the reward.
        power: p, at least 0.
    """

    scale: float
    power: float = 0.5

    def __post_init__(self) -> None:
        as_positive("scale", self.scale)
        if self.power:
            as_positive("power", self.power)

    def value(self, posterior: Posterior[Any], number_of_actions: float) -> float:
        del number_of_actions  # its share is in the scale
        return self.scale * posterior.round_index**self.power
