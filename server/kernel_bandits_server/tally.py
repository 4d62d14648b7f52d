"""Running sums over the log of a loop: rewards over time, by arm, by segment and by group.

An average counts a decision once its reward is settled and those of all earlier decisions are, in the order of the
decisions. Purchases that are told at once and silences that take a day would bias any other average.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits_server.segments import MOST_SEGMENTS, Segments
from kernel_bandits_server.settings import LoopSettings
from kernel_bandits_server.trial import Trial, new_trial

BUCKETS = 120
FIRST_WIDTH = 1.0
# Estimates from fewer rewards are not shown.
FEWEST = 10
# Arms beyond this number are counted together, so that the tally stays small whatever callers offer.
MOST_ARMS, OTHERS = 50, "all others"
# Rewards wait until so many are added up at once, which costs a tenth of one by one.
TOGETHER = 512
GROUPS = ("policy", "control", "challenger")
# What an estimate takes: the number, Σw, Σwr, Σw², Σw²r, Σw²r².
WIDTH = 6


@dataclass(slots=True)
class Open:
    """A decision whose reward does not count in the averages yet: it awaits it, or an earlier decision does.

    Attributes:
        time: when it was made.
        arm: that was played, by its place in the tally.
        propensity: the probability with which it was played, over all groups; None where it is not known.
        offered: the number of actions it was chosen from.
        active: whether it was played; a deferred decision waits for its activation.
        group: that decided it, by its place in ``GROUPS``.
        place: the visitor's hash; None if it is not compared with those of the other group.
        weights: how much likelier the policy and the challenger were to play it than the loop as a whole.
        code: the visitor's segments.
        pending: the ids under which the policies await its reward; None if they do not.
        row: its context, until the policies know it.
        action: likewise.
        held: a reward that came before the activation.
        learnable: whether the policy took it.
        reward: that it earned.
        settled: whether no reward is to come.
    """

    time: float
    arm: int
    propensity: float | None
    offered: int
    active: bool
    group: int
    place: float | None
    weights: tuple[float, float] | None
    code: bytes
    pending: list[int | None] | None = None
    row: dict[str, Any] | None = None
    action: Any = None
    held: dict[str, Any] | None = None
    learnable: bool = True
    reward: float | None = None
    settled: bool = False

    def dump(self) -> list[Any]:
        """Return all attributes as JSON has them."""
        values = list(_values(self))
        values[_CODE] = self.code.hex()
        return values

    @classmethod
    def load(cls, values: list[Any]) -> Open:
        """Return what :meth:`dump` wrote."""
        values = list(values)
        values[_CODE] = bytes.fromhex(values[_CODE])
        return cls(*values)


_names = [one.name for one in fields(Open)]
_CODE = _names.index("code")
# all attributes, without copies of what they hold
_values = attrgetter(*_names)
_UNKNOWN = (math.nan, math.nan)


def estimate(sums: FloatArray | Sequence[float]) -> dict[str, float | None]:
    """Return the self-normalised mean Σwr/Σw, its standard error √Σw²(r − v)²/Σw, and the number of rewards."""
    count, weight, weighted, ww, wwr, wwrr = (float(one) for one in sums)
    if not weight:
        return {"mean": None, "error": None, "count": int(count)}
    mean = weighted / weight
    squares = wwrr - 2.0 * mean * wwr + mean * mean * ww
    error = math.sqrt(max(squares, 0.0)) / weight if count > 1 else None
    return {"mean": mean, "error": error, "count": int(count)}


def _terms(rewards: FloatArray, weights: FloatArray) -> FloatArray:
    squares = weights * weights
    used = (weights > 0.0).astype(float)
    return np.stack([used, weights, weights * rewards, squares, squares * rewards, squares * rewards**2], axis=1)


def _add(sums: FloatArray, places: Any, terms: FloatArray) -> FloatArray:
    """Return sums (…, 6) with terms (n, 6) added at places, one after the other."""
    added = sums.copy()
    np.add.at(added, places, terms)
    return added


class Tally:
    """What the page shows of a loop, in bounded memory: spans of time double in width as the log grows.

    Args:
        settings: of the loop.
    """

    def __init__(self, settings: LoopSettings) -> None:
        names = ("decisions", "rewards", "silent", "expired", "late", "agreed", "unlearned", "imported", "matured")
        self.counts = dict.fromkeys(names, 0)
        self.segments = Segments(settings.features)
        self.arms: dict[str, int] = {}
        self.plays: list[int] = []
        self.range: list[float] | None = None
        self.width = FIRST_WIDTH
        self.starts: list[float] = []
        self._trial: Trial | None = new_trial(settings)
        # per span: estimates of what was earned and of uniform play, and plays by arm
        self._spans, self._span_plays = np.zeros((0, 2, WIDTH)), np.zeros((0, 0), dtype=np.int64)
        self._all, self._uniform, self._arms = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros((0, WIDTH))
        columns = len(self.segments.columns)
        self._by_segment = np.zeros((columns, MOST_SEGMENTS, 0, WIDTH))
        self._waiting: list[Open] = []

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        self.counts[what] += number

    def arm(self, name: str) -> int:
        """Return the place of an arm."""
        if name not in self.arms:
            name = name if len(self.arms) < MOST_ARMS else OTHERS
        if name not in self.arms:
            self.arms[name] = len(self.arms)
            self.plays.append(0)
        return self.arms[name]

    def play(self, time: float, arms: Iterable[int]) -> None:
        """Count the arms of actions that were played at one time."""
        span = self._span(time)
        for arm, number in Counter(arms).items():
            self.plays[arm] += number
            if arm >= self._span_plays.shape[1]:
                self._span_plays = np.pad(self._span_plays, ((0, 0), (0, arm + 1 - self._span_plays.shape[1])))
            self._span_plays[span, arm] += number

    def settle(self, rows: Sequence[Open]) -> None:
        """Count what decisions earned, in the order of the decisions."""
        self.counts["matured"] += len(rows)
        self._waiting += rows
        while len(self._waiting) >= TOGETHER:
            rows, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            self._add_up(rows)

    def _add_up(self, rows: Sequence[Open]) -> None:
        # an unknown number becomes NaN
        columns = zip(
            *(
                (one.time, one.reward, one.propensity, one.offered, one.place, *(one.weights or _UNKNOWN))
                for one in rows
            ),
            strict=True,
        )
        time, reward, propensity, offered, place, policy, challenger = (np.array(one, dtype=float) for one in columns)
        arms, group = np.array([one.arm for one in rows]), np.array([one.group for one in rows])
        known = ~np.isnan(propensity)
        missing = len(self.arms) - len(self._arms)
        if missing:
            self._arms = np.pad(self._arms, ((0, missing), (0, 0)))
            self._by_segment = np.pad(self._by_segment, ((0, 0), (0, 0), (0, missing), (0, 0)))
        ends = [float(reward.min()), float(reward.max())]
        self.range = ends if self.range is None else [min(ends[0], self.range[0]), max(ends[1], self.range[1])]
        # inverse propensities: uniform play chooses each of A actions with 1/A, a fixed arm with 1
        fixed = np.where(known, 1.0 / np.where(known, propensity, 1.0), 0.0)
        uniform = np.where(offered > 0, fixed / np.maximum(offered, 1.0), 0.0)
        earned, likely = _terms(reward, np.ones(len(rows))), _terms(reward, uniform)
        by_arm = _terms(reward, fixed)
        origin = np.zeros(len(rows), dtype=int)
        self._all = _add(self._all[None], origin, earned)[0]
        self._uniform = _add(self._uniform[None], origin, likely)[0]
        self._arms = _add(self._arms, arms, by_arm)
        spans = np.maximum(np.searchsorted(self.starts, time, side="right") - 1, 0)
        self._spans = _add(self._spans, (spans, 0), earned)
        self._spans = _add(self._spans, (spans, 1), likely)
        codes = np.frombuffer(b"".join(row.code for row in rows), dtype=np.uint8).reshape(len(rows), -1)
        # those without probabilities count as they are
        weighted = by_arm if known.all() else _terms(reward, np.where(known, fixed, 1.0))
        for column in range(codes.shape[1]):
            np.add.at(self._by_segment[column], (codes[:, column], arms), weighted)
        if self._trial is not None:
            self._trial = self._trial.after(reward, group, place, policy, challenger, codes)

    def restart_challenger(self) -> None:
        """Begin to compare the challenger anew: its traffic has changed."""
        self._add_up_all()
        if self._trial is not None:
            self._trial = self._trial.restarted()

    def _add_up_all(self) -> None:
        if self._waiting:
            rows, self._waiting = self._waiting, []
            self._add_up(rows)

    def view(self) -> Tally:
        """Return the tally with all rewards added up, to be read; this one is left as it is."""
        seen = copy(self)
        # these are changed in place
        for name in ("_by_segment", "_span_plays"):
            setattr(seen, name, getattr(self, name).copy())
        seen.starts, seen.plays, seen.counts = self.starts.copy(), self.plays.copy(), self.counts.copy()
        seen._add_up_all()
        return seen

    @property
    def trial(self) -> Trial | None:
        """The comparison of the groups; None without any. Read it of a :meth:`view`."""
        return self._trial

    @property
    def reward(self) -> dict[str, float | None]:
        """The mean of what was earned."""
        return estimate(self._all)

    @property
    def uniform(self) -> dict[str, float | None]:
        """The estimate of uniform play."""
        return estimate(self._uniform)

    def _span(self, time: float) -> int:
        """Return the place of the span of a time."""
        # most events are of the last span, or of one before it
        if not self.starts or time >= self.starts[-1] + self.width:
            start = math.floor(time / self.width) * self.width
            while self.starts and (start - self.starts[0]) / self.width >= BUCKETS:
                self._widen()
                start = math.floor(time / self.width) * self.width
            if not self.starts or start > self.starts[-1]:
                self.starts.append(start)
                self._spans = np.pad(self._spans, ((0, 1), (0, 0), (0, 0)))
                self._span_plays = np.pad(self._span_plays, ((0, 1), (0, 0)))
        return max(0, int(np.searchsorted(self.starts, time, side="right")) - 1)

    def _widen(self) -> None:
        self.width *= 2.0
        wide = [math.floor(start / self.width) * self.width for start in self.starts]
        self.starts = sorted(set(wide))
        places = np.searchsorted(self.starts, wide)
        spans = np.zeros((len(self.starts), *self._spans.shape[1:]))
        plays = np.zeros((len(self.starts), self._span_plays.shape[1]), dtype=np.int64)
        np.add.at(spans, places, self._spans)
        np.add.at(plays, places, self._span_plays)
        self._spans, self._span_plays = spans, plays

    def best_arm(self) -> dict[str, Any] | None:
        """Return the arm with the largest estimate among those rewarded often enough, and the estimate."""
        names = list(self.arms)
        known = [place for place, sums in enumerate(self._arms) if sums[0] >= FEWEST]
        if not known:
            return None
        best = max(known, key=lambda place: self._arms[place][2] / self._arms[place][1])
        return {"arm": names[best], **estimate(self._arms[best])}

    def report(self) -> dict[str, Any]:
        """Return all numbers of a :meth:`view` as JSON has them."""
        names, order = list(self.arms), np.argsort([-plays for plays in self.plays], kind="stable")
        sums = np.vstack([self._arms, np.zeros((len(names) - len(self._arms), WIDTH))])
        return {
            "counts": dict(self.counts),
            "reward": self.reward,
            "uniform": self.uniform,
            "best_arm": self.best_arm(),
            "arms": [{"arm": names[one], "plays": self.plays[one], **estimate(sums[one])} for one in order],
            "width": self.width,
            "series": [
                {
                    "time": start,
                    "reward": estimate(self._spans[place, 0]),
                    "uniform": estimate(self._spans[place, 1]),
                    "plays": {names[arm]: int(n) for arm, n in enumerate(self._span_plays[place]) if n},
                }
                for place, start in enumerate(self.starts)
            ],
        }

    def by_segment(self, column: str) -> list[dict[str, Any]]:
        """Return, for each segment of a column, the share and the mean reward of each arm."""
        names, place = list(self.arms), self.segments.columns.index(column)
        found = []
        for number, label in enumerate(self.segments.labels(column)):
            sums = self._by_segment[place, number]
            total = float(sums[:, 0].sum())
            if total:
                order = np.argsort(-sums[:, 0], kind="stable")
                arms = [
                    {"arm": names[arm], "share": float(sums[arm, 0]) / total, **estimate(sums[arm])}
                    for arm in order
                    if sums[arm, 0]
                ]
                found.append({"segment": label, "count": int(total), "arms": arms})
        return found

    _NUMBERS = ("counts", "arms", "plays", "range", "width", "starts")
    _ARRAYS = ("_spans", "_span_plays", "_all", "_uniform", "_arms", "_by_segment")

    def dump(self) -> dict[str, Any]:
        """Return the state as JSON has it."""
        arrays = {name: [getattr(self, name).shape, getattr(self, name).ravel().tolist()] for name in self._ARRAYS}
        return {
            **{name: getattr(self, name) for name in self._NUMBERS},
            **arrays,
            "waiting": [one.dump() for one in self._waiting],
            "segments": self.segments.dump(),
            "trial": None if self._trial is None else msgspec.to_builtins(self._trial),
        }

    @classmethod
    def load(cls, settings: LoopSettings, state: dict[str, Any]) -> Tally:
        """Return the tally that :meth:`dump` wrote."""
        tally = cls(settings)
        for name in cls._NUMBERS:
            setattr(tally, name, state[name])
        for name in cls._ARRAYS:
            shape, values = state[name]
            setattr(tally, name, np.array(values, dtype=getattr(tally, name).dtype).reshape(shape))
        tally._waiting = list(map(Open.load, state["waiting"]))
        tally.segments.load(state["segments"])
        if state["trial"] is not None:
            tally._trial = msgspec.convert(state["trial"], Trial)
        return tally
