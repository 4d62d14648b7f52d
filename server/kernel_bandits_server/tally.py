"""Running sums over the log of a loop: rewards over time, by arm, by segment and by group.

An average counts a decision once its reward is settled and those of all earlier decisions are, in the order of the
decisions. Purchases that are told at once and silences that take a day would bias any other average. Its interval is a
confidence sequence, so the page may be looked at every hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.offpolicy.sequences import Sums
from kernel_bandits.tables import Boolean, Categorical, Column, Cyclic, Date, Embedding, Features, Numeric, Ordered
from kernel_bandits.tables.values import is_gap, is_number, moment_of
from kernel_bandits_server.settings import LoopSettings
from kernel_bandits_server.trial import LEVEL, Trial

# Spans of time double in width as the log grows, so that there are never more.
SPANS, FIRST_WIDTH = 120, 1.0
# Estimates from fewer rewards are not shown.
FEWEST = 10
# Arms beyond this number are counted together, so that the tally stays small whatever callers offer.
MOST_ARMS, OTHERS = 50, "all others"
GROUPS = ("policy", "control", "challenger")
# What an estimate takes: the number, Σw, Σwr, Σw², Σw²r, Σw²r².
WIDTH = 6
# Columns that are split, the first of them; ranges of numbers, and the visitors that they are taken from.
MOST_COLUMNS, RANGES, FIRST_VISITORS = 20, 5, 50
# Segments of a column. The last three are for further levels, for gaps, and for visitors before the ranges were known.
MOST_SEGMENTS = 16
FURTHER, MISSING, EARLY = MOST_SEGMENTS - 3, MOST_SEGMENTS - 2, MOST_SEGMENTS - 1
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


class Open(Struct, array_like=True):
    """A decision whose reward does not count in the averages yet: it awaits it, or an earlier decision does."""

    time: float  # when it was made
    arm: int  # that was played, by its place in the tally
    propensity: float | None  # the probability with which it was played, over all groups; None where it is not known
    offered: int  # the number of actions it was chosen from
    active: bool  # whether it was played; a deferred decision waits for its activation
    group: int  # that decided it, by its place in ``GROUPS``
    place: float | None  # the visitor's hash; None if it is not compared with those of the other group
    # how much likelier the policy and the challenger were to play it than the loop as a whole
    weights: tuple[float, float] | None
    code: bytes  # the visitor's segments
    pending: list[int | None] | None = None  # the ids under which the policies await its reward; None if they do not
    row: dict[str, Any] | None = None  # its context, until the policies know it
    action: Any = None  # likewise
    held: dict[str, Any] | None = None  # a reward that came before the activation
    learnable: bool = True  # whether the policy took it
    reward: float | None = None  # that it earned
    settled: bool = False  # whether no reward is to come


def estimates(sums: FloatArray, ends: tuple[float, float] | None) -> list[dict[str, Any]]:
    """Return for each row of sums the self-normalised mean v = Σwr/Σw, its interval, and the number of rewards.

    The interval is that of (Σw)²/Σw² rewards, as many as those with weights are worth, with their variance
    Σw²(r − v)²/Σw². It holds at all times at once. Without known ``ends`` there is none before rewards differ.
    """
    found: list[dict[str, Any]] = [{"mean": None, "low": None, "high": None, "count": 0} for _ in sums]
    known = np.flatnonzero(sums[:, 1])
    count, weight, weighted, ww, wwr, wwrr = sums[known].T
    mean, size = weighted / weight, weight**2 / ww
    for place, number, value in zip(known, count, mean, strict=True):
        found[place] |= {"mean": float(value), "count": int(number)}
    if ends is not None and ends[0] < ends[1]:
        squares = np.maximum(wwrr - 2.0 * mean * wwr + mean**2 * ww, 0.0) * size / ww
        bounds = Sums(size, size * mean, squares).bounds(ends[1] - ends[0], LEVEL)
        for place, low, high in zip(known, *np.clip(bounds, *ends).tolist(), strict=True):
            found[place] |= {"low": low, "high": high}
    return found


def _terms(rewards: FloatArray, weights: FloatArray) -> FloatArray:
    squares = weights * weights
    used = (weights > 0.0).astype(float)
    return np.stack([used, weights, weights * rewards, squares, squares * rewards, squares * rewards**2], axis=1)


class Segments(Struct):
    """The segments of each column: its levels, or five ranges of its numbers with as many visitors each."""

    # of each column, the edges between ranges, or the levels; learned where the columns do not fix them
    parts: dict[str, list[Any]]
    first: dict[str, list[float]]  # the first numbers of a column, until there are enough for its ranges

    @classmethod
    def of(cls, features: Features) -> Segments:
        """Return the segments of columns that no visitor was seen of."""
        columns = features.context if isinstance(features.context, Mapping) else {}
        split = [(name, column) for name, column in columns.items() if not isinstance(column, Embedding)]
        parts = {name: _known_parts(column) for name, column in split[:MOST_COLUMNS]}
        return cls(parts, {name: [] for name in parts if _has_ranges(columns[name]) and not parts[name]})

    def code(self, row: Mapping[str, Any], columns: Mapping[str, Column]) -> bytes:
        """Return the number of a visitor's segment in each column."""
        return bytes([self._segment(name, columns[name], row.get(name)) for name in self.parts])

    def _segment(self, name: str, column: Column, value: Any) -> int:
        if is_gap(value):
            return MISSING
        try:
            if isinstance(column, Date):
                moment = moment_of(value)
                return MISSING if moment is None else moment.weekday()
            if not _has_ranges(column):
                return self._level(self.parts[name], str(value))
            number = float(value) if is_number(value) else math.nan
            if name in self.first:
                return self._learn(name, number)
            return int(np.searchsorted(self.parts[name], number, side="right"))
        except Exception:  # the policy says what is wrong with a value; a segment is only shown
            return MISSING

    @staticmethod
    def _level(levels: list[Any], level: str) -> int:
        if level not in levels:
            if len(levels) >= FURTHER:
                return FURTHER
            levels.append(level)
        return levels.index(level)

    def _learn(self, name: str, number: float) -> int:
        first = self.first[name]
        first.append(number)
        if len(first) == FIRST_VISITORS:
            del self.first[name]
            self.parts[name] = np.unique(
                np.quantile(first, np.arange(1, RANGES) / RANGES, method="inverted_cdf")
            ).tolist()
        return EARLY

    def labels(self, name: str, column: Column) -> list[str]:
        """Return the name of each segment of a column, in order."""
        parts = self.parts[name]
        if isinstance(column, Date):
            known = _DAYS
        elif not _has_ranges(column):
            known = [str(part) for part in parts]
        elif not parts:
            known = []
        else:
            ends = [f"{part:.3g}" for part in parts]
            known = [f"below {ends[0]}", *map("{} to {}".format, ends[:-1], ends[1:]), f"{ends[-1]} and above"]
        padded = [*known, *[""] * (FURTHER - len(known))]
        return [*padded, "others", "missing", f"the first {FIRST_VISITORS}"]


