"""Run replicas to the end of their tables: the host grows memory between chunks and records every round."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits_lab.accelerated.chunk import ChunkEnd, ChunkRecord, advance
from kernel_bandits_lab.accelerated.models import AnyModel, Batch, Capacity, Demand, Growth
from kernel_bandits_lab.accelerated.programs import Compiler, Program
from kernel_bandits_lab.accelerated.rounds import CHUNK, Rounds, RoundSource


@dataclass(frozen=True, eq=False)
class Trajectories:
    """T rounds of R replicas, arrays of shape (R, T), and the state at the end."""

    rows: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rewards: FloatArray
    regrets: FloatArray
    state: Any


def simulate(
    model: AnyModel,
    batch: Batch[Any],
    source: RoundSource,
    capacity: Capacity | None = None,
    progress: Callable[[int], None] | None = None,
) -> Trajectories:
    """Run replicas of one model over all rounds of a source, in the dtype of the batch.

    ``capacity`` replaces the first one of the model; ``progress`` gets the number of finished rounds after each chunk.
    """
    horizon, replicas = source.horizon, len(batch.lengthscales)
    runner, recorder = _Runner(model, batch, horizon, capacity), _Recorder(replicas, horizon)
    used = jnp.zeros(replicas, jnp.int32)
    done, full = 0, False
    try:
        while done < horizon:
            runner.reserve(done + CHUNK, full)
            record, end = runner.advance(source.chunk(done, used), min(CHUNK, horizon - done))
            # the device is busy: time to write the chunk before
            recorder.flush()
            used = used + end.used
            count, full, finite = (scalar.item() for scalar in jax.device_get((end.done, end.full, end.finite)))
            if not finite:
                raise KernelBanditsError(
                    f"The model is no longer finite after {done} rounds; check the scale of points and rewards, "
                    "and that float32 is fine enough for this regularization."
                )
            recorder.add(record, count)
            done += count
            if progress is not None:
                progress(done)
    finally:
        runner.compiler.forget()
    return recorder.trajectories(runner.state)


class _Runner:
    """The state of the replicas, its capacity, and the program for it."""

    def __init__(self, model: AnyModel, batch: Batch[Any], horizon: int, capacity: Capacity | None) -> None:
        self.state = model.start(batch)
        self._growth: Growth[Any] | None = model.growth
        # the last chunk is written to its full length
        self._demand = Demand(0, horizon + CHUNK, False, batch.max_anchors.max().item())
        self._program: Program | None = None
        device = next(iter(batch.lengthscales.devices()))
        self.compiler = Compiler(advance, model, device, ahead=device.platform != "cpu")
        if self._growth is not None:
            self._capacity = capacity or self._growth.first
            self.state = self._growth.enlarge(self.state, self._capacity)

    def reserve(self, rounds: int, full: bool) -> None:
        """Make room for rounds, and for further anchors if there was none."""
        if self._growth is None:
            return
        capacity = self._growth.next(self._capacity, self._demand._replace(rounds=rounds, full=full))
        if capacity != self._capacity:
            self.state = self._growth.enlarge(self.state, capacity)
            self._capacity, self._program = capacity, None

    def advance(self, rounds: Rounds, limit: int) -> tuple[ChunkRecord, ChunkEnd]:
        """Run up to ``limit`` rounds."""
        arguments = rounds, np.int32(limit)
        if self._program is None:
            self._program = self._prepared(*arguments)
        self.state, record, end = self._program(self.state, *arguments)
        return record, end

    def _prepared(self, *arguments: Any) -> Program:
        """Return the program for the state; meanwhile those for the next capacities are compiled."""
        self.compiler.ask(self.state, *arguments)
        if self._growth is not None:
            for capacity in next_capacities(self._growth, self._capacity, self._demand):
                larger = jax.eval_shape(partial(self._growth.enlarge, capacity=capacity), self.state)
                self.compiler.prepare(larger, *arguments)
        return self.compiler.program(self.state, *arguments)


def next_capacities(growth: Growth[Any], capacity: Capacity, demand: Demand) -> list[Capacity]:
    """Return the capacities that may be needed after this one, the likeliest first."""

    def fuller(capacity: Capacity) -> Capacity:
        return growth.next(capacity, demand._replace(rounds=0, full=True))

    def longer(capacity: Capacity) -> Capacity:
        rounds = min(capacity.rounds + 1, demand.horizon)
        return growth.next(capacity, demand._replace(rounds=rounds, full=False))

    candidates = fuller(capacity), longer(capacity), longer(fuller(capacity)), fuller(longer(fuller(capacity)))
    return [candidate for candidate in dict.fromkeys(candidates) if candidate != capacity]


class _Recorder:
    """Columns of all rounds; a chunk is fetched from the device only when it is flushed."""

    def __init__(self, replicas: int, horizon: int) -> None:
        shape = (replicas, horizon)
        self._columns = np.empty(shape, int), np.empty(shape, int), np.empty(shape), np.empty(shape)
        self._written = 0
        self._pending: tuple[ChunkRecord, int] | None = None

    def add(self, record: ChunkRecord, count: int) -> None:
        """Take a chunk of which ``count`` rounds count."""
        self._pending = record, count

    def flush(self) -> None:
        """Write the chunk taken last."""
        if self._pending is None:
            return
        record, count = self._pending
        columns: tuple[NDArray[Any], ...] = self._columns
        for column, part in zip(columns, jax.device_get(record), strict=True):
            column[:, self._written : self._written + count] = part[:, :count]
        self._written += count
        self._pending = None

    def trajectories(self, state: Any) -> Trajectories:
        """Return all rounds."""
        self.flush()
        return Trajectories(*self._columns, state)
