"""Playing the runs of a study that have no record yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_bandits.experiments.loop import run as play
from kernel_bandits.experiments.records import Record
from kernel_bandits.experiments.study import Run


def play_run(run: Run) -> Record:
    """Play one run in this process."""
    policy, environment = run.build()
    return Record(run, play(policy, environment, run.horizon, run.seed), {})


def execute(runs: Sequence[Run]) -> Iterator[Record]:
    """Play runs and yield the record of each as it finishes."""
    for run in runs:
        yield play_run(run)
