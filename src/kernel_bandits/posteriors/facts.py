"""What posteriors report: predictions, evaluations, changes of kernel, and the numbers it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.commit import Steps
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, as_kernel
from kernel_bandits.learning.mixed import CURVED

Approximation: TypeAlias = Literal["exact", "projected", "history-free", "random features"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected rewards and their posterior standard deviations, arrays of length A in the units of the reward."""

    mean: FloatArray
    std: FloatArray


@dataclass(slots=True)
class Evaluation:
    """A prediction at A points together with what the posterior computed on the way, for an update to use.

    Attributes:
        round_index: how many observations the posterior held; an evaluation is good until the next one, or until a
            point is anticipated or abandoned.
        mean: expected rewards, shape (A,).
        std: posterior standard deviations, shape (A,).
    """

    round_index: int
    mean: FloatArray
    std: FloatArray


class Fulfilled(NamedTuple):
    """Rewards that are learned together.

    Attributes:
        steps: learn them.
        means: what was expected of each after those before it, shape (n,).
        stds: the standard deviations of these expectations, shape (n,).
    """

    steps: Steps
    means: FloatArray
    stds: FloatArray


@dataclass(frozen=True)
class KernelChange:
    """A change of kernel.

    Attributes:
        round_index: t, after how many observations.
        kernel: from then on, output variance included.
        regularization: λ from then on, the noise variance.
        prior_mean: the expected reward where nothing is known, from then on.
        evidence_gained: log evidence of the kernel less that of the one before on the same sample, in nats; infinite
            for the first if none was given.
        relative_lengthscales: of each column, context columns first, over the spread of what was played in it (√12
            standard deviations, the width of an interval of uniform values). A column at 10 or more hardly matters to
            the reward; infinite if it never varied.
        shares: of the variance of the rewards, by part: noise, constant, linear, smooth, and of single actions if they
            return; empty unless they are learned.
        arm_correlation: of what two named arms earn in one context; 0 where arms share nothing.
    """

    round_index: int
    kernel: KernelLike
    regularization: float
    prior_mean: float
    evidence_gained: float
    relative_lengthscales: tuple[float, ...]
    shares: tuple[tuple[str, float], ...] = ()
    arm_correlation: float = 0.0


@dataclass(slots=True)
class Facts:
    """What a posterior counts, in one place; a posterior around another shows the facts of the one within.

    Attributes:
        kernel: the covariance function, ours or scikit-learn's.
        regularization: λ.
        approximation: of the kernel's feature space.
        dimension: d, or None before the first point.
        round_index: t.
        residual_trace: ρ.
        prior_mean: what is taken off rewards before the regression learns them.
        kernel_changes: how the kernel came to be.
        bonus: how many standard deviations an upper bound should lie above the mean.
        unit: that of rewards which the kernel, λ and covariances are in; 1 unless their squares would underflow.
        shape: what rewards in a box show of the settings, as of :mod:`kernel_bandits.learning.mixed`.
        is_provisional: whether rewards are still too few to learn more of them than their level and spread.
        trusted_since: observations before this one count for nothing, since rewards fell below what was predicted.
        failed_refits: how often a kernel could not be learned.
        failed_round: in which round the last time.
        failure: why, the last time.
    """

    kernel: KernelLike
    regularization: float
    approximation: Approximation
    dimension: int | None = None
    round_index: int = 0
    residual_trace: float = 0.0
    prior_mean: float = 0.0
    kernel_changes: tuple[KernelChange, ...] = ()
    bonus: float = 1.0
    unit: float = 1.0
    shape: int = CURVED
    is_provisional: bool = False
    trusted_since: int = 0
    failed_refits: int = 0
    failed_round: int = 0
    failure: str = ""

    def __post_init__(self) -> None:
        self.kernel = as_kernel(self.kernel)
        self.regularization = as_positive("regularization", self.regularization)

    def count_steps(self, dimension: int, observations: int = 1) -> Steps:
        """Return the steps that count observations of points with this number of columns."""
        return [(self.store, self.residual_trace, dimension, self.round_index + observations)]

    def store(self, residual_trace: float, dimension: int, round_index: int) -> None:
        """Write what an observation changes; may be repeated."""
        self.residual_trace, self.dimension, self.round_index = residual_trace, dimension, round_index

    def count_failure(self, round_index: int, reason: Exception) -> None:
        """Take note of a kernel that could not be learned, in facts that nobody else holds."""
        self.failed_refits, self.failed_round, self.failure = self.failed_refits + 1, round_index, str(reason)

    def take_failures(self, other: Self) -> None:
        """Go on with the failures of a posterior that this one replaces."""
        self.failed_refits, self.failed_round, self.failure = other.failed_refits, other.failed_round, other.failure


def require_finite_kernel(kernel: KernelLike, values: FloatArray) -> None:
    """Raise unless what was computed from a kernel is finite."""
    if not np.isfinite(values).all():
        raise InputError(
            f"kernel: {kernel!r} returned values that are not finite at the given points; "
            "check the kernel and the scale of the data."
        )
