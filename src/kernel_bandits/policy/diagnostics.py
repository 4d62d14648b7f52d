"""The state of a policy in numbers to watch, and rewards against what was predicted of them: does the model hold?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernel_bandits.drift import Cusum, ForgettingPosterior, residual
from kernel_bandits.kernels import KernelLike
from kernel_bandits.learning.defaults import CHANGE_LIMIT, FIRST_TESTED_ROUND, RESIDUAL_COUNT, TOLERATED_SHIFT
from kernel_bandits.posterior.base import KernelChange, Posterior
from kernel_bandits.posterior.nystrom import NystromPosterior

# A warning ends after this many rewards without another alarm.
CALM = 64
_FRESH = Cusum(TOLERATED_SHIFT, CHANGE_LIMIT)
# A dictionary that holds this share of so many observations or more costs 2 to 4 times as much per round as all of them
# would; before that a round takes well below a millisecond.
CROWDED_SHARE, CROWDED_ROUNDS = 0.8, 500
# From z² = 2 on, a model is too sure of itself.
SURPRISED = math.sqrt(2.0)
# A reward that is about to be learned, the mean and std predicted of it, λ, t, and how often the kernel has changed.
Predicted: TypeAlias = tuple[float, float, float, float, int, int]
# Rewards wait until this many are compared with their predictions at once, which costs a third of one by one.
TOGETHER = 64


@dataclass(frozen=True, slots=True)
class Residuals:
    """Standardised residuals z = (reward − mean)/√(std² + λ) of the rewards, in the order in which they are learned.

    The test is that of :class:`~kernel_bandits.Restart`, which acts where this warns.

    Attributes:
        test: of the residuals so far.
        changed_at: the observation from which on rewards were not as predicted; None if they always were.
        shifted_up: whether rewards were larger than predicted then.
        calm: rewards since a change was seen last.
    """

    test: Cusum = _FRESH
    changed_at: int | None = None
    shifted_up: bool = False
    calm: int = 0

    def after(self, predicted: Iterable[Predicted]) -> Residuals:
        """Return these with further rewards, oldest first, and what was predicted of them."""
        test, changed_at, shifted_up, calm = self.test, self.changed_at, self.shifted_up, self.calm
        for reward, mean, std, regularization, round_index, kernel_changes in predicted:
            if round_index < FIRST_TESTED_ROUND:
                continue
            z = residual(reward, mean, std, regularization)
            test, calm = test.after(z, round_index, kernel_changes), calm + 1
            if test.changed_at is not None:
                changed_at, shifted_up, calm = test.changed_at, test.above > test.below, 0
                test = test.anew(round_index + 1)
        return Residuals(test, changed_at, shifted_up, calm)

    def warning(self, advice: str) -> str | None:
        """Return in words what has changed, and what to do; None if nothing has, or if that is long past."""
        if self.changed_at is None or self.calm >= CALM:
            return None
        side = "above" if self.shifted_up else "below"
        return (
            f"rewards from observation {self.changed_at:.0f} on were {side} what was predicted"
            f" of them for longer than chance explains: the process seems to have changed; {advice}."
        )


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """The state of a policy; sums over its models where it has several.

    Attributes:
        observations: the number of rewards learned.
        pending: the number of decisions of ``ask`` that await their reward.
        dictionary_size: m, the number of points or features that carry the model.
        effective_dimension: trace K(K + λI)⁻¹ of the (projected) Gram matrix: the number of directions the data fill.
        information_gain: ½·log det(I + K/λ) of the (projected) Gram matrix, in nats.
        residual: ρ = Σ k(s, s) − ‖φ(s)‖² over the observed points, the part outside the span of the anchors.
        drift: the relative error of the tracked inverse when last checked; beyond 1e-8 it is recomputed.
        memory_bytes: of all arrays the policy holds, its history included.
        kernel: the one in use, output variance included; None without a model.
        regularization: the λ in use, the noise variance; None without a model.
        prior_mean: the expected reward far from all data; 0 unless it is learned.
        kernel_changes: the rounds at which a learned kernel changed, the evidence gained each time, and the
            lengthscales relative to the spread of their columns, which show the columns that matter.
        residual_mean_square: the running mean of z², with z = (reward − mean)/√(std² + λ) of each reward before it was
            learned: near 1 if the model holds, above it if rewards surprise. 1 before there are enough.
        failed_refits: how often a kernel could not be learned, so that the one before stayed.
        warnings: in words, what has gone wrong: a process that has changed, a kernel that cannot be learned, or a
            dictionary that is no smaller than the history.
    """

    observations: int
    pending: int
    dictionary_size: int
    effective_dimension: float
    information_gain: float
    residual: float
    drift: float
    memory_bytes: int
    kernel: KernelLike | None
    regularization: float | None
    prior_mean: float
    kernel_changes: tuple[KernelChange, ...]
    residual_mean_square: float = 1.0
    failed_refits: int = 0
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return what most readers ask for, a line each; every number is an attribute."""
        lines = [f"learned: {_count(self.observations, 'reward')}; {_count(self.pending, 'decision')} without one"]
        last = self.kernel_changes[-1] if self.kernel_changes else None
        if last is not None and last.shares:
            shares = dict(last.shares)
            noise = shares.pop("noise", 0.0)
            parts = ", ".join(f"{share:.0%} {name}" for name, share in shares.items())
            lines.append(f"explained: {1.0 - noise:.0%} of how rewards differ ({parts}); the rest is noise")
        lines.append(f"as predicted: {self._surprise()}")
        lines += (f"warning: {warning}" for warning in self.warnings)
        if self.kernel is not None and self.regularization is not None and self.observations:
            lines.append(f"expected where nothing is known: {self.prior_mean:.3g}")
            lines.append(f"noise of one reward: {math.sqrt(self.regularization):.3g} (standard deviation)")
            size = f"{self.dictionary_size} for {self.effective_dimension:.3g} directions in the data"
            lines.append(f"anchors: {size}, {self.memory_bytes / 1e6:.3g} MB in all")
            lines.append(f"kernel: {self.kernel}")
        if last is not None:
            times, gained = len(self.kernel_changes), f"which gained {last.evidence_gained:.3g} nats"
            lines.append(f"kernel learned: {times} times, the last in round {last.round_index}, {gained}")
            if last.arm_correlation:
                lines.append(f"correlation of two arms in one context: {last.arm_correlation:.2f}")
            ratios = ", ".join(f"{ratio:.3g}" for ratio in last.relative_lengthscales)
            lines.append(f"lengthscales over the spread of their columns: {ratios}")
        return "\n".join(lines)

    def _surprise(self) -> str:
        """Return in words how far rewards are from what was predicted of them."""
        if self.observations < FIRST_TESTED_ROUND + RESIDUAL_COUNT or self.kernel is None:
            return "not known yet"
        ratio = math.sqrt(self.residual_mean_square)
        words = "no, a model that is too sure of itself" if ratio > SURPRISED else "yes"
        return f"{words}; errors are {ratio:.2f} times as large as expected"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def diagnose(
    observations: int, pending: int, posteriors: Sequence[Posterior], residuals: Residuals, memory: int
) -> Diagnostics:
    """Return the diagnostics of a policy with these posteriors that has learned this number of rewards."""
    found = (residuals.warning(_advice(posteriors)), *map(_failure, posteriors), *map(_crowding, posteriors))
    # several models share one kernel
    first = next(iter(posteriors), None)
    return Diagnostics(
        observations=observations,
        pending=pending,
        dictionary_size=sum(posterior.dictionary_size for posterior in posteriors),
        effective_dimension=sum((posterior.effective_dimension for posterior in posteriors), 0.0),
        information_gain=sum((posterior.information_gain for posterior in posteriors), 0.0),
        residual=sum((posterior.residual_trace for posterior in posteriors), 0.0),
        drift=max((posterior.drift for posterior in posteriors), default=0.0),
        memory_bytes=memory,
        kernel=None if first is None else first.kernel,
        regularization=None if first is None else first.regularization,
        prior_mean=0.0 if first is None else first.prior_mean,
        kernel_changes=() if first is None else first.kernel_changes,
        residual_mean_square=residuals.test.mean_square,
        failed_refits=sum(posterior.failures.count for posterior in posteriors),
        warnings=tuple(dict.fromkeys(warning for warning in found if warning is not None)),
    )


