"""Should we switch? One call that answers from a log, as often as it is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, needs
from kernel_bandits.logs.log import Log
from kernel_bandits.logs.parts import LogParts
from kernel_bandits.offpolicy.candidates import Candidate, Play
from kernel_bandits.offpolicy.overlap import Overlap, Plays, overlap_of
from kernel_bandits.offpolicy.reward_model import CrossFit, EarlierMean, RewardModel
from kernel_bandits.offpolicy.sequences import CAPS, CandidateValue, modelled_terms, weighted_terms
from kernel_bandits.offpolicy.valuation import fitted_model, looked_at, require_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Decision: TypeAlias = Literal["switch", "stay", "keep logging"]
# Times at which the picture shows the interval, at most.
MOMENTS = 200
LOGGED = "what was played"
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
        times: rounds at which the interval was computed, shape (k,).
        lows: its lower ends then.
        highs: its upper ends then.
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
    times: FloatArray
    lows: FloatArray
    highs: FloatArray
    against: str

    @property
    def sentence(self) -> str:
        """The answer for a reader who knows no statistics."""
        if self.overlap.wrong:
            return f"Keep logging: this log cannot answer: {self.overlap.wrong[0]}"
        sure = f"with {100 * self.level:g} % confidence, however often this was looked at"
        is_share = self.against == LOGGED and self.logged_value != 0.0
        share = f" ({100 * abs(self.lift / self.logged_value):.0f} %)" if is_share else ""
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
            unit = 10 ** max(len(str(self.rounds_needed)) - 2, 0)
            forecast = -(-self.rounds_needed // unit) * unit
            more = f"about {forecast:,} more rounds decide if it stays at {self.lift:.4g}"
        ends = f"between {self.low:.4g} and {self.high:.4g}"
        return f"Keep logging: the difference to {self.against} is {ends} {sure}; {more}."

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.overlap}"

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


def verdict(
    log: Log | LogParts,
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
        model: of the rewards, of earlier rounds alone; None for the mean of their rewards. Used where the log has the
            probabilities of every action, which shares of a trial are; otherwise weights alone count.
        level: of the interval.
        seed: of presets.
    """
    require_log(log)
    known = all(log.each(lambda part: part.known_probabilities is not None))
    low, high = _range(log, reward_range)
    plays = [Play.of(log, one, None, seed, "learning") for one in (candidate, baseline) if one is not None]
    fitted: CrossFit | EarlierMean | None = fitted_model(log, model if known else None, "learning")
    if known and fitted is None:
        fitted = EarlierMean.of(log.rewards, 0.5 * (low + high))
    found = log.each(partial(_terms, (low, high)), *plays, *[None] * (2 - len(plays)), fitted)
    overlap = overlap_of([plays for _, plays in found], log.left_out)
    terms = np.concatenate([terms for terms, _ in found], axis=2)
    start = CandidateValue(low, high, level, paired=True, caps=CAPS if fitted is not None else (0.0,))
    path = start.path(terms)
    times = np.unique(np.geomspace(1, len(log), MOMENTS).astype(int))
    lows, highs = path.at(times - 1).interval
    now = path.at(-1)
    bottom, top = now.interval
    decision: Decision = "keep logging"
    if not overlap.wrong:
        decision = "switch" if bottom > 0.0 else "stay" if top < 0.0 else "keep logging"
    return Verdict(
        decision,
        now.estimate,
        bottom,
        top,
        level,
        float(log.rewards.mean()),
        len(log),
        0 if decision != "keep logging" else _rounds_needed(now),
        overlap,
        times.astype(float),
        lows,
        highs,
        LOGGED if baseline is None else _words(baseline),
    )


def _words(candidate: Candidate) -> str:
    return repr(candidate) if isinstance(candidate, (str, int)) else "the baseline"


def _range(log: Log | LogParts, given: tuple[float, float] | None) -> tuple[float, float]:
    """Return the range of the rewards, which must not be read off the log."""
    if given is None:
        if ((log.rewards == 0.0) | (log.rewards == 1.0)).all():
            return 0.0, 1.0
        raise InputError(
            "reward_range: expected the lowest and the highest reward that is possible, since rewards are not all 0 "
            f"or 1; those so far go from {log.rewards.min():g} to {log.rewards.max():g}."
        )
    low, high = given if isinstance(given, (tuple, list)) and len(given) == 2 else (math.nan, math.nan)
    if not -math.inf < low < high < math.inf:
        raise InputError(f"reward_range: expected (lowest, highest), two different finite numbers, got {given!r}.")
    outside = np.flatnonzero((log.rewards < low) | (log.rewards > high))
    if len(outside):
        raise InputError(
            f"reward_range: row {outside[0]} has the reward {log.rewards[outside[0]]:g}, which is not from {low:g} to "
            f"{high:g}; give the range that was possible before the first round, or correct the row."
        )
    return low, high


def _terms(
    extent: tuple[float, float], log: Log, play: Play, other: Play | None, fitted: CrossFit | EarlierMean | None
) -> tuple[FloatArray, Plays]:
    """Return the terms of a part of a log, and what was played in it."""
    terms, weights, wanted, start = [], [], np.zeros(len(log.names)), 0
    caps = (0.0,) if fitted is None else CAPS
    for part, probabilities, predicted in looked_at(log, play, fitted, every_action=True):
        rows, each = slice(start, start + len(part)), np.arange(len(part))
        start = rows.stop
        weights.append(probabilities[each, part.played] / part.propensities)
        wanted += probabilities.sum(axis=0)
        if other is None and fitted is None:
            terms.append(weighted_terms(weights[-1], part.rewards, *extent, paired=True))
            continue
        table = part.known_probabilities
        if table is None:
            # the propensities of what was played are all that weights without a model need
            table = np.zeros(probabilities.shape)
            table[each, part.played] = part.propensities
        second = table if other is None else other.rows(rows).probabilities(part, rows.start)
        model = np.full(probabilities.shape, np.nan) if predicted is None else predicted
        terms.append(modelled_terms(probabilities - second, table, part.played, part.rewards, model, *extent, caps))
    return np.concatenate(terms, axis=2), Plays.of(log, np.concatenate(weights), wanted)


def _rounds_needed(sequence: CandidateValue) -> int | None:
    """Return how many more rounds the interval needs to leave 0, if all sums go on growing as they did."""

    def decided(factor: float) -> bool:
        low, high = replace(sequence, sums=sequence.sums.times(factor)).interval
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
