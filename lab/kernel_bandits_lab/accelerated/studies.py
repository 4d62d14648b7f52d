"""Run studies on a device: runs with the same environment, horizon and model are replicas of one program.

Records have the same ids, columns and seeds as those of the other executors; only rounding and times differ.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import jax

from kernel_bandits import presets
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.loop import RunResult
from kernel_bandits_lab.accelerated import Replica, ek_ucb, k_ucb, run_many, uniform
from kernel_bandits_lab.accelerated.replicas import BATCH_SIZE, OutOfMemoryError, batches
from kernel_bandits_lab.execution import Executor, Outcome
from kernel_bandits_lab.results import Record, provenance
from kernel_bandits_lab.study import Run

Entry: TypeAlias = tuple[Run, Replica]

_REPLICAS: dict[Any, Callable[..., Replica]] = {
    presets.ek_ucb: ek_ucb,
    presets.k_ucb: k_ucb,
    presets.uniform: uniform,
}
# Options that only policies have, at the values that switch them off.
_OFF = {"exploration_floor": 0}


def has_gpu() -> bool:
    """Return whether JAX sees a GPU."""
    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:
        return False


def execute_on_device(
    runs: Sequence[Run], fallback: Executor, notify: Callable[[str], None], batch_size: int = BATCH_SIZE
) -> Iterator[Outcome]:
    """Execute runs on the GPU, or with JAX on the processor if there is none.

    ``fallback`` executes the runs that have no replica, and those of batches that fail; ``notify`` takes a line about
    them. At most ``batch_size`` runs are in memory at once, fewer where memory does not suffice.
    """
    if not runs:
        return
    if not has_gpu():
        notify("JAX sees no GPU here; its programs run on the processor.")
    groups, reasons = _groups(runs)
    for group in groups:
        for numbers in batches([replica for _, replica in group], batch_size):
            # the last batch may repeat a run
            batch = [group[number] for number in dict.fromkeys(numbers)]
            started = datetime.now(UTC)
            try:
                results, at_once = _run_batch(batch, len(numbers))
            except Exception as reason:
                # one by one, a run that fails does not take the others with it
                reasons |= {run.id: _in_a_line(reason) for run, _ in batch}
            else:
                yield from _records(batch, results, at_once, started)
    rest = [run for run in runs if run.id in reasons]
    if rest:
        distinct = " ".join(dict.fromkeys(reasons[run.id] for run in rest))
        notify(f"{len(rest)} of {len(runs)} runs are played one by one: {distinct}")
        yield from fallback(rest)


def replica_of(run: Run) -> Replica:
    """Return the replica for a run, or raise an :class:`InputError` that says why there is none."""
    _, policy = run.resolved()
    factory = _REPLICAS.get(policy.factory)
    if factory is None:
        raise InputError(f"{policy.name} has no program for a GPU.")
    options = {key: value for key, value in policy.options.items() if key not in _OFF or value != _OFF[key]}
    given = {} if "seed" in options else {"seed": run.seed}
    replica: Replica = replace(policy, options=options, factory=factory).build(**given)
    if replica.seed is None:
        raise InputError("seed: None cannot be repeated on a GPU.")
    return replica


def _groups(runs: Iterable[Run]) -> tuple[list[list[Entry]], dict[str, str]]:
    """Return runs with their replicas, those that share a program together, and why the others have none, by id."""
    groups: dict[Any, list[Entry]] = {}
    reasons: dict[str, str] = {}
    for run in runs:
        try:
            replica = replica_of(run)
        except Exception as reason:
            reasons[run.id] = _in_a_line(reason)
        else:
            place = json.dumps(run.environment.settings, sort_keys=True)
            groups.setdefault((place, run.horizon, replica.model), []).append((run, replica))
    return list(groups.values()), reasons


def _run_batch(batch: Sequence[Entry], size: int) -> tuple[list[RunResult], int]:
    """Run a batch, in halves or quarters if memory is short; return the results and the number of runs at once."""
    run = batch[0][0]
    replicas, seeds = [replica for _, replica in batch], [run.seed for run, _ in batch]
    environment = run.resolved()[0].build()
    # filled up to the size of the other batches, to share their programs
    more = size - len(batch)
    while True:
        try:
            results = run_many(
                replicas + replicas[-1:] * more, environment, run.horizon, seeds + seeds[-1:] * more, batch_size=size
            )
        except OutOfMemoryError:
            if size == 1:
                raise
            size = -(-size // 2)
        else:
            return results[: len(batch)], min(size, len(batch))


def _records(batch: Sequence[Entry], results: Sequence[RunResult], at_once: int, started: datetime) -> Iterator[Record]:
    made_with = {
        "started": started.isoformat(timespec="seconds"),
        **provenance(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "times": f"shares of the wall time of {at_once} runs at once",
    }
    for (run, _), result in zip(batch, results, strict=True):
        yield Record(run, result, {**made_with, "seconds": float(result.seconds[-1])})


def _in_a_line(reason: Exception) -> str:
    if isinstance(reason, KernelBanditsError):
        return str(reason)
    return f"{type(reason).__name__}: {reason}".partition("\n")[0]
