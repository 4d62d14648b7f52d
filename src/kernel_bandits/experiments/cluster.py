"""Runs on a Dask cluster, whose workers come, go and die as they like.

Runs are submitted to Dask and not through joblib's backend for it, which waits forever for a run that killed its
workers, and hands out no more runs at a time than the workers at the start could take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from kernel_bandits.errors import InputError, UnavailableError, missing
from kernel_bandits.experiments.execute import Answer, Failure, Outcome, answer, outcome_of
from kernel_bandits.experiments.study import Run
from kernel_bandits.experiments.travel import pack

# How long to wait for a scheduler to answer, in seconds.
PATIENCE = 10
# Runs sent to the scheduler in one message.
MESSAGE = 500


def on_cluster(runs: Sequence[Run], address: str) -> Iterator[Outcome]:
    """Have runs played by the workers of the scheduler at an address, and yield outcomes as they come."""
    if not runs:
        return
    try:
        import distributed
    except ImportError as reason:
        raise missing("distributed", "cluster") from reason
    with _client(address) as client:
        waiting = dict(zip(client.map(answer, pack(runs), pure=False, batch_size=MESSAGE), runs, strict=True))
        completed = distributed.as_completed(list(waiting), loop=client.loop)  # type: ignore[no-untyped-call] # annotated in part
        for future in completed:
            if future.status == "error":
                yield Failure(waiting.pop(future), f"it could not be played on the cluster: {future.exception()}")
            elif future.status == "lost":
                # Its worker died before the result was fetched; the scheduler has it played again.
                completed.add(future)  # type: ignore[no-untyped-call] # the same
            else:
                yield outcome_of(waiting[future], _fetched(future, address))
                waiting.pop(future)


def _client(address: str) -> Any:
    import distributed
    from distributed.comm.addressing import get_address_host_port

    try:
        # A client of an address that makes no sense would hang when it is disposed of.
        get_address_host_port(address, strict=True)
        return distributed.Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call] # the same
    except ValueError as reason:
        raise InputError(f"scheduler: expected an address as tcp://host:8786, got {address!r} ({reason}).") from reason
    except OSError as reason:
        raise UnavailableError(f"No Dask scheduler answers at {address} ({reason}); check the address.") from reason


def _fetched(future: Any, address: str) -> Answer:
    try:
        fetched: Answer = future.result()
    except (OSError, CancelledError) as reason:
        raise UnavailableError(
            f"The scheduler at {address} was lost ({reason}); what is finished is kept. Run again to go on."
        ) from reason
    return fetched
