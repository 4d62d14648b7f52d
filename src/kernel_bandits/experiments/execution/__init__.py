"""Execution of runs: in this process, in worker processes, on a Dask cluster, or many at once on a GPU."""

from kernel_bandits.experiments.execution.base import Engine, Executor, Failure, Outcome, execute
from kernel_bandits.experiments.execution.dispatch import executor

__all__ = ["Engine", "Executor", "Failure", "Outcome", "execute", "executor"]
