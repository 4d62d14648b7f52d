"""Running sums over the log of a loop: rewards over time, arms, and what other ways to play would have earned."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add, mul
from typing import Any

BUCKETS = 120
FIRST_WIDTH = 1.0
# Estimates of an arm that was rewarded less often are not shown.
FEWEST = 10
# Arms beyond this number are counted together, so that the tally stays small whatever callers offer.
MOST_ARMS, OTHERS = 200, "all others"


class Sums:
    """Sums of weighted rewards; the self-normalised estimate Σwr/Σw and its standard error.

    The error is that of a ratio: √Σw²(r − v)² / Σw.
    """

    __slots__ = ("count", "weight", "weighted", "ww", "wwr", "wwrr")

    def __init__(self, values: list[float] | None = None) -> None:
        self.count, self.weight, self.weighted, self.ww, self.wwr, self.wwrr = values or [0, 0.0, 0.0, 0.0, 0.0, 0.0]

    def add(self, rewards: Sequence[float], weights: Sequence[float]) -> None:
        """Add rewards with their weights, one after the other."""
        # sum() of floats is another number from Python 3.12 on; the state must not depend on who replays the log
        squares = list(map(mul, weights, weights))
        scaled = list(map(mul, squares, rewards))
        self.count += len(rewards)
        self.weight = reduce(add, weights, self.weight)
        self.weighted = reduce(add, map(mul, weights, rewards), self.weighted)
        self.ww = reduce(add, squares, self.ww)
        self.wwr = reduce(add, scaled, self.wwr)
        self.wwrr = reduce(add, map(mul, scaled, rewards), self.wwrr)

    def add_equal(self, rewards: Sequence[float]) -> None:
        """Add rewards of weight 1 to those of weight 1, one after the other."""
        self.count += len(rewards)
        self.weight += len(rewards)
        self.ww += len(rewards)
        self.weighted = self.wwr = reduce(add, rewards, self.weighted)
        self.wwrr = reduce(add, map(mul, rewards, rewards), self.wwrr)

    def merge(self, other: Sums) -> None:
        """Add all that another has summed."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def values(self) -> list[float]:
        """The sums, as the constructor takes them."""
        return [self.count, self.weight, self.weighted, self.ww, self.wwr, self.wwrr]

    def estimate(self) -> dict[str, float | None]:
        """Return the mean, its standard error, and the number of rewards; None where there are too few."""
        if not self.weight:
            return {"mean": None, "error": None, "count": int(self.count)}
        mean = self.weighted / self.weight
        squares = self.wwrr - 2.0 * mean * self.wwr + mean * mean * self.ww
        error = math.sqrt(max(squares, 0.0)) / self.weight if self.count > 1 else None
        return {"mean": mean, "error": error, "count": int(self.count)}


class Bucket:
    """The sums of one span of time."""

    __slots__ = ("plays", "reward", "start", "uniform")

    def __init__(self, start: float) -> None:
        self.start = start
        self.reward, self.uniform = Sums(), Sums()
        self.plays: dict[str, int] = {}

    def merge(self, other: Bucket) -> None:
        """Add all that another span has."""
        self.reward.merge(other.reward)
        self.uniform.merge(other.uniform)
        for arm, count in other.plays.items():
            self.plays[arm] = self.plays.get(arm, 0) + count

    def dump(self) -> list[Any]:
        return [self.start, self.reward.values, self.uniform.values, self.plays]

    @classmethod
    def load(cls, state: list[Any]) -> Bucket:
        bucket = cls(state[0])
        bucket.reward, bucket.uniform, bucket.plays = Sums(state[1]), Sums(state[2]), dict(state[3])
        return bucket


