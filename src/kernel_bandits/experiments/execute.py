"""Playing the runs of a study that have no record yet: here, in processes beside each other, or on a cluster.

An executor takes runs and yields the outcome of each, in whatever order they finish. Only the process that called it
keeps records, and one per run, so that a run that a cluster had to start twice is recorded once.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, TypeAlias

from kernel_bandits.arrays import InputError, KernelBanditsError, UnavailableError, as_count
from kernel_bandits.experiments.facts import machine_facts
from kernel_bandits.experiments.loop import run as play
from kernel_bandits.experiments.records import Record, RunResult
from kernel_bandits.experiments.storage import find_records, write_manifest, write_record
from kernel_bandits.experiments.study import Run, Study
from kernel_bandits.experiments.travel import pack, unpack
from kernel_bandits.threads import single_threaded

# How long to wait for a scheduler to answer, in seconds.
PATIENCE = 30


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


def executor(jobs: int = 1, scheduler: str | None = None) -> Executor:
    """Where to play runs.

    Args:
        jobs: worker processes on this machine, each with one BLAS thread; with 1 the runs are played in this process.
        scheduler: address of a Dask scheduler, as ``"tcp://host:8786"``; its workers play the runs instead.
    """
    if scheduler is not None:
        return partial(_on_cluster, address=scheduler)
    return partial(_in_processes, jobs=as_count("jobs", jobs))


class Sweep:
    """A study and the folder its records are kept in; the folder is made if it is not there.

    Attributes:
        study: what to run.
        folder: where records are kept.
        missing: runs without a whole record when the sweep was made.
        damaged: why a file cannot be read, by run id; their runs are among the missing.
    """

    def __init__(self, study: Study, folder: str | Path) -> None:
        self.study = study
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_manifest(self.folder, study)
        except OSError as reason:
            raise InputError(f"{self.folder}: cannot be written to ({reason.strerror}); choose another.") from reason
        found, self.damaged = find_records(self.folder, study.runs)
        # One run may stand in a study under several labels; it is played once.
        missing: dict[str, Run] = {}
        for run in study.runs:
            if run.id not in found:
                missing.setdefault(run.id, run)
        self.missing = tuple(missing.values())

    def play(self, play_runs: Executor) -> Iterator[Outcome]:
        """Play the missing runs, keep a record of each, and yield outcomes as they come.

        Args:
            play_runs: an :func:`executor`, or anything else that takes runs and yields their outcomes.
        """
        with _alone_in(self.folder):
            for outcome in play_runs(self.missing):
                if isinstance(outcome, Record):
                    write_record(self.folder, outcome)
                yield outcome


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Nobody else sweeps into the folder meanwhile; the lock goes with the process, however that ends."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnavailableError(
                f"{folder}: another sweep is at work there; wait for it or choose another."
            ) from None
        yield


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


def _answered(number: int, payload: bytes) -> tuple[int, Answer]:
    return number, answer(payload)


def _outcome(run: Run, answered: Answer) -> Outcome:
    first, second = answered
    if isinstance(first, RunResult) and isinstance(second, dict):
        return Record(run, first, second)
    return Failure(run, str(first), str(second))


def _in_processes(runs: Sequence[Run], jobs: int) -> Iterator[Outcome]:
    if not runs:
        return
    try:
        from joblib import Parallel, delayed, parallel_config
        from joblib.externals.loky.process_executor import TerminatedWorkerError
    except ImportError as reason:
        raise KernelBanditsError(
            "Runs in parallel need joblib; install it with: pip install 'kernel-bandits[experiments]'"
        ) from reason
    with parallel_config(backend="loky", inner_max_num_threads=1):
        # Runs take from hundredths of a second to minutes; batches of them would be uneven.
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    answers = parallel(delayed(_answered)(*numbered) for numbered in enumerate(pack(runs)))
    try:
        for number, answered in answers:
            yield _outcome(runs[number], answered)
    except TerminatedWorkerError as reason:
        raise UnavailableError(
            "A worker process was killed, perhaps for want of memory; what is finished is kept. "
            "Run again to go on, with fewer jobs if memory was short."
        ) from reason


def _on_cluster(runs: Sequence[Run], address: str) -> Iterator[Outcome]:
    # Not by joblib's Dask backend: it waits forever for a run that killed its workers, and never uses more workers than
    # were there at the start, while those of a cluster come and go.
    if not runs:
        return
    try:
        from distributed import Client, as_completed
        from distributed.scheduler import KilledWorker
    except ImportError as reason:
        raise KernelBanditsError(
            "A cluster needs Dask; install it with: pip install 'kernel-bandits[cluster]'"
        ) from reason
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call] # annotated in part
    except (OSError, ValueError) as reason:
        raise UnavailableError(f"No Dask scheduler answers at {address} ({reason}); check the address.") from reason
    with client:
        futures = dict(zip(client.map(answer, pack(runs), pure=False, retries=0), runs, strict=True))
        for future in as_completed(list(futures)):  # type: ignore[no-untyped-call] # the same
            run = futures.pop(future)
            if future.status == "finished":
                yield _outcome(run, future.result())
            elif future.status == "error" and isinstance(future.exception(), KilledWorker):
                yield Failure(run, f"its workers died, one after the other: {future.exception()}")
            else:
                raise UnavailableError(
                    f"The scheduler at {address} was lost ({future.status}); what is finished is kept. "
                    "Run again to go on."
                )
