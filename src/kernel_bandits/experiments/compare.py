"""The comparison behind ``make run``: four environments, four policies, paired seeds.

What to run is data (:func:`cells`), running it yields records (:func:`play`), and :func:`group` and :func:`summarize`
are functions of those records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import stats

from kernel_bandits.arrays import FloatArray, InputError, as_count, missing
from kernel_bandits.environments import Bump, Chessboard, Environment, MovingOptimum, StepDiagonal
from kernel_bandits.experiments.loop import run
from kernel_bandits.experiments.records import RunResult
from kernel_bandits.kernels import Gaussian, KernelLike
from kernel_bandits.policies import Policy, ek_ucb, k_ucb, uniform

# The variance of the environments' reward noise (standard deviation 0.1): the λ of a well-specified model.
REGULARIZATION = 0.01
COVERAGE = 0.95


@dataclass(frozen=True, slots=True)
class Problem:
    """An environment and the kernel every policy is given there.

    Attributes:
        label: its name in tables and figures.
        build: makes the environment; a module-level callable, so that it can be sent to another process.
        lengthscale: of the Gaussian kernel, in the units of contexts and actions.
    """

    label: str
    build: Callable[[], Environment]
    lengthscale: float


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy to compare.

    Attributes:
        label: its name in tables and figures.
        build: makes the policy from a kernel and a seed; a module-level callable, as for :class:`Problem`.
    """

    label: str
    build: Callable[[KernelLike, int], Policy]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the comparison: who plays what, with which seed, for how many rounds."""

    problem: Problem
    contender: Contender
    seed: int
    horizon: int

    @property
    def label(self) -> str:
        """The run in words."""
        return f"{self.problem.label}, {self.contender.label}, seed {self.seed}"


Outcome: TypeAlias = tuple[Cell, RunResult]
Groups: TypeAlias = dict[str, dict[str, list[RunResult]]]


@dataclass(frozen=True, slots=True)
class Summary:
    """What the runs of one policy in one environment say.

    Attributes:
        runs: n, how many there are.
        regret: mean cumulative regret after the last round, in reward units.
        regret_interval: half-width of its 95 % Student interval over the runs; NaN for a single run.
        dictionary_size: mean number of points that carry the model after the last round.
        round_microseconds: mean time of ``select`` and ``update`` over all rounds, those that add an anchor included.
    """

    runs: int
    regret: float
    regret_interval: float
    dictionary_size: float
    round_microseconds: float


def _ek_ucb(kernel: KernelLike, seed: int) -> Policy:
    return ek_ucb(kernel, regularization=REGULARIZATION, seed=seed)


def _ek_ucb_without_history(kernel: KernelLike, seed: int) -> Policy:
    return ek_ucb(kernel, regularization=REGULARIZATION, history="none", seed=seed)


def _k_ucb(kernel: KernelLike, seed: int) -> Policy:
    return k_ucb(kernel, regularization=REGULARIZATION, seed=seed)


def _uniform(kernel: KernelLike, seed: int) -> Policy:  # noqa: ARG001 (every contender is built alike)
    return uniform(seed=seed)


PROBLEMS = (
    Problem("Bump", Bump, 1.0),
    Problem("Chessboard", Chessboard, 0.1),
    Problem("StepDiagonal", StepDiagonal, 0.1),
    Problem("MovingOptimum", MovingOptimum, 0.5),
)
CONTENDERS = (
    Contender("EK-UCB", _ek_ucb),
    Contender("EK-UCB, no history", _ek_ucb_without_history),
    Contender("K-UCB", _k_ucb),
    Contender("Uniform", _uniform),
)


def cells(seeds: int, horizon: int) -> list[Cell]:
    """Every environment with every policy and the seeds 0 … seeds − 1.

    Seed by seed, so that a comparison stopped early has played the same seeds with every policy, but for the last.

    Args:
        seeds: how many, at least 2.
        horizon: T, rounds per run.
    """
    if as_count("seeds", seeds) < 2:
        raise InputError(f"seeds: expected at least 2, got {seeds}; one run says nothing about the spread.")
    horizon = as_count("horizon", horizon)
    return [
        Cell(problem, contender, seed, horizon)
        for seed in range(seeds)
        for problem in PROBLEMS
        for contender in CONTENDERS
    ]


def play_cell(cell: Cell) -> Outcome:
    """Run one cell; the seed serves policy and environment, so that policies meet the same contexts and noise."""
    policy = cell.contender.build(Gaussian(cell.problem.lengthscale), cell.seed)
    return cell, run(policy, cell.problem.build(), cell.horizon, cell.seed)


def play(planned: Iterable[Cell], jobs: int) -> Iterator[Outcome]:
    """Run cells in parallel and yield each with its record as it finishes, in whatever order that is.

    Args:
        planned: what to run.
        jobs: worker processes, each with one BLAS thread; with 1 the cells run in this process, with the BLAS threads
            it has.
    """
    try:
        from joblib import Parallel, delayed, parallel_config
    except ImportError as reason:
        raise missing("joblib", "experiments") from reason
    with parallel_config(backend="loky", inner_max_num_threads=1):
        # Runs take from hundredths of a second to several seconds; batches of them would be uneven.
        parallel = Parallel(n_jobs=as_count("jobs", jobs), return_as="generator_unordered", batch_size=1)
    outcomes: Iterator[Outcome] = parallel(delayed(play_cell)(cell) for cell in planned)
    return outcomes


def group(outcomes: Iterable[Outcome]) -> Groups:
    """The records by environment label, then policy label, then seed; in the order of :func:`cells`, not of arrival."""
    groups: Groups = {}
    for cell, result in sorted(outcomes, key=_position):
        groups.setdefault(cell.problem.label, {}).setdefault(cell.contender.label, []).append(result)
    return groups


def _position(outcome: Outcome) -> tuple[int, int, int]:
    cell, _ = outcome
    return PROBLEMS.index(cell.problem), CONTENDERS.index(cell.contender), cell.seed


def mean_interval(samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean over the first axis and half-width of its 95 % Student interval.

    Args:
        samples: shape (n, …), one row per run.

    Returns:
        Two arrays of shape (…); the half-width is NaN for n = 1.
    """
    n = len(samples)
    mean = samples.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    quantile = stats.t.ppf(0.5 + COVERAGE / 2, df=n - 1)
    return mean, quantile * samples.std(axis=0, ddof=1) / np.sqrt(n)


def summarize(runs: Sequence[RunResult]) -> Summary:
    """The summary of the runs, at least one, of one policy in one environment."""
    regret, half_width = mean_interval(np.array([result.regret[-1] for result in runs]))
    round_seconds = np.concatenate([result.select_seconds + result.update_seconds for result in runs])
    return Summary(
        runs=len(runs),
        regret=float(regret),
        regret_interval=float(half_width),
        dictionary_size=float(np.mean([result.dictionary_size[-1] for result in runs])),
        round_microseconds=1e6 * float(np.mean(round_seconds)),
    )
