"""Execute runs on a Dask cluster, whose workers may join, leave and die at any time.

Runs are submitted to Dask directly. Joblib's Dask backend waits forever for a run that kills its workers, and does not
use workers that join later.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from kernel_bandits.errors import InputError, UnavailableError, needs
from kernel_bandits_lab.execution.base import Failure, Outcome, Reply, execute_serialized, outcome_of
from kernel_bandits_lab.execution.serialization import serialize
from kernel_bandits_lab.study.specification import Run

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