def _has_ranges(column: Column) -> bool:
    return isinstance(column, (Numeric, Cyclic))


def _known_parts(column: Column) -> list[Any]:
    """Return the edges or levels that a column is described with."""
    if isinstance(column, Cyclic):
        return [column.period * place / 4 for place in (1, 2, 3)]
    if isinstance(column, Boolean):
        return ["False", "True"]
    levels = column.values if isinstance(column, (Categorical, Ordered)) else None
    return [str(level) for level in levels or ()][:FURTHER]


class Tally(Struct):
    """What the page shows of a loop, in bounded memory."""

    segments: Segments  # of visitors
    by_segment: FloatArray  # sums of weighted rewards by column, segment and arm
    trial: Trial | None  # the comparison of the groups; None without any
    # of what happened
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("decisions", "rewards", "silent", "expired", "late", "agreed", "unlearned", "imported", "matured"), 0
        )
    )
    arms: list[str] = []  # by their place
    range: tuple[float, float] | None = None  # the lowest and the highest reward, possible or seen
    width: float = FIRST_WIDTH  # of a span, in seconds
    starts: list[float] = []  # of the spans
    # by span and arm
    plays: NDArray[np.int64] = field(default_factory=lambda: np.zeros((SPANS, MOST_ARMS + 1), dtype=np.int64))
    spans: FloatArray = field(default_factory=lambda: np.zeros((SPANS, 2)))  # number and sum of rewards, by span
    # sums of what was earned, and of what uniform play would have
    total: FloatArray = field(default_factory=lambda: np.zeros((2, WIDTH)))
    # sums of what always playing an arm would have earned
    by_arm: FloatArray = field(default_factory=lambda: np.zeros((MOST_ARMS + 1, WIDTH)))

    @classmethod
    def of(cls, settings: LoopSettings) -> Tally:
        """Return the tally of a loop before its first decision."""
        segments = Segments.of(settings.features)
        sums = np.zeros((max(1, len(segments.parts)), MOST_SEGMENTS, MOST_ARMS + 1, WIDTH))
        return cls(segments, sums, Trial.of(settings), range=settings.range)

    def arm(self, name: str) -> int:
        """Return the place of an arm."""
        if name not in self.arms:
            name = name if len(self.arms) < MOST_ARMS else OTHERS
            if name not in self.arms:
                self.arms.append(name)
        return self.arms.index(name)

    def play(self, time: float, arms: Iterable[int]) -> None:
        """Count the arms of actions that were played at one time."""
        span = self._span(time)  # it may widen the spans
        np.add.at(self.plays[span], list(arms), 1)

    def settle(self, rows: Sequence[Open]) -> None:
        """Count what decisions earned, in the order of the decisions."""
        self.counts["matured"] += len(rows)
        unknown = (math.nan, math.nan)
        # an unknown number becomes NaN
        numbers = [
            (one.time, one.reward, one.propensity, one.offered, one.place, *(one.weights or unknown)) for one in rows
        ]
        time, reward, propensity, offered, place, policy, challenger = np.array(numbers, dtype=float).T
        arms, group = np.array([one.arm for one in rows]), np.array([one.group for one in rows])
        codes = np.array([list(one.code) for one in rows], dtype=int)
        low, high = self.range or (math.inf, -math.inf)
        self.range = min(low, float(reward.min())), max(high, float(reward.max()))
        # inverse propensities: uniform play chooses each of A actions with 1/A, a fixed arm with 1
        known = ~np.isnan(propensity)
        fixed = np.where(known, 1.0 / np.where(known, propensity, 1.0), 0.0)
        uniform = np.where(offered > 0, fixed / np.maximum(offered, 1.0), 0.0)
        self.total += [_terms(reward, weights).sum(axis=0) for weights in (np.ones(len(rows)), uniform)]
        np.add.at(self.by_arm, arms, _terms(reward, fixed))
        places = np.maximum(np.searchsorted(self.starts, time, side="right") - 1, 0)
        np.add.at(self.spans, places, np.stack([np.ones(len(rows)), reward], axis=1))
        # those without probabilities count as they are
        weighted = _terms(reward, np.where(known, fixed, 1.0))
        for column in range(codes.shape[1]):
            np.add.at(self.by_segment[column], (codes[:, column], arms), weighted)
        if self.trial is not None:
            self.trial = self.trial.after(reward, group, place, policy, challenger, codes)

    def _span(self, time: float) -> int:
        """Return the place of the span of a time."""
        # most events are of the last span, or of one before it
        if not self.starts or time >= self.starts[-1] + self.width:
            while self.starts and (math.floor(time / self.width) * self.width - self.starts[0]) / self.width >= SPANS:
                self._widen()
            start = math.floor(time / self.width) * self.width
            if not self.starts or start > self.starts[-1]:
                self.starts.append(start)
        return max(0, int(np.searchsorted(self.starts, time, side="right")) - 1)

    def _widen(self) -> None:
        self.width *= 2.0
        wide = [math.floor(start / self.width) * self.width for start in self.starts]
        self.starts = sorted(set(wide))
        places = np.searchsorted(self.starts, wide)
        for name in ("spans", "plays"):
            narrow = getattr(self, name)
            wider = np.zeros_like(narrow)
            np.add.at(wider, places, narrow[: len(wide)])
            setattr(self, name, wider)

    def best_arm(self) -> dict[str, Any] | None:
        """Return the arm with the largest estimate among those rewarded often enough, and the estimate."""
        known = [place for place in range(len(self.arms)) if self.by_arm[place, 0] >= FEWEST]
        if not known:
            return None
        best = max(known, key=lambda place: float(self.by_arm[place, 2] / self.by_arm[place, 1]))
        return {"arm": self.arms[best], **estimates(self.by_arm[[best]], self.range)[0]}

    def report(self) -> dict[str, Any]:
        """Return all numbers as JSON has them."""
        plays, names = self.plays.sum(axis=0), self.arms
        order = np.argsort(-plays[: len(names)], kind="stable")
        (reward, uniform), arms = estimates(self.total, self.range), estimates(self.by_arm, self.range)
        return {
            "counts": self.counts,
            "range": self.range,
            "reward": reward,
            "uniform": uniform,
            "best_arm": self.best_arm(),
            "arms": [{"arm": names[one], "plays": int(plays[one]), **arms[one]} for one in order],
            "width": self.width,
            "series": [
                {
                    "time": start,
                    "reward": float(total / count) if count else None,
                    "plays": {names[arm]: int(self.plays[place, arm]) for arm in np.flatnonzero(self.plays[place])},
                }
                for place, (start, (count, total)) in enumerate(zip(self.starts, self.spans, strict=False))
            ],
        }

    def split(self, place: int, labels: Sequence[str]) -> list[dict[str, Any]]:
        """Return, for each segment of a column, the share and the mean reward of each arm."""
        found = []
        for label, sums in zip(labels, self.by_segment[place], strict=True):
            total = float(sums[:, 0].sum())
            if total:
                order = [arm for arm in np.argsort(-sums[:, 0], kind="stable") if sums[arm, 0]]
                arms = [
                    {"arm": self.arms[arm], "share": float(sums[arm, 0]) / total, **one}
                    for arm, one in zip(order, estimates(sums[order], self.range), strict=True)
                ]
                found.append({"segment": label, "count": int(total), "arms": arms})
        return found
