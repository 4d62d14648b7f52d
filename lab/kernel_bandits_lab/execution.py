"""Execution of runs: in this process, in worker processes, on a Dask cluster, or many at once on a GPU."""

import hashlib
import os
import pickle
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter, sleep, thread_time
from types import ModuleType
from typing import Any, Literal, TypeAlias

from kernel_bandits.arrays import as_count
from kernel_bandits.errors import InputError, MissingPackageError, UnavailableError, needs
from kernel_bandits.loop import RunResult
from kernel_bandits.loop import run as run_loop
from kernel_bandits.numerics.linalg import single_threaded
from kernel_bandits_lab.results import Record, provenance
from kernel_bandits_lab.study import Component, Run

_INSTALLED = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def serialize(runs: Iterable[Run]) -> list[bytes]:
    """Return the runs as bytes that :func:`deserialize` reads in any process that has this library."""
    with needs("cloudpickle", "kernel-bandits-lab"):
        import cloudpickle
    runs = list(runs)
    with _by_value(cloudpickle, _modules_in(_own_folders(runs))):
        return [cloudpickle.dumps(run) for run in runs]


def deserialize(payload: bytes) -> Run:
    """Return the run that :func:`serialize` wrote."""
    return pickle.loads(payload)


def code_digests(runs: Iterable[Run]) -> dict[str, str]:
    """Return, by run id, a digest of the study's own code that the run uses; empty if it uses none."""
    digests: dict[frozenset[Path], str] = {}
    found = {}
    for run in runs:
        folders = _own_folders([run])
        if folders not in digests:
            files = sorted({Path(module.__file__ or "") for module in _modules_in(folders)})
            content = b"".join(file.read_bytes() for file in files if file.is_file())
            digests[folders] = hashlib.sha256(content).hexdigest()[:12] if files else ""
        found[run.id] = digests[folders]
    return found


def own_files(runs: Iterable[Run]) -> list[Path]:
    """Return the files of the study's own code that runs use."""
    files = {Path(module.__file__ or "") for module in _modules_in(_own_folders(runs))}
    return sorted(file for file in files if file.is_file())


@contextmanager
def _by_value(cloudpickle: Any, modules: Iterable[ModuleType]) -> Iterator[None]:
    registered = [module for module in modules if module.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _own_folders(runs: Iterable[Run]) -> frozenset[Path]:
    """Return the folders that the study's own factories were imported from."""
    factories = {id(factory): factory for run in runs for factory in _factories((run.environment, run.policy))}
    names = {getattr(factory, "__module__", None) for factory in factories.values()}
    folders = (_folder(sys.modules[name]) for name in names if name in sys.modules)
    return frozenset(folder for folder in folders if folder is not None)


def _modules_in(folders: frozenset[Path]) -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if _folder(module) in folders] if folders else []


def _factories(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Component):
            yield value.factory
            yield from _factories(value.options.values())
        elif isinstance(value, tuple):
            yield from _factories(value)


def _folder(module: ModuleType) -> Path | None:
    """Return the folder of a module; None if it is installed, built in, or part of this library."""
    top = sys.modules.get(getattr(module, "__name__", "").partition(".")[0])
    file = getattr(top, "__file__", None)
    if top is None or file is None or top.__name__ in ("kernel_bandits", "__main__"):
        return None
    path = Path(file)
    folder = path.parent.parent if path.stem == "__init__" else path.parent
    return None if folder in _INSTALLED else folder


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed.

    Attributes:
        run: its settings.
        message: what went wrong, in one line.
        details: the traceback, if there is one.
    """

    run: Run
    message: str
    details: str = ""


Outcome: TypeAlias = Record | Failure
# Takes runs and yields the outcome of each, in the order in which they finish.
Executor: TypeAlias = Callable[[Sequence[Run]], Iterator[Outcome]]
# What a worker sends back: result and provenance, or message and traceback.
Reply: TypeAlias = tuple[RunResult, dict[str, Any]] | tuple[str, str]


def execute(run: Run) -> Record:
    """Execute one run in this process.

    BLAS uses one thread, so the result does not depend on the number of cores. Times are processor times of this
    thread, which other work on the machine does not disturb.
    """
    policy, environment = run.build()
    started, clock = datetime.now(UTC), perf_counter()
    with single_threaded():
        result = run_loop(policy, environment, run.horizon, run.seed, clock=thread_time)
    times = {"started": started.isoformat(timespec="seconds"), "seconds": perf_counter() - clock}
    return Record(run, result, {**times, **provenance()})


def execute_serialized(payload: bytes) -> Reply:
    """Execute a serialized run in a worker."""
    try:
        record = execute(deserialize(payload))
    except Exception as reason:
        return f"{type(reason).__name__}: {reason}", traceback.format_exc()
    return record.result, dict(record.provenance)


def outcome_of(run: Run, reply: Reply) -> Outcome:
    """Return the outcome that a worker's reply stands for."""
    first, second = reply
    if isinstance(first, RunResult) and isinstance(second, dict):
        return Record(run, first, second)
    return Failure(run, str(first), str(second))


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


