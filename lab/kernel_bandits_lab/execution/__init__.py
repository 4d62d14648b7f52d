"""Execution of runs: in this process, in worker processes, on a Dask cluster, or many at once on a GPU."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Literal, cast

from kernel_bandits.arrays import as_count
from kernel_bandits.errors import InputError, MissingPackageError
from kernel_bandits_lab.execution.base import Engine, Executor, Failure, Outcome, execute
from kernel_bandits_lab.execution.cluster import on_cluster
from kernel_bandits_lab.execution.local import in_processes, in_this_process

__all__ = ["Engine", "Executor", "Failure", "Outcome", "execute", "executor"]
# Loaded by name: the accelerated package is a layer below this one, and needs JAX.
ENGINE = "kernel_bandits_lab.accelerated.studies"


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
        engine = cast(Engine, import_module(ENGINE))
    except MissingPackageError:
        if device == "gpu":
            raise
        return fallback
    if device == "auto" and not engine.has_gpu():
        return fallback
    return partial(engine.execute_on_device, fallback=fallback, notify=notify)