class Tally:
    """What the page shows of a loop, in bounded memory: spans of time double in width as the log grows."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("decisions", "rewards", "silent", "expired", "late", "agreed", "unlearned"), 0)
        self.arms: dict[str, Sums] = {}
        self.plays: dict[str, int] = {}
        self.width = FIRST_WIDTH
        self.buckets: list[Bucket] = []

    def count(self, what: str) -> None:
        """Count something that happened."""
        self.counts[what] += 1

    def play(self, time: float, arms: Iterable[str]) -> None:
        """Count the arms of actions that were played at one time."""
        plays = self._bucket(time).plays
        # in the order in which they were played: it decides which arms are known
        for name, count in Counter(arms).items():
            arm = self._known(name)
            self.plays[arm] = self.plays.get(arm, 0) + count
            plays[arm] = plays.get(arm, 0) + count

    def earn(self, time: float, earned: Sequence[tuple[float, str, float | None, int]]) -> None:
        """Add rewards that came at one time, each of an arm that was chosen with a probability among some actions."""
        drawn, shares = [], []
        fixed: dict[str, tuple[list[float], list[float]]] = {}
        for reward, arm, propensity, offered in earned:
            if propensity:
                # inverse propensities: uniform play chooses each of A actions with 1/A, a fixed arm with 1
                drawn.append(reward)
                shares.append(1.0 / (offered * propensity))
                own = fixed.get(arm)
                if own is None:
                    own = fixed[arm] = ([], [])
                own[0].append(reward)
                own[1].append(1.0 / propensity)
        bucket = self._bucket(time)
        bucket.reward.add_equal([one[0] for one in earned])
        bucket.uniform.add(drawn, shares)
        for arm, (rewards, weights) in fixed.items():
            self.arms.setdefault(self._known(arm), Sums()).add(rewards, weights)

    @property
    def reward(self) -> Sums:
        """The sums of all rewards."""
        return _total(bucket.reward for bucket in self.buckets)

    @property
    def uniform(self) -> Sums:
        """The sums that estimate uniform play."""
        return _total(bucket.uniform for bucket in self.buckets)

    def _known(self, arm: str) -> str:
        return arm if arm in self.plays or len(self.plays) < MOST_ARMS else OTHERS

    def _bucket(self, time: float) -> Bucket:
        # most events are of the last span, or of one before it
        if self.buckets and time < self.buckets[-1].start + self.width:
            return self.buckets[-1]
        start = math.floor(time / self.width) * self.width
        if not self.buckets or start > self.buckets[-1].start:
            while self.buckets and (start - self.buckets[0].start) / self.width >= BUCKETS:
                self._widen()
                start = math.floor(time / self.width) * self.width
            if not self.buckets or start > self.buckets[-1].start:
                self.buckets.append(Bucket(start))
        return self.buckets[-1]

    def _widen(self) -> None:
        self.width *= 2.0
        merged: list[Bucket] = []
        for bucket in self.buckets:
            bucket.start = math.floor(bucket.start / self.width) * self.width
            if merged and merged[-1].start == bucket.start:
                merged[-1].merge(bucket)
            else:
                merged.append(bucket)
        self.buckets = merged

    def best_arm(self) -> tuple[str, dict[str, float | None]] | None:
        """Return the arm with the largest estimate among those rewarded often enough, and the estimate."""
        known = {arm: sums for arm, sums in self.arms.items() if sums.count >= FEWEST}
        if not known:
            return None
        best = max(known, key=lambda arm: known[arm].weighted / known[arm].weight)
        return best, known[best].estimate()

    def report(self) -> dict[str, Any]:
        """Return all numbers as JSON has them."""
        best = self.best_arm()
        return {
            "counts": dict(self.counts),
            "reward": self.reward.estimate(),
            "uniform": self.uniform.estimate(),
            "best_arm": None if best is None else {"arm": best[0], **best[1]},
            "arms": [
                {"arm": arm, "plays": plays, **self.arms.get(arm, Sums()).estimate()}
                for arm, plays in sorted(self.plays.items(), key=lambda item: -item[1])[:50]
            ],
            "width": self.width,
            "series": [
                {
                    "time": one.start,
                    "reward": one.reward.estimate(),
                    "uniform": one.uniform.estimate(),
                    "plays": dict(one.plays),
                }
                for one in self.buckets
            ],
        }

    def dump(self) -> dict[str, Any]:
        """Return the state as JSON has it."""
        return {
            "counts": self.counts,
            "arms": {arm: sums.values for arm, sums in self.arms.items()},
            "plays": self.plays,
            "width": self.width,
            "buckets": [bucket.dump() for bucket in self.buckets],
        }

    @classmethod
    def load(cls, state: dict[str, Any]) -> Tally:
        """Return the tally that :meth:`dump` wrote."""
        tally = cls()
        tally.counts = dict(state["counts"])
        tally.arms = {arm: Sums(values) for arm, values in state["arms"].items()}
        tally.plays, tally.width = dict(state["plays"]), state["width"]
        tally.buckets = [Bucket.load(bucket) for bucket in state["buckets"]]
        return tally


def _total(parts: Iterable[Sums]) -> Sums:
    total = Sums()
    for part in parts:
        total.merge(part)
    return total
