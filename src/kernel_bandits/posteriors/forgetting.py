"""How observations are forgotten: by falling weights, a window, a kernel in time, or after a change."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.errors import InputError
from kernel_bandits.learning.defaults import TOLERATED_SHIFT as TOLERATED
from kernel_bandits.posteriors.changes import Cusum

# An observation leaves after this many half-lives, when its weight has fallen below 1 %.
HALF_LIVES = 7
# Weights are brought up to date this many times in a half-life or a window.
RENEWALS = 8


class Forgetting(ABC):
    """How observations lose their weight as they age, in rounds.

    Weights fall in steps: every ``step`` rounds the posterior is rebuilt from what is left, in one pass of matrix
    products, O(n·m²) for n observations in memory. That is O(m²) a round, since n is a fixed multiple of the step. The
    anchors are then chosen anew from what is left, so that those whose mass has faded leave.
    """

    @property
    @abstractmethod
    def memory(self) -> int:
        """The age at which an observation leaves."""

    @property
    @abstractmethod
    def step(self) -> int:
        """After how many rounds weights are brought up to date."""

    @abstractmethod
    def weights(self, ages: FloatArray) -> FloatArray | None:
        """The weights of observations of these ages, shape (n,); None for 1 each."""

    @property
    def time_half_life(self) -> float | None:
        """Of the kernel in time, if there is one."""
        return None

    def detector(self) -> Cusum | None:
        """Return a test that has seen nothing yet, where observations leave once rewards have changed."""
        return None


@dataclass(frozen=True)
class _ByHalfLife(Forgetting):
    """What rules with a half-life share.

    Attributes:
        half_life: in rounds.
    """

    half_life: float

    def __post_init__(self) -> None:
        as_positive("half_life", self.half_life)

    @property
    def memory(self) -> int:
        return max(2, round(HALF_LIVES * self.half_life))

    @property
    def step(self) -> int:
        return max(1, round(self.half_life / RENEWALS))


@dataclass(frozen=True)
class Discount(_ByHalfLife):
    """Weights that fall by half every ``half_life`` rounds, as in the weighted GP-UCB of Deng et al. (2022).

    Args:
        half_life: in rounds.
    """

    def weights(self, ages: FloatArray) -> FloatArray:
        return np.exp2(-ages / self.half_life)


@dataclass(frozen=True)
class Window(Forgetting):
    """Only the last rounds count: at least ``size`` of them, and at most an eighth more.

    Args:
        size: in rounds.
    """

    size: int

    def __post_init__(self) -> None:
        as_count("size", self.size)

    @property
    def memory(self) -> int:
        return self.size

    @property
    def step(self) -> int:
        return max(1, self.size // RENEWALS)

    def weights(self, ages: FloatArray) -> None:
        del ages


@dataclass(frozen=True)
class Wander(_ByHalfLife):
    """A kernel in time: the expected rewards wander, and keep half of their correlation over ``half_life`` rounds.

    Unlike weights it widens the bounds of what was not played for long, so that old actions are tried again.

    Args:
        half_life: in rounds.
    """

    def weights(self, ages: FloatArray) -> None:
        del ages

    @property
    def time_half_life(self) -> float:
        return self.half_life


@dataclass(frozen=True)
class Restart(Forgetting):
    """Everything counts until rewards leave their predictions; then everything before the change is forgotten.

    While nothing changes nothing is lost. The test is a CUSUM test of the standardised residuals. It sees a shift of
    one standard deviation after about 2·``limit`` rounds.

    Args:
        limit: of the test. Rewards of a model that holds pass 12 once in about 700,000 rounds, 8 once in about 10,000.
        tolerated: shifts below this many standard deviations are no change.
    """

    limit: float = 12.0
    tolerated: float = TOLERATED

    def __post_init__(self) -> None:
        as_positive("limit", self.limit)
        as_positive("tolerated", self.tolerated)

    @property
    def memory(self) -> int:
        return sys.maxsize

    @property
    def step(self) -> int:
        return sys.maxsize

    def weights(self, ages: FloatArray) -> None:
        del ages

    def detector(self) -> Cusum:
        return Cusum(self.tolerated, self.limit)


def require_forgetting(value: object) -> Forgetting:
    """Return what a ``forgetting=`` argument asks for, or raise."""
    if not isinstance(value, Forgetting):
        raise InputError(
            f"forgetting: expected Discount(half_life), Window(size), Wander(half_life) or Restart(), got {value!r}; "
            "for instance forgetting=kernel_bandits.Discount(half_life=500)."
        )
    return value
