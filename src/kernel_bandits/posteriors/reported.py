"""What every posterior reports of itself, as attributes that nobody can set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import attrgetter
from typing import Any

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import KernelLike
from kernel_bandits.posteriors.facts import Approximation, Facts, KernelChange
from kernel_bandits.posteriors.pending import Carrier


def _fact(path: str) -> Any:
    """Return a read-only attribute, looked up in C.

    A Python function for each would cost some percent of a short round.
    """
    return property(attrgetter(path))


class Reported(ABC):
    """The facts of a posterior, and those of the regression that carries it.

    Args:
        facts: what the posterior counts; it changes them in place.
        pending: the regression that carries it, with what is awaited.
    """

    kernel: KernelLike = _fact("_facts.kernel")
    """The covariance function."""
    regularization: float = _fact("_facts.regularization")
    """The λ of the ridge; the noise variance in the Gaussian-process view."""
    approximation: Approximation = _fact("_facts.approximation")
    """What the posterior replaces the kernel's feature space by; decides which radii are valid."""
    dimension: int | None = _fact("_facts.dimension")
    """d, the number of columns of a point; None before the first."""
    round_index: int = _fact("_facts.round_index")
    """t, how many observations were learned."""
    residual_trace: float = _fact("_facts.residual_trace")
    """ρ = Σ ‖(I − P)k(s_i, ·)‖², what the anchors leave unexplained of the past; 0 if exact."""
    prior_mean: float = _fact("_facts.prior_mean")
    """The expected reward where nothing is known; 0 unless it is learned."""
    kernel_changes: tuple[KernelChange, ...] = _fact("_facts.kernel_changes")
    """How the kernel has changed so far; empty unless it is learned."""
    trusted_since: int = _fact("_facts.trusted_since")
    """The first observation that still counts: a learned model drops what came before rewards fell short of it."""
    failed_refits: int = _fact("_facts.failed_refits")
    """How often a kernel could not be learned, so that the one before stayed."""
    dictionary_size: int = _fact("_pending.settled.size")
    """How many anchors, points or features carry the posterior: m."""
    log_determinant: float = _fact("_pending.settled.log_determinant")
    """The log det(I + K/λ) of the (projected) Gram matrix of the observed points."""
    effective_dimension: float = _fact("_pending.settled.effective_dimension")
    """Trace K(K + λI)⁻¹ of the (projected) Gram matrix of the observed points (Definition 3.1)."""
    drift: float = _fact("_pending.settled.drift")
    """How far the tracked inverse was from the true one when it was last checked, relative; 0 without one."""
    bonus: float = _fact("_facts.bonus")
    """How many standard deviations an upper bound should lie above the mean; 1 unless it is learned."""
    shape: int = _fact("_facts.shape")
    """What rewards in a box show of the settings: nothing, a plane or more (:mod:`kernel_bandits.learning.mixed`)."""
    unit: float = _fact("_facts.unit")
    """The unit of rewards which the kernel, λ and covariances are in; 1 unless their squares would underflow."""
    falls_back: bool = False
    """Whether rewards that stay below what was predicted of them end the trust in what was learned before."""
    learns_kernel: bool = False
    """Whether the kernel is learned from the rewards; radii with a guarantee do not hold then."""

    def __init__(self, facts: Facts, pending: Carrier) -> None:
        self._facts = facts
        self._pending = pending

    @property
    def information_gain(self) -> float:
        """½·log det(I + K/λ) of the (projected) Gram matrix."""
        return 0.5 * self.log_determinant

    def awaited_point(self, key: int) -> FloatArray:
        """The point (d,) whose reward is awaited under a key."""
        return self._pending.awaited[key].point

    @property
    def awaited_points(self) -> dict[int, FloatArray]:
        """The points (d,) whose reward is awaited, by key, oldest first."""
        return {key: awaited.point for key, awaited in self._pending.awaited.items()}

    @property
    def awaited_count(self) -> int:
        """The number of points whose reward is awaited."""
        return len(self._pending.awaited)

    @property
    def observed_points(self) -> FloatArray:
        """Every observed point in order, shape (t, d), where the history is kept."""
        return self._observations()[0]

    @property
    def observed_rewards(self) -> FloatArray:
        """Every observed reward in order, shape (t,), where the history is kept."""
        return self._observations()[1]

    @abstractmethod
    def _observations(self) -> tuple[FloatArray, FloatArray]:
        """Return every observed point (t, d) and reward (t,) in order, or an error where the history is not kept."""

    @property
    @abstractmethod
    def dictionary_points(self) -> FloatArray:
        """The anchors that carry the posterior, shape (m, d)."""
