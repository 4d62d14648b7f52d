"""Where runs are played: here, in processes beside each other, on a cluster, or many at once on a GPU.

An executor takes runs and yields the outcome of each, in whatever order they finish.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from threading import Thread
from time import perf_counter, sleep, thread_time
from typing import Any, Literal, TypeAlias

from kernel_bandits.arrays import as_count
from kernel_bandits.errors import InputError, MissingPackageError, UnavailableError, missing
from kernel_bandits.experiments.facts import machine_facts
from kernel_bandits.experiments.loop import run as play
from kernel_bandits.experiments.records import Record, RunResult
from kernel_bandits.experiments.study import Run
from kernel_bandits.experiments.travel import pack, unpack
from kernel_bandits.numerics.blas_threads import single_threaded

# How long a worker process without work waits for more, in seconds.
IDLE_SECONDS = 20
# Libraries that read these make no threads that would never be used.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that could not be played.

    Attributes:
        run: its settings.
        message: what went wrong, in one line.
        details: the traceback, as far as there is one.
    """

    run: Run
    message: str
    details: str = ""


Outcome: TypeAlias = Record | Failure
Executor: TypeAlias = Callable[[Sequence[Run]], Iterator[Outcome]]
Answer: TypeAlias = tuple[RunResult, dict[str, Any]] | tuple[str, str]


def executor(
    jobs: int = 1,
    scheduler: str | None = None,
    device: Literal["cpu", "gpu", "auto"] = "cpu",
    tell: Callable[[str], None] = print,
) -> Executor:
    """Where to play runs.

    Args:
        jobs: worker processes on this machine, each with one BLAS thread; with 1 the runs are played in this process.
        scheduler: address of a Dask scheduler, as ``"tcp://host:8786"``; its workers play the runs instead.
        device: ``"gpu"`` plays the runs that :mod:`kernel_bandits.accelerated` can play many at once, and the others as
            the first two say; ``"auto"`` does so if JAX is installed and sees a GPU.
        tell: takes a line about runs that are not for the GPU.
    """
    if device not in ("cpu", "gpu", "auto"):
        raise InputError(f"device: expected 'cpu', 'gpu' or 'auto', got {device!r}.")
    if scheduler is not None:
        from kernel_bandits.experiments.cluster import on_cluster

        one_by_one: Executor = partial(on_cluster, address=scheduler)
    else:
        one_by_one = _here if as_count("jobs", jobs) == 1 else partial(_in_processes, jobs=jobs)
    if device == "cpu":
        return one_by_one
    try:
        from kernel_bandits.accelerated.studies import has_gpu, on_device
    except MissingPackageError:
        if device == "gpu":
            raise
        return one_by_one
    return partial(on_device, otherwise=one_by_one, tell=tell) if device == "gpu" or has_gpu() else one_by_one


def play_run(run: Run) -> Record:
    """Play one run in this process.

    With one BLAS thread, so that the record does not depend on how many there are, and timed by the processor time of
    that thread, which other work on the machine does not disturb.
    """
    policy, environment = run.build()
    started, clock = datetime.now(UTC), perf_counter()
    with single_threaded():
        result = play(policy, environment, run.horizon, run.seed, clock=thread_time)
    facts = {"started": started.isoformat(timespec="seconds"), "seconds": perf_counter() - clock, **machine_facts()}
    return Record(run, result, facts)


def answer(payload: bytes) -> Answer:
    """What a worker does with a packed run: the result and facts of its record, or what went wrong."""
    try:
        record = play_run(unpack(payload))
    except Exception as reason:
        return f"{type(reason).__name__}: {reason}", traceback.format_exc()
    return record.result, dict(record.facts)


def outcome_of(run: Run, answered: Answer) -> Outcome:
    """What :func:`answer` says of a run."""
    first, second = answered
    if isinstance(first, RunResult) and isinstance(second, dict):
        return Record(run, first, second)
    return Failure(run, str(first), str(second))


def _here(runs: Sequence[Run]) -> Iterator[Outcome]:
    for run, payload in zip(runs, pack(runs), strict=True):
        yield outcome_of(run, answer(payload))


def _in_processes(runs: Sequence[Run], jobs: int) -> Iterator[Outcome]:
    if not runs:
        return
    try:
        from joblib.externals import loky
    except ImportError as reason:
        raise missing("joblib", "experiments") from reason
    pool = loky.get_reusable_executor(
        jobs, timeout=IDLE_SECONDS, env=_ONE_THREAD, initializer=_start_worker, initargs=(os.getpid(),)
    )
    left = iter(zip(runs, pack(runs), strict=True))
    waiting: dict[Future[Answer], Run] = {}
    try:
        while True:
            # A few ahead of the workers, not all: a pool that is stopped fails if runs still wait to be handed over.
            for run, payload in islice(left, 2 * jobs - len(waiting)):
                waiting[pool.submit(answer, payload)] = run
            if not waiting:
                return
            done = wait(waiting, return_when=FIRST_COMPLETED).done
            for future in sorted(done, key=lambda future: future.exception() is not None):
                yield outcome_of(waiting[future], future.result())
                del waiting[future]
    except loky.BrokenProcessPool as reason:
        raise UnavailableError(
            "A worker process was killed, perhaps for want of memory; what is finished is kept. "
            "Run again to go on, with fewer jobs if memory was short."
        ) from reason
    except KeyboardInterrupt:
        for future, run in waiting.items():
            if future.done() and future.exception() is None:
                yield outcome_of(run, future.result())
        raise
    finally:
        if waiting:
            pool.shutdown(kill_workers=True)


def _start_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and go when it is gone, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1.0)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
