"""The state of a policy in numbers to watch, and rewards against what was predicted of them: does the model hold?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from kernel_bandits.kernels import KernelLike
from kernel_bandits.learning.defaults import FIRST_TESTED_ROUND, TOLERATED_SHIFT
from kernel_bandits.posterior.base import KernelChange, Posterior
from kernel_bandits.posterior.drift import ForgettingPosterior, next_mean_square, next_statistics, residual
from kernel_bandits.posterior.nystrom import NystromPosterior

# With this limit of the CUSUM test a stream of standard normals alarms once in about 10,000 rounds (Siegmund 1985).
LIMIT = 8.0
# A warning ends after this many rewards without another alarm. A shift that stays raises one sooner from 1.25 standard
# deviations on; one of 1.0 is warned of in 98 % of all rounds, and one of 0.8 in 86 %.
CALM = 64
# A dictionary that holds this share of so many observations or more costs 2 to 4 times as much per round as all of them
# would; before that a round takes well below a millisecond.
CROWDED_SHARE, CROWDED_ROUNDS = 0.8, 500
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
        count, square, above, below = self.count, self.mean_square, self.above, self.below
        changed_at, shifted_up, changes, calm = self.changed_at, self.shifted_up, self.kernel_changes, self.calm
        for reward, mean, std, regularization, unit, round_index, kernel_changes in predicted:
            z = residual(reward, mean, std, regularization, unit)
            if kernel_changes != changes:
                above, below, changes = 0.0, 0.0, kernel_changes
            if round_index < FIRST_TESTED_ROUND:
                continue
            square = next_mean_square(square, count, z)
            above, below = next_statistics(above, below, z / math.sqrt(square) if square > 1.0 else z, TOLERATED_SHIFT)
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
        trusted_since: the first observation that still counts. It is 0 unless rewards stayed below what a learned model
            predicted of them, so that what came before was dropped.
        failed_refits: how often a kernel could not be learned, so that the one before stayed.
        warnings: in words, what has gone wrong: a process that has changed, what was dropped, a kernel that cannot be
            learned, a dictionary that is no smaller than the history.
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
    trusted_since: int = 0
    failed_refits: int = 0
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line for each attribute; of the kernel's changes, their number and the last."""
        apart = ("kernel_changes", "warnings")
        shown = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in apart}
        lines = [
            f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}" for name, value in shown.items()
        ]
        if self.kernel_changes:
            last = self.kernel_changes[-1]
            lines.append(
                f"kernel_changes: {len(self.kernel_changes)}, the last in round {last.round_index}, "
                f"which gained {last.evidence_gained:.3g} nats"
            )
            if last.shares:
                parts = ", ".join(f"{share:.0%} {name}" for name, share in last.shares)
                lines.append(f"of the variance of a reward: {parts}")
            if last.arm_correlation:
                lines.append(f"correlation of two arms in one context: {last.arm_correlation:.2f}")
            shares = ", ".join(f"{share:.3g}" for share in last.relative_lengthscales)
            lines.append(f"lengthscales over the spread of their columns: {shares}")
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])


def diagnose(
    observations: int, pending: int, posteriors: Sequence[Posterior], residuals: Residuals, memory: int
) -> Diagnostics:
    """Return the diagnostics of a policy with these posteriors that has learned this number of rewards."""
    trusted_since = max((posterior.trusted_since for posterior in posteriors), default=0)
    falls = [fall for fall in map(_fall, posteriors) if fall is not None]
    # a model that has just dropped what came before needs no advice
    changed = None if falls else residuals.warning(_advice(posteriors, residuals.shifted_up))
    found = dict.fromkeys((changed, *falls, *map(_failure, posteriors), *map(_crowding, posteriors)))
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
        residual_mean_square=residuals.mean_square,
        trusted_since=trusted_since,
        failed_refits=sum(posterior.failures.count for posterior in posteriors),
        warnings=tuple(warning for warning in found if warning is not None),
    )


def _advice(posteriors: Sequence[Posterior], shifted_up: bool) -> str:
    """Return what to do where rewards are not as predicted."""
    for posterior in posteriors:
        if isinstance(posterior, ForgettingPosterior):
            if posterior.forgetting.detector() is None:
                return "a shorter half-life or window follows it faster"
            return "if that goes on, what came before is dropped"
        if posterior.falls_back and not shifted_up:
            return "if that goes on, the policy drops what came before and starts again"
    return "a policy with forgetting=kernel_bandits.Restart() drops what no longer holds"


def _fall(posterior: Posterior) -> str | None:
    """Return in words that what was learned first no longer counts, for as long as less counts than was dropped."""
    if posterior.round_index >= 2 * posterior.trusted_since:
        return None
    return (
        f"from observation {posterior.trusted_since} on rewards stayed below what was predicted of them, so what was "
        "learned before it no longer counts."
    )


def crowding(anchors: float, observations: int) -> str | None:
    """Return in words that a dictionary does not pay; None if it does."""
    if observations < CROWDED_ROUNDS or anchors < CROWDED_SHARE * observations:
        return None
    return (
        f"the dictionary is no smaller than the history, {anchors:.0f} anchors for {observations} observations: a longer "
        "lengthscale, a larger λ, or k_ucb makes a round faster."
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
