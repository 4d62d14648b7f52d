"""The state of a policy in numbers to watch."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from kernel_bandits.commit import attributes
from kernel_bandits.kernels import KernelLike
from kernel_bandits.policies.residuals import Residuals
from kernel_bandits.posteriors.base import KernelChange, Posterior
from kernel_bandits.posteriors.drift import ForgettingPosterior


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
            learned.
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


def diagnose(policy: object, observations: int, posteriors: Sequence[Posterior[Any]], pending: int) -> Diagnostics:
    """Return the diagnostics of a policy with these posteriors that has learned this number of rewards."""
    residuals = getattr(policy, "residuals", Residuals())
    trusted_since = max((posterior.trusted_since for posterior in posteriors), default=0)
    falls = [fall for fall in map(_fall, posteriors) if fall is not None]
    # a model that has just dropped what came before needs no advice
    changed = None if falls else residuals.warning(_advice(posteriors, residuals.shifted_up))
    found = (changed, *falls, *map(_failure, posteriors))
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
        memory_bytes=memory_of(policy),
        kernel=None if first is None else first.kernel,
        regularization=None if first is None else first.regularization,
        prior_mean=0.0 if first is None else first.prior_mean,
        kernel_changes=() if first is None else first.kernel_changes,
        residual_mean_square=residuals.mean_square,
        trusted_since=trusted_since,
        failed_refits=sum(posterior.failed_refits for posterior in posteriors),
        warnings=tuple(warning for warning in found if warning is not None),
    )


def _advice(posteriors: Sequence[Posterior[Any]], shifted_up: bool) -> str:
    """Return what to do where rewards are not as predicted."""
    for posterior in posteriors:
        if isinstance(posterior, ForgettingPosterior):
            if posterior.forgetting.detector() is None:
                return "a shorter half-life or window follows it faster"
            return "if that goes on, what came before is dropped"
        if posterior.falls_back and not shifted_up:
            return "if that goes on, the policy drops what came before and starts again"
    return "a policy with forgetting=kernel_bandits.Restart() drops what no longer holds"


def _fall(posterior: Posterior[Any]) -> str | None:
    """Return in words that what was learned first no longer counts, for as long as less counts than was dropped."""
    if posterior.round_index >= 2 * posterior.trusted_since:
        return None
    return (
        f"from observation {posterior.trusted_since} on rewards stayed below what was predicted of them, so what was "
        "learned before it no longer counts."
    )


def _failure(posterior: Posterior[Any]) -> str | None:
    """Return in words how often a kernel could not be learned, and why the last time."""
    if not posterior.failed_refits:
        return None
    facts = posterior._facts
    times = "once" if facts.failed_refits == 1 else f"{facts.failed_refits} times"
    return (
        f"the kernel could not be learned {times}, the last time in round {facts.failed_round}: {facts.failure} The "
        "kernel before stays; look for columns of extreme values, or pass a kernel."
    )


def memory_of(thing: object) -> int:
    """Return the bytes of all arrays that can be reached from an object, each counted once."""
    total, seen, waiting = 0, set(), [thing]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            # a view counts as the array it is a view of
            total, waiting = (total + item.nbytes, waiting) if item.base is None else (total, [*waiting, item.base])
        elif isinstance(item, array):
            total += item.itemsize * len(item)
        elif isinstance(item, dict):
            waiting.extend([*item.keys(), *item.values()])
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, bytes):
            total += len(item)
        else:
            waiting.extend(attributes(item).values())
    return total