def _advice(posteriors: Sequence[Posterior]) -> str:
    """Return what to do where rewards are not as predicted."""
    for posterior in posteriors:
        if isinstance(posterior, ForgettingPosterior):
            if posterior.forgetting.detector() is None:
                return "a shorter half-life or window follows it faster"
            return "what came before is dropped"
    return "nothing was dropped; a policy with forgetting=kernel_bandits.Restart() drops what no longer holds"


def crowding(anchors: float, observations: int) -> str | None:
    """Return in words that a dictionary does not pay; None if it does."""
    if observations < CROWDED_ROUNDS or anchors < CROWDED_SHARE * observations:
        return None
    return (
        f"the dictionary is no smaller than the history, {anchors:.0f} anchors for {observations} observations: a "
        "longer lengthscale, a larger λ, or k_ucb makes a round faster."
    )


def _crowding(posterior: Posterior) -> str | None:
    # with a kernel that is learned, nobody has chosen the lengthscale
    is_given = isinstance(posterior, NystromPosterior)
    return crowding(posterior.dictionary_size, posterior.round_index) if is_given else None


def _failure(posterior: Posterior) -> str | None:
    """Return in words how often a kernel could not be learned, and why the last time."""
    failures = posterior.failures
    if not failures.count:
        return None
    times = "once" if failures.count == 1 else f"{failures.count} times"
    return (
        f"the kernel could not be learned {times}, the last time in round {failures.round_index}: {failures.reason} "
        "The kernel before stays; look for columns of extreme values, or pass a kernel."
    )
