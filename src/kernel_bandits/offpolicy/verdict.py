"""Should we switch? One call that answers from a log, as often as it is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy.special import chdtrc

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, needs
from kernel_bandits.logs.log import Log
from kernel_bandits.offpolicy.candidates import Candidate, Play
from kernel_bandits.offpolicy.overlap import Overlap, overlap_of
from kernel_bandits.offpolicy.reward_model import CrossFit, RewardModel
from kernel_bandits.offpolicy.sequences import (
    CAPS,
    BoundedTerms,
    CandidateValue,
    Sums,
    modelled_terms,
    weighted_terms,
)
from kernel_bandits.offpolicy.valuation import looked_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Decision: TypeAlias = Literal["switch", "stay", "keep logging"]
# Times at which the picture shows the interval, at most.
MOMENTS = 200
LOGGED = "what was played"
# A log whose plays are this unlikely under its own probabilities was not written with them.
RATIO_PROBABILITY = 1e-3
# More rounds than this are no forecast.
MOST_ROUNDS = 10**9


@dataclass(frozen=True)
class Verdict:
    """The answer to "should we switch to the candidate?", which may be asked after every round.

    Attributes:
        decision: ``"switch"``, ``"stay"`` or ``"keep logging"``.
        lift: how much more the candidate earns per round than what it is compared with.
        low: the lower end of the interval of the lift, valid at all times at once.
        high: its upper end.
        level: of the interval.
        logged_value: the mean reward of the log.
        rounds: how many rounds the log has.
        rounds_needed: how many more rounds the interval needs to leave 0, if the lift is what it looks like now and
            rounds go on as they were; 0 where it has, None where there is no telling.
        overlap: how much the log can say about the candidate.
        ratio_probability: how likely plays as uneven as these are under the logged probabilities; None if unknown.
        times: rounds at which the interval was computed, shape (k,).
        lows: its lower ends then.
        highs: its upper ends then.
        problems: why the log cannot answer, in words; empty where it can.
        against: what the candidate is compared with, in words.
    """

    decision: Decision
    lift: float
    low: float
    high: float
    level: float
    logged_value: float
    rounds: int
    rounds_needed: int | None
    overlap: Overlap
    ratio_probability: float | None
    times: FloatArray
    lows: FloatArray
    highs: FloatArray
    problems: tuple[str, ...]
    against: str

    @property
    def sentence(self) -> str:
        """The answer for a reader who knows no statistics."""
        if self.problems:
            return f"Keep logging: this log cannot answer. {self.problems[0]}"
        sure = f"with {100 * self.level:g} % confidence, however often this was looked at"
        share = f" ({100 * abs(self.lift / self.logged_value):.0f} %)" if self.share_known else ""
        if self.decision == "switch":
            return (
                f"Switch: the candidate earns {self.lift:.4g}{share} more per round than {self.against}; between "
                f"{self.low:.4g} and {self.high:.4g} {sure}."
            )
        if self.decision == "stay":
            return (
                f"Stay: the candidate earns {-self.lift:.4g}{share} less per round than {self.against}; between "
                f"{-self.high:.4g} and {-self.low:.4g} {sure}."
            )
        more = "how many more rounds it takes cannot be told yet"
        if self.rounds_needed is not None:
            more = f"about {_rounded(self.rounds_needed):,} more rounds decide if it stays at {self.lift:.4g}"
        ends = f"between {self.low:.4g} and {self.high:.4g}"
        return f"Keep logging: the difference to {self.against} is {ends} {sure}; {more}."

    @property
    def share_known(self) -> bool:
        """Whether the lift is over the log's own mean reward, and that is not 0."""
        return self.against == LOGGED and self.logged_value != 0.0

    def __str__(self) -> str:
        lines = [self.sentence, str(self.overlap)]
        if self.ratio_probability is not None:
            lines.append(f"plays agree with the logged probabilities (p = {self.ratio_probability:.2g})")
            if self.ratio_probability < RATIO_PROBABILITY:
                lines[-1] = lines[-1].replace("agree", "do not agree")
        return "\n".join(lines)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the interval of the lift over time."""
        with needs("matplotlib", "kernel-bandits[plots]"):
            from matplotlib.figure import Figure
        if axes is None:
            axes = Figure(figsize=(7.0, 3.5), layout="constrained").subplots()
        axes.fill_between(self.times, self.lows, self.highs, alpha=0.3, label=f"{100 * self.level:g} % at all times")
        axes.axhline(0.0, color="#555555", linestyle="--", label=self.against)
        axes.plot([self.times[-1]], [self.lift], "o", label="lift")
        axes.set(xlabel="round", ylabel="lift per round", title=self.decision.capitalize())
        axes.legend(frameon=False)
        return axes


def _rounded(count: int) -> int:
    """Return a forecast with two digits."""
    unit = 10 ** max(len(str(count)) - 2, 0)
    return -(-count // unit) * unit


def verdict(
    log: Any,
    candidate: Candidate,
    baseline: Candidate | None = None,
    *,
    reward_range: tuple[float, float] | None = None,
    model: RewardModel | CrossFit | None = RewardModel(),  # noqa: B008 (frozen)
    level: float = 0.95,
    seed: int = 0,
) -> Verdict:
    """Say whether to switch to a candidate, from a log that may be looked at again after every round.

    The interval is a confidence sequence (:class:`CandidateValue`): it contains the lift at all times at once, also
    where the policy that wrote the log learned from it. Rounds must be in the order of the decisions.

    Args:
        log: of a policy that chose at random, or what :func:`kernel_bandits.logs.scan` returns.
        candidate: as for :func:`evaluate`. A preset learns earlier rounds alone, again whenever they have doubled; its
            lift is the average of what it was at the time.
        baseline: another candidate to compare with, such as the control arm of an experiment; by default what the log
            itself did.
        reward_range: the lowest and the highest reward that is possible; by default 0 and 1 if all rewards are one of
            these.
        model: of the rewards, of earlier rounds alone; used where the log has the probabilities of every action. None
            for weights alone.
        level: of the interval.
        seed: of presets.
    """
    low, high = _range(log, reward_range)
    has_probabilities = all(log.each(_has_probabilities))
    fitted = None
    if has_probabilities and model is not None:
        fitted = model.fit(log, "before") if isinstance(model, RewardModel) else model
        if fitted.split != "before":
            raise InputError(
                "model: expected models of earlier rounds; fit it with written_by='learning', or pass the RewardModel."
            )
    plays = [Play.of(log, one, fitted, seed, "before") for one in (candidate, baseline) if one is not None]
    sequence = CandidateValue(low, high, level, paired=True, caps=CAPS if fitted is not None else (0.0,))
    wanted, weights, ratio, played = np.zeros(len(log.names)), [], _Ratio.of(len(log.names)), np.zeros(len(log.names))
    moments = np.unique(np.geomspace(1, len(log), MOMENTS).astype(int))
    times, ends, start = [], [], 0
    for terms, own_weights, own_wanted, own_ratio, own_played in log.each(
        partial(_terms, (low, high)), *plays, *[None] * (2 - len(plays)), fitted
    ):
        path = sequence.path(terms)
        count = terms.lower.shape[-1]
        chosen = moments[(moments > start) & (moments <= start + count)] - start - 1
        if len(chosen):
            times.append(chosen + start + 1)
            ends.append(np.array(_at(path, chosen).interval))
        sequence, start = sequence.after(terms), start + count
        weights.append(own_weights)
        wanted, ratio, played = wanted + own_wanted, ratio + own_ratio, played + own_played
    overlap = overlap_of(np.concatenate(weights), float(wanted[played == 0].sum()) / len(log), log.left_out)
    lows, highs = np.concatenate(ends, axis=1)
    likely = ratio.probability() if has_probabilities else None
    problems = _problems(overlap, likely)
    bottom, top = sequence.interval
    decision: Decision = "keep logging"
    if not problems:
        decision = "switch" if bottom > 0.0 else "stay" if top < 0.0 else "keep logging"
    return Verdict(
        decision,
        float(sequence.estimate),
        bottom,
        top,
        level,
        float(log.rewards.mean()),
        len(log),
        0 if decision != "keep logging" else _rounds_needed(sequence),
        overlap,
        likely,
        np.concatenate(times).astype(float),
        lows,
        highs,
        problems,
        LOGGED if baseline is None else _words(baseline),
    )


def _words(candidate: Candidate) -> str:
    return repr(candidate) if isinstance(candidate, (str, int)) else "the baseline"


def _range(log: Any, given: tuple[float, float] | None) -> tuple[float, float]:
    """Return the range of the rewards, which must not be read off the log."""
    if given is None:
        if ((log.rewards == 0.0) | (log.rewards == 1.0)).all():
            return 0.0, 1.0
        raise InputError(
            "reward_range: expected the lowest and the highest reward that is possible, since rewards are not all 0 "
            f"or 1; those so far go from {log.rewards.min():g} to {log.rewards.max():g}."
        )
    low, high = map(float, given)
    outside = np.flatnonzero((log.rewards < low) | (log.rewards > high))
    if len(outside):
        raise InputError(
            f"reward_range: row {outside[0]} has the reward {log.rewards[outside[0]]:g}, which is not from {low:g} to "
            f"{high:g}."
        )
    return low, high


def _has_probabilities(log: Log) -> bool:
    return log.known_probabilities is not None


def _terms(
    extent: tuple[float, float], log: Log, play: Play, other: Play | None, fitted: CrossFit | None
) -> tuple[BoundedTerms, FloatArray, FloatArray, _Ratio, FloatArray]:
    """Return the terms of a part of a log, the weights of its rounds, and what the diagnostics add up."""
    terms, weights, wanted, start = [], [], np.zeros(len(log.names)), 0
    known, caps = log.known_probabilities, (0.0,) if fitted is None else CAPS
    for part, probabilities, predicted in looked_at(log, play, fitted, every_action=True):
        rows, each = slice(start, start + len(part)), np.arange(len(part))
        start = rows.stop
        weights.append(probabilities[each, part.played] / part.propensities)
        wanted += probabilities.sum(axis=0)
        if other is None and fitted is None:
            terms.append(weighted_terms(weights[-1], part.rewards, *extent, paired=True))
            continue
        table = _of_played(part) if known is None else known[rows]
        second = table if other is None else other.rows(rows).probabilities(part, rows.start)
        model = np.full(probabilities.shape, np.nan) if predicted is None else predicted
        terms.append(modelled_terms(probabilities - second, table, part.played, part.rewards, model, *extent, caps))
    lower, upper = (np.concatenate([getattr(one, side) for one in terms], axis=1) for side in ("lower", "upper"))
    played = np.bincount(log.played, minlength=len(log.names)).astype(float)
    ratio = _Ratio.of(len(log.names)) if known is None else _Ratio.seen(log.played, known)
    return BoundedTerms(lower, upper), np.concatenate(weights), wanted, ratio, played


def _of_played(log: Log) -> FloatArray:
    """Return the propensities of what was played in a table of zeros, all that weights without a model need."""
    table = np.zeros((len(log), len(log.names)))
    table[np.arange(len(log)), log.played] = log.propensities
    return table


def _at(path: CandidateValue, moments: Any) -> CandidateValue:
    """Return a path at some of its moments alone."""
    lower, upper = (
        Sums(side.count[..., moments], side.total[..., moments], side.squares[..., moments])
        for side in (path.lower, path.upper)
    )
    return replace(path, lower=lower, upper=upper)


def _rounds_needed(sequence: CandidateValue) -> int | None:
    """Return how many more rounds the interval needs to leave 0, if all sums go on growing as they did."""

    def decided(factor: float) -> bool:
        lower, upper = (
            Sums(factor * np.asarray(side.count), factor * side.total, factor * side.squares)
            for side in (sequence.lower, sequence.upper)
        )
        low, high = replace(sequence, lower=lower, upper=upper).interval
        return bool(low > 0.0 or high < 0.0)

    count, factor = sequence.count, 1.0
    while not decided(factor):
        factor *= 2.0
        if factor * count > MOST_ROUNDS:
            return None
    least = factor / 2.0
    while factor - least > 0.01 * least:
        middle = 0.5 * (least + factor)
        least, factor = (least, middle) if decided(middle) else (middle, factor)
    return math.ceil((factor - 1.0) * count)


@dataclass(frozen=True, slots=True)
class _Ratio:
    """Plays less their probabilities, Σ(1[a] − p(a)), and the covariance of that, Σ(diag p − ppᵀ)."""

    surplus: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, count: int) -> _Ratio:
        return cls(np.zeros(count), np.zeros((count, count)))

    @classmethod
    def seen(cls, played: Any, probabilities: FloatArray) -> _Ratio:
        count = probabilities.shape[1]
        total = probabilities.sum(axis=0)
        surplus = np.bincount(played, minlength=count) - total
        return cls(surplus, np.diag(total) - probabilities.T @ probabilities)

    def __add__(self, other: _Ratio) -> _Ratio:
        return _Ratio(self.surplus + other.surplus, self.covariance + other.covariance)

    def probability(self) -> float:
        """Return the probability of plays at least as uneven: χ² with the rank of the covariance as its degrees."""
        values, vectors = np.linalg.eigh(self.covariance)
        kept = values > 1e-9 * max(float(values[-1]), 1e-300)
        if not kept.any():
            return 1.0
        statistic = float((((vectors.T @ self.surplus)[kept]) ** 2 / values[kept]).sum())
        return float(chdtrc(int(kept.sum()), statistic))


def _problems(overlap: Overlap, likely: float | None) -> tuple[str, ...]:
    """Return what makes the interval wrong, in words.

    Too few rounds, and actions that the log never tries, only make it long: their share counts as the whole range.
    """
    found = [warning for warning in overlap.warnings if "mean weight" in warning]
    if likely is not None and likely < RATIO_PROBABILITY:
        found.append(
            f"What was played does not agree with the logged probabilities (p = {likely:.1g}): they are not those of "
            "the play, or rows are missing."
        )
    return tuple(found)
