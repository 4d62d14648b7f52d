"""Execute runs on this machine: in this process, or in worker processes."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from time import sleep
from typing import Any

from kernel_bandits.errors import UnavailableError, needs
from kernel_bandits_lab.execution.base import Outcome, Reply, execute_serialized, outcome_of
from kernel_bandits_lab.execution.serialization import serialize
from kernel_bandits_lab.study.specification import Run

# How long an idle worker process waits for another run, in seconds.
IDLE_SECONDS = 20
# The thread of a pool that hands runs over to the worker processes.
HANDING_OVER = "ExecutorManagerThread"
# Libraries that read these start no threads that would never be used.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def in_this_process(runs: Sequence[Run]) -> Iterator[Outcome]:
    """Execute runs one after the other."""
    for run, payload in zip(runs, serialize(runs), strict=True):
        yield outcome_of(run, execute_serialized(payload))


def in_processes(runs: Sequence[Run], jobs: int) -> Iterator[Outcome]:
    """Execute runs in ``jobs`` worker processes with one BLAS thread each."""
    if not runs:
        return
    with needs("joblib", "kernel-bandits-lab"):
        from joblib.externals import loky
    pool = loky.get_reusable_executor(
        jobs, timeout=IDLE_SECONDS, env=_ONE_THREAD, initializer=_start_worker, initargs=(os.getpid(),)
    )
    left = iter(zip(runs, serialize(runs), strict=True))
    waiting: dict[Future[Reply], Run] = {}
    try:
        while True:
            # Submit only a few runs ahead: a pool that is stopped fails if runs still wait to be handed over.
            for run, payload in islice(left, 2 * jobs - len(waiting)):
                waiting[pool.submit(execute_serialized, payload)] = run
            if not waiting:
                return
            done = wait(waiting, return_when=FIRST_COMPLETED).done
            for future in sorted(done, key=lambda future: future.exception() is not None):
                yield outcome_of(waiting[future], future.result())
                del waiting[future]
    except loky.BrokenProcessPool as reason:
        raise UnavailableError(
            "A worker process was killed, perhaps because memory ran out. Finished runs are kept. "
            "Run the command again to continue, with fewer jobs if memory is short."
        ) from reason
    except KeyboardInterrupt:
        for future, run in waiting.items():
            if future.done() and future.exception() is None:
                yield outcome_of(run, future.result())
        raise
    finally:
        if waiting:
            _stop(pool)


def _stop(pool: Any) -> None:
    """Stop a pool with runs that wait; the thread that hands them over may fail on those, which is no news."""
    shown = threading.excepthook

    def show(failure: threading.ExceptHookArgs) -> None:
        if failure.thread is None or failure.thread.name != HANDING_OVER:
            shown(failure)

    threading.excepthook = show
    try:
        pool.shutdown(kill_workers=True)
    finally:
        threading.excepthook = shown


def _start_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and exit when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
