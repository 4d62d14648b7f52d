"""Statistics over records: paired differences, wins and losses, ranks and their critical difference."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range, t

from bakeoff.libraries.base import Settings, digest
from bakeoff.problem import FloatArray
from bakeoff.records import Record

LEVEL = 0.95
Verdict: TypeAlias = Literal["win", "draw", "loss"]


@dataclass(frozen=True)
class Result:
    """An entry with one setting on one table.

    Attributes:
        library: the module of the library.
        entry: the algorithm.
        settings: what was set.
        rewards: the mean reward of each shuffle, in the order of seeds.
        milliseconds: mean time per row.
        megabytes: mean growth of memory.
        curve: rounds and mean reward so far, each a mean over shuffles, shape (points, 2).
    """

    library: str
    entry: str
    settings: Settings
    rewards: FloatArray
    milliseconds: float
    megabytes: float
    curve: FloatArray

    @property
    def mean(self) -> float:
        """The mean reward over shuffles."""
        return float(self.rewards.mean())


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences, the half-width of its 95 % Student interval, and the p-value of no difference."""

    mean: float
    half_width: float
    p_value: float = 1.0

    @property
    def verdict(self) -> Verdict:
        """Whether the interval lies above 0, below 0, or holds 0."""
        if self.mean > self.half_width:
            return "win"
        return "loss" if self.mean < -self.half_width else "draw"


@dataclass(frozen=True)
class Ranking:
    """Ranks of competitors over tables; 1 is best.

    Attributes:
        names: of the competitors.
        mean_ranks: in the order of names.
        tables: how many tables were ranked.
        p_value: of Friedman's test that all are alike.
        critical_difference: mean ranks further apart than this differ at 5 % (Nemenyi).
    """

    names: tuple[str, ...]
    mean_ranks: FloatArray
    tables: int
    p_value: float
    critical_difference: float


def results_of(records: Sequence[Record], seeds: int, most: Mapping[str, int | None] | None = None) -> list[Result]:
    """Return the results on one table of all settings that played every shuffle they had to.

    Args:
        records: of one table.
        seeds: how many shuffles there are.
        most: how many of them a library plays, by module, if not all.
    """
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.cell.library, record.cell.entry, digest(record.cell.settings)].append(record)
    results = []
    for (library, entry, _), group in groups.items():
        if len(group) == min(seeds, (most or {}).get(library) or seeds):
            group.sort(key=lambda record: record.cell.seed)
            results.append(
                Result(
                    library,
                    entry,
                    group[0].cell.settings,
                    np.array([record.reward for record in group]),
                    float(np.mean([record.milliseconds for record in group])),
                    float(np.mean([record.megabytes for record in group])),
                    mean_curve([record.curve for record in group]),
                )
            )
    return results


def mean_curve(curves: Sequence[Sequence[Sequence[float]]]) -> FloatArray:
    """Return the mean of learning curves at the rounds of the shortest, by linear interpolation."""
    arrays = [np.array(curve, dtype=float).reshape(-1, 2) for curve in curves]
    shortest = min(arrays, key=lambda curve: curve[-1, 0] if len(curve) else 0.0)
    if not len(shortest):
        return shortest
    rounds = shortest[:, 0]
    return np.column_stack((rounds, np.mean([np.interp(rounds, *curve.T) for curve in arrays], axis=0)))


def best_of(results: Sequence[Result], by: Literal["library", "entry"]) -> dict[str, Result]:
    """Return the result with the largest mean of each library or entry: its best in hindsight."""
    best: dict[str, Result] = {}
    for result in results:
        name = result.library if by == "library" else f"{result.library}: {result.entry}"
        if name not in best or result.mean > best[name].mean:
            best[name] = result
    return best


def paired(ours: FloatArray, theirs: FloatArray) -> Difference:
    """Return the mean difference over shuffles, which both met in the same order."""
    differences = ours - theirs
    count = len(differences)
    mean = float(differences.mean())
    if count < 2:
        return Difference(mean, math.inf)
    # mean ± t_{n−1, 0.975}·s/√n
    error = float(differences.std(ddof=1)) / math.sqrt(count)
    p_value = float(2.0 * t.sf(abs(mean) / error, count - 1)) if error else float(mean == 0.0)
    return Difference(mean, float(t.ppf(0.5 + LEVEL / 2, count - 1)) * error, p_value)


def holm(p_values: Sequence[float]) -> list[bool]:
    """Return which hypotheses of no difference fall at 5 % over all of them (Holm 1979).

    The i-th smallest of n p-values passes if it and all smaller ones are at most 5 %/(n + 1 − i).
    """
    falls = [False] * len(p_values)
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[place] > (1.0 - LEVEL) / (len(p_values) - rank):
            break
        falls[place] = True
    return falls


def tally(verdicts: Sequence[Verdict]) -> tuple[int, int, int]:
    """Return the numbers of wins, draws and losses."""
    return verdicts.count("win"), verdicts.count("draw"), verdicts.count("loss")


def ranking(rewards: Mapping[str, Mapping[str, float]]) -> Ranking:
    """Rank competitors on the tables that all of them played.

    Args:
        rewards: mean reward by table, then by competitor.
    """
    names = tuple(dict.fromkeys(name for by_name in rewards.values() for name in by_name))
    complete = [by_name for by_name in rewards.values() if len(by_name) == len(names)]
    scores = np.array([[by_name[name] for name in names] for by_name in complete])
    if len(complete) < 2 or len(names) < 3:
        ranks = rankdata(-scores, axis=1).mean(axis=0) if len(complete) else np.full(len(names), np.nan)
        return Ranking(names, ranks, len(complete), math.nan, critical_difference(len(names), len(complete)))
    ranks = rankdata(-scores, axis=1)
    p_value = float(friedmanchisquare(*scores.T).pvalue)
    return Ranking(names, ranks.mean(axis=0), len(complete), p_value, critical_difference(len(names), len(complete)))


def critical_difference(competitors: int, tables: int) -> float:
    """Return Nemenyi's critical difference at 5 % (Demšar 2006): q·√(k(k + 1)/(6N)), q = studentized range/√2."""
    if tables < 1 or competitors < 2:
        return math.nan
    quantile = float(studentized_range.ppf(LEVEL, competitors, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(competitors * (competitors + 1) / (6 * tables))


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return the longest runs of sorted ranks that are no further apart than a difference, as first and last index."""
    found: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = first
        while last + 1 < len(ranks) and ranks[last + 1] - ranks[first] <= difference:
            last += 1
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def normalised_loss(reward: float, uniform: float, skyline: float) -> float:
    """Return 0 at the reward of full information and 1 at that of uniform play, as the bake-off paper plots it."""
    return (skyline - reward) / (skyline - uniform) if skyline > uniform else math.nan
