"""Run replicas to the end of their tables.

A program of up to ``CHUNK`` rounds is compiled once per set of shapes, and in the background those that may be needed
next; between two chunks the host grows memory and records every round.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits_lab.accelerated.arrays import choose, pick
from kernel_bandits_lab.accelerated.models import (
    BLOCK,
    AnyModel,
    Batch,
    Capacity,
    Demand,
    Model,
    Observation,
    State,
)
from kernel_bandits_lab.accelerated.problems import CHUNK, Rounds, RoundSource

Program: TypeAlias = Callable[..., Any]

# Programs compiled at a time. Eight at a time took half as long as one after the other: Python traces them under one
# lock, and XLA has threads of its own.
WORKERS = 3
# Trying Triton's kernels for the products takes half of the compilation and gains nothing. Loops as nodes of a CUDA
# graph spare the host from checking their condition.
_COMPILER_OPTIONS: dict[str, bool | str] = {
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
}
_programs: dict[Hashable, Future[Program]] = {}
_lock = Lock()


class Compiler:
    """Compile a function of a static argument, a state that is donated, and further arguments, for a device.

    ``ahead`` allows compiling in the background; leave it off where the host itself computes.
    """

    def __init__(self, function: Callable[..., Any], static: Hashable, device: jax.Device, ahead: bool) -> None:
        self._function, self._static, self._device, self._ahead = function, static, device, ahead
        self._asked: list[Future[Program]] = []

    def program(self, *arguments: Any) -> Program:
        """Return the program for arguments of these shapes; it takes them without the static one."""
        while True:
            # another compiler may have asked for it and cancelled
            with suppress(CancelledError):
                return self.ask(*arguments).result()

    def prepare(self, *arguments: Any) -> None:
        """Compile the program for arguments of these shapes ahead, if that is switched on."""
        if self._ahead:
            self._asked.append(self.ask(*arguments))

    def forget(self) -> None:
        """Cancel the programs asked for by :meth:`prepare` that are not begun."""
        with _lock:
            for future in self._asked:
                future.cancel()

    def ask(self, *arguments: Any) -> Future[Program]:
        """Start compiling the program for arguments of these shapes, unless that is under way or done."""
        shapes = jax.tree.map(_shape, arguments)
        key = self._function, self._static, self._device, *jax.tree.leaves(shapes)
        with _lock:
            known = _programs.get(key)
            if known is None or known.cancelled() or (known.done() and known.exception() is not None):
                known = _programs[key] = _pool().submit(self._compile, shapes)
            return known

    def _compile(self, shapes: tuple[Any, ...]) -> Program:
        # these settings are per thread
        with jax.enable_x64(True), jax.default_device(self._device):
            return _jitted(self._function).lower(self._static, *shapes).compile()


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # type: ignore[no-untyped-call]  # JAX leaves it without types


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="compile")


@cache
def _jitted(function: Callable[..., Any]) -> Any:
    """Return the function to compile, with the options above if this version of JAX knows them."""
    options = _COMPILER_OPTIONS
    try:
        jax.jit(jnp.negative, compiler_options=options).lower(0.0).compile()
    except (RuntimeError, ValueError):
        options = {}
    return jax.jit(function, static_argnums=0, donate_argnums=1, compiler_options=options)


# The number of times that each program was traced, by what it is specialised to.
_traces: Counter[str] = Counter()


def traces() -> dict[str, int]:
    """Return how often each program was compiled so far; one that is used again with the same shapes is not."""
    return dict(_traces)


class ChunkRecord(NamedTuple):
    """The result of ``CHUNK`` rounds, arrays of shape (R, B) whose first columns count."""

    rows: jax.Array  # of the chosen actions
    sizes: jax.Array  # the number of points that carry the model after the round
    rewards: jax.Array  # noisy
    regrets: jax.Array  # of the round alone


class ChunkEnd(NamedTuple):
    """How a chunk ended; scalars but for the last."""

    done: jax.Array  # the number of rounds that count
    full: jax.Array  # whether a replica had no place for an anchor in the next round
    finite: jax.Array  # whether the model consists of finite numbers
    used: jax.Array  # the number of words of ties used, shape (R,)


class _Choices(NamedTuple):
    """One entry per round; the features are None for a model without a width."""

    rows: jax.Array
    sizes: jax.Array
    features: jax.Array | None


class _Progress(NamedTuple, Generic[State]):
    """The number of rounds begun, and the chunk so far."""

    begun: jax.Array
    state: State
    end: ChunkEnd
    choices: _Choices


def advance(
    model: Model[Any, State, Any], state: State, rounds: Rounds, limit: jax.Array
) -> tuple[State, ChunkRecord, ChunkEnd]:
    """Run up to ``limit`` rounds; fewer if a replica runs out of room."""
    shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(state)]
    _traces[f"{model} {rounds.points.shape[1:]}, {shapes} {rounds.points.dtype.name}"] += 1

    def goes_on(progress: _Progress[State]) -> jax.Array:
        return (progress.begun < limit) & ~progress.end.full

    progress = lax.while_loop(goes_on, partial(_run_block, model, rounds, limit), _beginning(model, state, rounds))
    state, end, choices = progress.state, progress.end, progress.choices
    chosen = jnp.take_along_axis(rounds.expected, choices.rows[:, :, None], axis=2)[:, :, 0]
    rewards, regrets = chosen + rounds.chances[:, :, 0], rounds.expected.max(axis=2) - chosen
    if choices.features is not None:
        state = model.refine(state, choices.features, rewards)
    finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state) if leaf.ndim == 2]).all()
    return state, ChunkRecord(choices.rows.T, choices.sizes.T, rewards.T, regrets.T), end._replace(finite=finite)


def _beginning(model: Model[Any, State, Any], state: State, rounds: Rounds) -> _Progress[State]:
    replicas = rounds.points.shape[1]
    end = ChunkEnd(jnp.int32(0), jnp.bool_(False), jnp.bool_(True), jnp.zeros(replicas, jnp.int32))
    zeros = jnp.zeros((CHUNK, replicas), jnp.int32)
    width = model.width(state)
    features = jnp.zeros((CHUNK, replicas, width), rounds.chances.dtype) if width else None
    return _Progress(jnp.int32(0), state, end, _Choices(zeros, zeros, features))


def _run_block(
    model: Model[Any, State, Any], rounds: Rounds, limit: jax.Array, progress: _Progress[State]
) -> _Progress[State]:
    """Run ``BLOCK`` rounds and settle them."""
    begun, state, end, choices = progress
    numbers = begun + jnp.arange(BLOCK, dtype=jnp.int32)
    tables = (rounds.points, rounds.expected, rounds.chances)
    offers = (numbers, *(lax.dynamic_slice_in_dim(table, begun, BLOCK) for table in tables))
    (state, end), latest = lax.scan(partial(_run_round, model, rounds.words, limit), (state, end), offers)
    write = partial(lax.dynamic_update_slice_in_dim, start_index=begun, axis=0)
    choices = jax.tree.map(write, choices, latest)
    return _Progress(begun + BLOCK, model.settle(state), end, choices)


def _run_round(
    model: Model[Any, State, Any],
    words: jax.Array,
    limit: jax.Array,
    carry: tuple[State, ChunkEnd],
    offer: tuple[jax.Array, ...],
) -> tuple[tuple[State, ChunkEnd], _Choices]:
    """Choose an action for every replica, and learn its reward."""
    state, end = carry
    number, points, expected, chances = offer
    noise, coin = chances[:, 0], chances[:, 1]
    bounds, beliefs = model.bounds(state, points)
    row, used = choose(bounds, jnp.take_along_axis(words, end.used[:, None] + jnp.arange(2), axis=1))
    reward = pick(expected, row) + noise
    within = number < limit
    observation = Observation(beliefs, row, pick(points, row), reward, coin, number % BLOCK, within & ~end.full)
    state, features, full = model.observe(state, observation)
    live = observation.live & jnp.logical_not(full)
    end = end._replace(done=end.done + live, full=end.full | (full & within), used=end.used + jnp.where(live, used, 0))
    return (state, end), _Choices(row, model.sizes(state), features)


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
        self._model, self._capacity = model, capacity or model.first_capacity
        self.state = model.enlarge(model.start(batch), self._capacity)
        # the last chunk is written to its full length
        self._demand = Demand(0, horizon + CHUNK, False, batch.max_anchors.max().item())
        self._program: Program | None = None
        device = next(iter(batch.lengthscales.devices()))
        self.compiler = Compiler(advance, model, device, ahead=device.platform != "cpu")

    def reserve(self, rounds: int, full: bool) -> None:
        """Make room for rounds, and for further anchors if there was none."""
        capacity = self._model.next_capacity(self._capacity, self._demand._replace(rounds=rounds, full=full))
        if capacity != self._capacity:
            self.state = self._model.enlarge(self.state, capacity)
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
        for capacity in next_capacities(self._model, self._capacity, self._demand):
            larger = jax.eval_shape(partial(self._model.enlarge, capacity=capacity), self.state)
            self.compiler.prepare(larger, *arguments)
        return self.compiler.program(self.state, *arguments)


def next_capacities(model: AnyModel, capacity: Capacity, demand: Demand) -> list[Capacity]:
    """Return the capacities that may be needed after this one, the likeliest first."""

    def fuller(capacity: Capacity) -> Capacity:
        return model.next_capacity(capacity, demand._replace(rounds=0, full=True))

    def longer(capacity: Capacity) -> Capacity:
        rounds = min(capacity.rounds + 1, demand.horizon)
        return model.next_capacity(capacity, demand._replace(rounds=rounds, full=False))

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
