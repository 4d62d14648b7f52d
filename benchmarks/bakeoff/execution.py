"""Where cells are played: in workers on this machine, or on a Dask cluster whose machines share the folder.

A task is one library on one table with one seed: its cells run in one worker process, which imports the library once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile

from bakeoff.records import Cell

WORKER = Path(__file__).with_name("worker.py")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Task:
    """Cells that run in one worker process.

    Attributes:
        python: the interpreter of the library's environment.
        problem: the prepared problem.
        records: the folder of records.
        cells: of one table, library and seed.
    """

    python: str
    problem: Path
    records: Path
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Ended:
    """How a cell ended; ``error`` is empty if its record was written."""

    cell: Cell
    error: str


def tasks_of(cells: Iterable[Cell], pythons: dict[str, str], problems: dict[str, Path], records: Path) -> list[Task]:
    """Return the cells without a record as tasks: the first shuffle of every table first, small tables first."""

    def task(cell: Cell) -> tuple[int, int, str, str]:
        return cell.seed, cell.horizon, cell.table, cell.library

    missing = sorted((cell for cell in cells if not (records / cell.path).exists()), key=task)
    return [
        Task(pythons[library], problems[table], records, tuple(group))
        for (_, _, table, library), group in groupby(missing, key=task)
    ]


def play_task(
    task: Task,
    report: Callable[[Ended], None] = lambda _: None,
    started: Callable[[int], None] = lambda _: None,
) -> list[Ended]:
    """Play a task in a worker and return how its cells ended.

    Args:
        task: the cells.
        report: takes each cell as it ends.
        started: takes the id of the worker's process group.
    """
    content = {
        "problem": str(task.problem),
        "records": str(task.records),
        "cells": [{**asdict(cell), "settings": dict(cell.settings)} for cell in task.cells],
    }
    ended = []
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(
            [task.python, "-W", "ignore", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # an interrupt is for us; we end the workers
        ) as process,
    ):
        started(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(content, process.stdin)
        process.stdin.close()
        for cell, line in zip(task.cells, process.stdout, strict=False):
            ended.append(Ended(cell, json.loads(line)["error"]))
            report(ended[-1])
        process.wait()
        errors.seek(0)
        trouble = errors.read().strip()[-2000:]
    for cell in task.cells[len(ended) :]:
        ended.append(Ended(cell, f"the worker ended early: {trouble}"))
        report(ended[-1])
    return ended


def play_here(tasks: Sequence[Task], jobs: int, report: Callable[[Ended], None]) -> Iterator[list[Ended]]:
    """Play tasks in this many workers at a time; whoever stops the iteration ends the workers."""
    groups: list[int] = []
    stopped = threading.Event()

    def tell(ended: Ended) -> None:
        if not stopped.is_set():
            report(ended)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(play_task, task, tell, groups.append) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for group in groups:
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGTERM)
            raise


def play_on_cluster(tasks: Sequence[Task], address: str, report: Callable[[Ended], None]) -> Iterator[list[Ended]]:
    """Play tasks on the workers of a Dask scheduler."""
    import distributed

    with distributed.Client(address, set_as_default=False) as client:  # type: ignore[no-untyped-call] # annotated in part
        futures = client.map(play_task, tasks, pure=False)
        for future in distributed.as_completed(futures, loop=client.loop):  # type: ignore[no-untyped-call] # the same
            ended: list[Ended] = future.result()
            for one in ended:
                report(one)
            yield ended