# How long to wait for a scheduler to respond, in seconds.
TIMEOUT = 10
# Runs sent to the scheduler in one message.
BATCH_SIZE = 500


def on_cluster(runs: Sequence[Run], address: str) -> Iterator[Outcome]:
    """Execute runs on the workers of the scheduler at an address, and yield outcomes as they finish."""
    if not runs:
        return
    with needs("distributed", "kernel-bandits-lab[cluster]"):
        import distributed
    with _client(address) as client:
        futures = client.map(execute_serialized, serialize(runs), pure=False, batch_size=BATCH_SIZE)
        waiting = dict(zip(futures, runs, strict=True))
        completed = distributed.as_completed(list(waiting), loop=client.loop)  # type: ignore[no-untyped-call] # annotated in part
        for future in completed:
            if future.status == "error":
                yield Failure(waiting.pop(future), f"the cluster could not execute it: {future.exception()}")
            elif future.status == "lost":
                # Its worker died before the result was fetched; the scheduler runs it again.
                completed.add(future)  # type: ignore[no-untyped-call] # the same
            else:
                yield outcome_of(waiting[future], _fetched(future, address))
                waiting.pop(future)


def _client(address: str) -> Any:
    import distributed
    from distributed.comm.addressing import get_address_host_port

    try:
        # A client of an invalid address would hang when it is closed.
        get_address_host_port(address, strict=True)
        return distributed.Client(address, timeout=TIMEOUT, set_as_default=False)  # type: ignore[no-untyped-call] # the same
    except ValueError as reason:
        raise InputError(
            f"scheduler: expected an address like tcp://host:8786, got {address!r} ({reason})."
        ) from reason
    except OSError as reason:
        raise UnavailableError(f"No Dask scheduler responds at {address} ({reason}); check the address.") from reason


def _fetched(future: Any, address: str) -> Reply:
    try:
        return future.result()
    except (OSError, CancelledError) as reason:
        raise UnavailableError(
            f"The connection to the scheduler at {address} was lost ({reason}). Finished runs are kept. "
            "Run the command again to continue."
        ) from reason


def executor(
    jobs: int = 1,
    scheduler: str | None = None,
    device: Literal["cpu", "gpu", "auto"] = "cpu",
    notify: Callable[[str], None] = print,
) -> Executor:
    """Return a function that takes runs and yields their outcomes.

    Args:
        jobs: worker processes on this machine, with one BLAS thread each; 1 uses this process.
        scheduler: address of a Dask scheduler, such as ``"tcp://host:8786"``, whose workers execute the runs instead.
        device: ``"gpu"`` executes the runs that :mod:`kernel_bandits_lab.accelerated` supports many at once, the others
            as above; ``"auto"`` does so if JAX is installed and sees a GPU.
        notify: takes a line about runs that the GPU does not execute.
    """
    if device not in ("cpu", "gpu", "auto"):
        raise InputError(f"device: expected 'cpu', 'gpu' or 'auto', got {device!r}.")
    fallback: Executor
    if scheduler is not None:
        fallback = partial(on_cluster, address=scheduler)
    else:
        fallback = in_this_process if as_count("jobs", jobs) == 1 else partial(in_processes, jobs=jobs)
    if device == "cpu":
        return fallback
    try:
        from kernel_bandits_lab.accelerated import studies
    except MissingPackageError:
        if device == "gpu":
            raise
        return fallback
    if device == "auto" and not studies.has_gpu():
        return fallback
    return partial(studies.execute_on_device, fallback=fallback, notify=notify)
