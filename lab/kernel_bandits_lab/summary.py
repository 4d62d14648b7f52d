"""Means and confidence intervals over runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import stdtrit

from kernel_bandits.arrays import FloatArray
from kernel_bandits.loop import RunResult
from kernel_bandits_lab.results import Record

COVERAGE = 0.95
Groups: TypeAlias = dict[str, dict[str, list[RunResult]]]


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of the runs of one policy in one environment.

    Attributes:
        runs: n, the number of runs.
        regret: mean cumulative regret after the last round, in reward units.
        regret_interval: half-width of its 95 % Student interval over the runs; NaN for a single run.
        dictionary_size: mean number of points that carry the model after the last round.
        round_microseconds: mean time of ``select`` and ``update``, over all rounds.
    """

    runs: int
    regret: float
    regret_interval: float
    dictionary_size: float
    round_microseconds: float


def group(records: Iterable[Record]) -> Groups:
    """Return results by environment label, then by policy label, in order of appearance."""
    groups: Groups = {}
    for record in records:
        environment, policy = record.run.cell
        groups.setdefault(environment, {}).setdefault(policy, []).append(record.result)
    return groups


def mean_interval(samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of samples (n, …) over their n rows and the half-width of its 95 % Student interval.

    Both have shape (…); the half-width is NaN for n = 1.
    """
    n = len(samples)
    mean = samples.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    quantile = stdtrit(n - 1, 0.5 + COVERAGE / 2)
    return mean, quantile * samples.std(axis=0, ddof=1) / np.sqrt(n)


def summarize(runs: Sequence[RunResult]) -> Summary:
    """Return the summary of one or more runs of one policy in one environment."""
    regret, half_width = mean_interval(np.array([result.regret[-1] for result in runs]))
    round_seconds = np.concatenate([result.select_seconds + result.update_seconds for result in runs])
    return Summary(
        runs=len(runs),
        regret=float(regret),
        regret_interval=float(half_width),
        dictionary_size=float(np.mean([result.dictionary_size[-1] for result in runs])),
        round_microseconds=1e6 * float(np.mean(round_seconds)),
    )
