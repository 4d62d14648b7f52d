"""What executors share: outcomes, the execution of one run, and what a worker does with it."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter, thread_time
from typing import Any, Protocol, TypeAlias

from kernel_bandits.loop import RunResult
from kernel_bandits.loop import run as run_loop
from kernel_bandits.numerics.linalg import single_threaded
from kernel_bandits_lab.execution.serialization import deserialize
from kernel_bandits_lab.provenance import provenance
from kernel_bandits_lab.results import Record
from kernel_bandits_lab.study.specification import Run


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


class Engine(Protocol):
    """Executes many runs at once on an accelerator; ``kernel_bandits_lab.accelerated.studies`` is one."""

    def has_gpu(self) -> bool:
        """Return whether there is a GPU to use."""

    def execute_on_device(
        self, runs: Sequence[Run], fallback: Executor, notify: Callable[[str], None]
    ) -> Iterator[Outcome]:
        """Yield the outcomes of runs; ``fallback`` executes those not supported, ``notify`` takes a line on them."""


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
