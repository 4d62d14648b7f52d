"""How much a log can say about a candidate: diagnostics of the weights and of the plays, and warnings in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from kernel_bandits.arrays import FloatArray
from kernel_bandits.logs.log import Log

# Fewer effective rounds than this cannot carry an interval.
FEW_EFFECTIVE = 100.0
# A round with more than this share of all weight decides the estimate.
HEAVY_SHARE = 0.05
# More than this share of the candidate's probability on actions that were never played leaves the answer to the model.
UNSEEN_SHARE = 0.02
# More than this share of decisions without a reward could hide what the others do not show.
LEFT_OUT_SHARE = 0.05
# The mean weight is 1 if the propensities are right; this many standard errors off, they are not.
MEAN_WEIGHT_ERRORS = 5.0
# A log whose plays are this unlikely under its own probabilities was not written with them.
RATIO_PROBABILITY = 1e-3
# Plays are counted in this many groups of actions at most.
GROUPS = 32


@dataclass(frozen=True, slots=True)
class Overlap:
    """Diagnostics of the weights w = π(a)/p(a) of n rounds.

    Attributes:
        rounds: n.
        effective_sample_size: (Σw)²/Σw²: rounds of equal weight that would carry as much.
        largest_weight: max w.
        heaviest_round: the row of the largest weight.
        mean_weight: w̄; 1 in expectation where the log has tried all that the candidate does.
        used: the share of rounds with a weight above 0.
        unseen: the candidate's mean probability of actions that the log never played.
        left_out: decisions without a reward, which are not among the rounds.
        ratio_probability: how likely plays as uneven as these are under the logged probabilities, the test of a sample
            ratio mismatch; None where the log has only those of what was played.
        wrong: what in the log is not as it says, in words; no interval holds then.
        warnings: what the log cannot say, in words, with what is wrong.
    """

    rounds: int
    effective_sample_size: float
    largest_weight: float
    heaviest_round: int
    mean_weight: float
    used: float
    unseen: float
    left_out: int = 0
    ratio_probability: float | None = None
    wrong: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.effective_sample_size:,.0f} of {self.rounds:,} rounds effective, {100 * self.used:.0f} % used",
            f"largest weight {self.largest_weight:.3g} (row {self.heaviest_round}), mean weight {self.mean_weight:.3g}",
        ]
        if self.ratio_probability is not None:
            agree = "agree" if self.ratio_probability >= RATIO_PROBABILITY else "do not agree"
            lines.append(f"plays {agree} with the logged probabilities (p = {self.ratio_probability:.2g})")
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])


@dataclass(frozen=True, slots=True)
class Plays:
    """What was played in some rounds of a log, and what a candidate plays there.

    Attributes:
        weights: π(a)/p(a), shape (n,).
        wanted: Σπ of each action, shape (A,).
        played: how often each was, shape (A,).
        ratio: Σ(1[a] − p(a)) of groups of actions, shape (G,), and Σ(diag p − ppᵀ); None where p is not known.
    """

    weights: FloatArray
    wanted: FloatArray
    played: FloatArray
    ratio: tuple[FloatArray, FloatArray] | None

    @classmethod
    def unknown(cls, weights: FloatArray) -> Plays:
        """Return weights alone."""
        return cls(weights, np.empty(0), np.empty(0), None)

    @classmethod
    def of(cls, log: Log, weights: FloatArray, wanted: FloatArray) -> Plays:
        """Return what was played in a log."""
        count, probabilities = len(log.names), log.known_probabilities
        played = np.bincount(log.played, minlength=count).astype(float)
        if probabilities is None:
            return cls(weights, wanted, played, None)
        groups = np.eye(min(count, GROUPS))[np.arange(count) % GROUPS]
        grouped = probabilities @ groups
        total = grouped.sum(axis=0)
        return cls(weights, wanted, played, (played @ groups - total, np.diag(total) - grouped.T @ grouped))


def overlap_of(parts: Sequence[Plays], left_out: int = 0) -> Overlap:
    """Return the diagnostics of a log from those of its parts, in order."""
    weights = np.concatenate([part.weights for part in parts])
    played, wanted = sum(part.played for part in parts), sum(part.wanted for part in parts)
    ratios = [part.ratio for part in parts if part.ratio is not None]
    likely = None
    if len(ratios) == len(parts):
        surplus, covariance = (np.sum(each, axis=0) for each in zip(*ratios, strict=True))
        likely = _ratio_probability(surplus, covariance)
    count, total = len(weights), float(weights.sum())
    heaviest = int(weights.argmax())
    found = Overlap(
        rounds=count,
        effective_sample_size=effective_rounds(weights),
        largest_weight=float(weights[heaviest]),
        heaviest_round=heaviest,
        mean_weight=total / count,
        used=float(np.count_nonzero(weights)) / count,
        unseen=float(np.sum(wanted, where=np.equal(played, 0.0))) / count,
        left_out=left_out,
        ratio_probability=likely,
    )
    wrong = tuple(_wrong(found, weights))
    return replace(found, wrong=wrong, warnings=(*_warnings(found, weights), *wrong))


def effective_rounds(weights: FloatArray) -> float:
    """Return (Σw)²/Σw²."""
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def _ratio_probability(surplus: FloatArray, covariance: FloatArray) -> float:
    """Return the probability of plays at least as uneven: χ² with the rank of the covariance as its degrees."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-9 * max(float(values[-1]), 1e-300)
    if not kept.any():
        return 1.0
    return float(scipy.special.chdtrc(int(kept.sum()), (((vectors.T @ surplus)[kept]) ** 2 / values[kept]).sum()))


def _wrong(found: Overlap, weights: FloatArray) -> list[str]:
    words = []
    error = float(weights.std()) / np.sqrt(found.rounds)
    if abs(found.mean_weight - 1.0) > MEAN_WEIGHT_ERRORS * error + 1e-9 and found.unseen <= UNSEEN_SHARE:
        words.append(
            f"the mean weight is {found.mean_weight:.3g} and should be 1 (± {error:.2g}): the propensities in the log "
            "are not those of the play, or some actions had probability 0."
        )
    if found.ratio_probability is not None and found.ratio_probability < RATIO_PROBABILITY:
        words.append(
            f"what was played does not agree with the logged probabilities (p = {found.ratio_probability:.1g}): they "
            "are not those of the play, or rows are missing."
        )
    return words


def _warnings(found: Overlap, weights: FloatArray) -> list[str]:
    words = []
    if found.effective_sample_size < FEW_EFFECTIVE:
        words.append(
            f"{found.effective_sample_size:,.0f} of {found.rounds:,} rounds are effective, and fewer than "
            f"{FEW_EFFECTIVE:g} make intervals for one look too short. Log more, with more exploration, or ask about a "
            "candidate closer to what was played."
        )
    share = found.largest_weight / weights.sum() if weights.any() else 0.0
    if share > HEAVY_SHARE:
        words.append(
            f"row {found.heaviest_round} alone has {100 * share:.0f} % of all weight; the inverse-propensity estimates "
            "depend on its reward. Prefer the shrunk or switched estimate."
        )
    if found.unseen > UNSEEN_SHARE:
        words.append(
            f"the candidate plays actions that the log never played with probability {found.unseen:.2f}; there only "
            "the model speaks, without data."
        )
    if found.left_out > LEFT_OUT_SHARE * (found.rounds + found.left_out):
        words.append(
            f"{found.left_out:,} of {found.rounds + found.left_out:,} decisions have no reward and are left out; if "
            "good rewards come sooner than bad ones, or the other way round, the rest is not like them."
        )
    return words
