"""Playing the runs of a study that have no record yet: here, in processes beside each other, or on a cluster.

An executor takes runs and yields the outcome of each, in whatever order they finish. Only the process that called it
keeps records, and one per run, so that a run that a cluster had to start twice is recorded once.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Thread
from time import perf_counter, sleep, thread_time
from typing import Any, TypeAlias

from kernel_bandits.arrays import InputError, UnavailableError, as_count, missing
from kernel_bandits.experiments.facts import machine_facts
from kernel_bandits.experiments.loop import run as play
from kernel_bandits.experiments.records import Record, RunResult
from kernel_bandits.experiments.storage import find_records, require_arrow, write_manifest, write_record
from kernel_bandits.experiments.study import Run, Study
from kernel_bandits.experiments.travel import own_code, pack, unpack
from kernel_bandits.threads import single_threaded

# How long to wait for a scheduler to answer, in seconds.
PATIENCE = 10
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


def executor(jobs: int = 1, scheduler: str | None = None) -> Executor:
    """Where to play runs.

    Args:
        jobs: worker processes on this machine, each with one BLAS thread; with 1 the runs are played in this process.
        scheduler: address of a Dask scheduler, as ``"tcp://host:8786"``; its workers play the runs instead.
    """
    if scheduler is not None:
        return partial(_on_cluster, address=scheduler)
    return _here if as_count("jobs", jobs) == 1 else partial(_in_processes, jobs=jobs)


class Sweep:
    """A study and the folder its records are kept in; the folder is made if it is not there.

    Attributes:
        study: what to run.
        folder: where records are kept.
        missing: runs without a whole record when the sweep was made.
        damaged: why a file cannot be read, by run id; their runs are among the missing.
        outdated: runs with a record by another version of the library, or of the study's own code. An id says what is
            run and not by which code, so they count as finished.
    """

    def __init__(self, study: Study, folder: str | Path) -> None:
        self.study = study
        self.folder = Path(folder)
        require_arrow()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_manifest(self.folder, study)
        except OSError as reason:
            raise InputError(f"{self.folder}: cannot be written to ({reason.strerror}); choose another.") from reason
        found, self.damaged = find_records(self.folder, study.runs)
        # One run may stand in a study under several labels; it is played once.
        to_play: dict[str, Run] = {}
        for run in study.runs:
            if run.id not in found:
                to_play.setdefault(run.id, run)
        self.missing = tuple(to_play.values())
        self.outdated = tuple(run for run in study.runs if run.id in found and _outdated(run, found[run.id]))

    def adopt(self, others: Iterable[str | Path]) -> None:
        """Take over records of missing runs from the folders of other studies: one run may belong to several."""
        for other in others:
            found, _ = find_records(Path(other), self.missing)
            for run in self.missing:
                if run.id in found:
                    write_record(self.folder, replace(found[run.id], run=run))
            self.missing = tuple(run for run in self.missing if run.id not in found)

    def play(self, play_runs: Executor) -> Iterator[Outcome]:
        """Play the missing runs, keep a record of each, and yield outcomes as they come.

        Args:
            play_runs: an :func:`executor`, or anything else that takes runs and yields their outcomes.
        """
        with _alone_in(self.folder):
            for outcome in play_runs(self.missing):
                if isinstance(outcome, Record):
                    facts = {**outcome.facts, "code": own_code(outcome.run)}
                    write_record(self.folder, replace(outcome, facts=facts))
                yield outcome


def _outdated(run: Run, record: Record) -> bool:
    facts = record.facts
    return facts.get("kernel_bandits") != machine_facts()["kernel_bandits"] or facts.get("code") != own_code(run)


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


def _outcome(run: Run, answered: Answer) -> Outcome:
    first, second = answered
    if isinstance(first, RunResult) and isinstance(second, dict):
        return Record(run, first, second)
    return Failure(run, str(first), str(second))


def _here(runs: Sequence[Run]) -> Iterator[Outcome]:
    for run, payload in zip(runs, pack(runs), strict=True):
        yield _outcome(run, answer(payload))


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
                yield _outcome(waiting[future], future.result())
                del waiting[future]
    except loky.BrokenProcessPool as reason:
        raise UnavailableError(
            "A worker process was killed, perhaps for want of memory; what is finished is kept. "
            "Run again to go on, with fewer jobs if memory was short."
        ) from reason
    except KeyboardInterrupt:
        for future, run in waiting.items():
            if future.done() and future.exception() is None:
                yield _outcome(run, future.result())
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


def _on_cluster(runs: Sequence[Run], address: str) -> Iterator[Outcome]:
    # Not by joblib's Dask backend: it waits forever for a run that killed its workers, and never uses more workers than
    # were there at the start, while those of a cluster come and go.
    if not runs:
        return
    try:
        import distributed
        from distributed.comm.addressing import get_address_host_port
    except ImportError as reason:
        raise missing("distributed", "cluster") from reason
    try:
        # A client of an address that makes no sense would hang when it is disposed of.
        get_address_host_port(address, strict=True)
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call] # annotated in part
    except ValueError as reason:
        raise InputError(f"scheduler: expected an address as tcp://host:8786, got {address!r} ({reason}).") from reason
    except OSError as reason:
        raise UnavailableError(f"No Dask scheduler answers at {address} ({reason}); check the address.") from reason
    with client:
        waiting = dict(zip(client.map(answer, pack(runs), pure=False), runs, strict=True))
        completed = distributed.as_completed(list(waiting), loop=client.loop)  # type: ignore[no-untyped-call] # the same
        for future in completed:
            if future.status == "error":
                yield Failure(waiting.pop(future), f"it could not be played on the cluster: {future.exception()}")
            elif future.status == "lost":
                # Its worker died before the result was fetched; the scheduler has it played again.
                completed.add(future)  # type: ignore[no-untyped-call] # the same
            else:
                yield _outcome(waiting[future], _fetched(future, address))
                waiting.pop(future)


def _fetched(future: Any, address: str) -> Answer:
    try:
        fetched: Answer = future.result()
    except (OSError, CancelledError) as reason:
        raise UnavailableError(
            f"The scheduler at {address} was lost ({reason}); what is finished is kept. Run again to go on."
        ) from reason
    return fetched
