"""The loop on the device: rounds compiled in chunks, memory that grows between them, and the record of every round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from kernel_bandits.accelerated.models import BLOCK, Model, Observation, Room, S, Settings, bucket, pick
from kernel_bandits.accelerated.problems import ExpectedRewards, Tables
from kernel_bandits.accelerated.programs import Compiler, Program
from kernel_bandits.accelerated.seeding import streams
from kernel_bandits.accelerated.selection import choose
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError

# Rounds of one compiled program; between two the host looks whether there is room, and rounding is taken back.
CHUNK = 128

# How often each program was traced, by what it is specialised to; :func:`traces` reads it.
_traces: Counter[str] = Counter()


def traces() -> dict[str, int]:
    """How often each program was compiled so far; a program that is used again with the same shapes is not."""
    return dict(_traces)


class Rounds(NamedTuple):
    """What ``CHUNK`` rounds bring, whatever is played.

    Attributes:
        points: offered, divided by the lengthscale where there is one per column, shape (B, R, A, d).
        expected: their expected rewards, shape (B, R, A).
        chances: noise and coin, shape (B, R, 2).
        words: the next words of the generators of ties, shape (R, B + 2).
    """

    points: jax.Array
    expected: jax.Array
    chances: jax.Array
    words: jax.Array


class Log(NamedTuple):
    """What happened in ``CHUNK`` rounds, arrays of shape (R, B) of which the first columns count.

    Attributes:
        rows: of the chosen actions.
        sizes: points that carry the model after the round.
        rewards: noisy.
        regrets: of the round alone.
    """

    rows: jax.Array
    sizes: jax.Array
    rewards: jax.Array
    regrets: jax.Array


class Outcome(NamedTuple):
    """How a chunk ended; scalars but for the last.

    Attributes:
        done: rounds that count.
        full: some replica had no room for an anchor at the next round.
        finite: the model is made of numbers.
        used: words of the generators of ties that were used up, shape (R,).
    """

    done: jax.Array
    full: jax.Array
    finite: jax.Array
    used: jax.Array


def play_chunk(
    model: Model[S], state: S, settings: Settings, rounds: Rounds, limit: jax.Array
) -> tuple[S, Log, Outcome]:
    """Play up to ``limit`` rounds; fewer if a replica runs out of room."""
    shapes = f"{rounds.points.shape[1:]}, {[leaf.shape[1:] for leaf in state]} {rounds.points.dtype.name}"
    _traces[f"{model} {shapes}"] += 1

    def step(carry: tuple[S, Outcome], offer: tuple[jax.Array, ...]) -> tuple[tuple[S, Outcome], Any]:
        state, outcome = carry
        number, points, expected, chances = offer
        noise, coin = chances[:, 0], chances[:, 1]
        evaluation = model.evaluate(state, settings, points)
        bounds = evaluation.mean + settings.bonus[:, None] * evaluation.std
        words = jnp.take_along_axis(rounds.words, outcome.used[:, None] + jnp.arange(2), axis=1)
        row, used = choose(bounds, words)
        reward = pick(expected, row) + noise
        within = number < limit
        observation = Observation(row, pick(points, row), reward, coin, number % BLOCK, within & ~outcome.full)
        state, features, full = model.observe(state, settings, evaluation, observation)
        live = observation.live & ~full
        outcome = outcome._replace(
            done=outcome.done + live,
            full=outcome.full | (full & within),
            used=outcome.used + jnp.where(live, used, 0),
        )
        return (state, outcome), (row, model.sizes(state), features)

    def block(carry: tuple[jax.Array, S, Outcome, Any]) -> tuple[jax.Array, S, Outcome, Any]:
        start, state, outcome, happened = carry
        numbers = start + jnp.arange(BLOCK, dtype=jnp.int32)
        tables = (rounds.points, rounds.expected, rounds.chances)
        offers = (numbers, *(lax.dynamic_slice_in_dim(table, start, BLOCK) for table in tables))
        (state, outcome), further = lax.scan(step, (state, outcome), offers)
        happened = jax.tree.map(partial(lax.dynamic_update_slice_in_dim, start_index=start, axis=0), happened, further)
        return start + BLOCK, model.settle(state), outcome, happened

    def goes_on(carry: tuple[jax.Array, S, Outcome, Any]) -> jax.Array:
        return (carry[0] < limit) & ~carry[2].full

    replicas = len(settings.bonus)
    outcome = Outcome(jnp.int32(0), jnp.bool_(False), jnp.bool_(True), jnp.zeros(replicas, jnp.int32))
    nothing = jnp.zeros((CHUNK, replicas), jnp.int32)
    no_features = jnp.zeros((CHUNK, replicas, model.width(state)), rounds.chances.dtype)
    carry = (jnp.int32(0), state, outcome, (nothing, nothing, no_features))
    _, state, outcome, (rows, sizes, features) = lax.while_loop(goes_on, block, carry)
    chosen = jnp.take_along_axis(rounds.expected, rows[:, :, None], axis=2)[:, :, 0]
    rewards, regrets = chosen + rounds.chances[:, :, 0], rounds.expected.max(axis=2) - chosen
    state = model.refine(state, features, rewards)
    finite = jnp.array([jnp.isfinite(leaf).all() for leaf in state if leaf.ndim == 2]).all()
    return state, Log(rows.T, sizes.T, rewards.T, regrets.T), outcome._replace(finite=finite)


@dataclass(frozen=True, eq=False)
class Draws:
    """The randomness of the policies of S seeds in T rounds: coins (S, T) and the words that break ties (S, T)."""

    coins: FloatArray
    words: NDArray[np.uint32]


def table_length(horizon: int) -> int:
    """Rounds that tables have room for: whole chunks, in few sizes so that horizons share programs."""
    return bucket(horizon + CHUNK)


def draw(horizon: int, seeds: Sequence[int]) -> Draws:
    """The coins and tie-breaks that the policies of ``kernel_bandits`` would draw for each seed."""
    coins = np.zeros((len(seeds), table_length(horizon)))
    words = np.zeros((len(seeds), table_length(horizon)), np.uint32)
    for row, generator in enumerate(streams(seeds, "coins")):
        generator.random(out=coins[row, :horizon])
    for row, generator in enumerate(streams(seeds, "ties")):
        # a round uses two at most, and all rounds together hardly ever one more than there are rounds
        words[row, : horizon + 2] = generator.integers(0, 2**32, size=horizon + 2, dtype=np.uint32)
    return Draws(coins, words)


class _DeviceTables(NamedTuple):
    """Tables on the device, and the row of each replica in them."""

    contexts: jax.Array
    noise: jax.Array
    actions: jax.Array
    expected: jax.Array | None
    coins: jax.Array
    words: jax.Array
    scene: jax.Array
    player: jax.Array


@partial(jax.jit, static_argnums=(0, 1))
def cut(
    rewards: ExpectedRewards | None,
    dtype: str,
    parameters: tuple[jax.Array, ...],
    tables: _DeviceTables,
    divisor: jax.Array,
    start: jax.Array,
    used: jax.Array,
) -> Rounds:
    """The rounds from ``start`` on, as :func:`play_chunk` takes them."""

    def part(table: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.swapaxes(lax.dynamic_slice_in_dim(table, start, CHUNK, axis=1)[rows], 0, 1)

    contexts = part(tables.contexts, tables.scene)
    actions = tables.actions if tables.actions.ndim == 2 else part(tables.actions, tables.scene)
    if rewards is None:
        assert tables.expected is not None
        expected = part(tables.expected, tables.scene)
    else:
        of_context = partial(_expected_rewards, rewards, parameters, tables.actions)
        expected = jax.vmap(jax.vmap(of_context))(contexts)
    actions = jnp.broadcast_to(actions, (*contexts.shape[:2], *actions.shape[-2:]))
    repeated = jnp.broadcast_to(contexts[:, :, None, :], (*actions.shape[:3], contexts.shape[2]))
    points = jnp.concatenate([repeated, actions], axis=3) / divisor[:, None, :]
    positions = used[:, None] + jnp.arange(CHUNK + 2)
    return Rounds(
        points.astype(dtype),
        expected.astype(dtype),
        jnp.stack([part(tables.noise, tables.scene), part(tables.coins, tables.player)], axis=2).astype(dtype),
        jnp.take_along_axis(tables.words[tables.player], positions, axis=1, mode="clip"),
    )


def _expected_rewards(
    rewards: ExpectedRewards, parameters: tuple[jax.Array, ...], actions: jax.Array, context: jax.Array
) -> jax.Array:
    return rewards(context, actions, *parameters)


@dataclass(frozen=True, eq=False)
class Played:
    """What R replicas did in T rounds; arrays of shape (R, T), and the state they ended in."""

    rows: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rewards: FloatArray
    regrets: FloatArray
    state: Any


def play(
    model: Model[Any],
    settings: Settings,
    tables: Tables,
    draws: Draws,
    scene: NDArray[np.intp],
    player: NDArray[np.intp],
    room: Room | None = None,
    progress: Callable[[int], None] | None = None,
) -> Played:
    """Play replicas of one model to the end of the tables.

    Args:
        model: the same for all.
        settings: of each replica; their dtype is the one that is computed in.
        tables: what is met.
        draws: what is drawn.
        scene: the row of each replica in the tables, shape (R,).
        player: the row of each replica in the draws, shape (R,).
        room: what there is room for at first, if not what the model says.
        progress: called with the number of finished rounds now and then.
    """
    horizon = tables.horizon
    dtype = settings.divisor.dtype.name
    on_device = _upload(tables, draws, scene, player)
    rewards = None if tables.pure is None else tables.pure.expected_rewards
    parameters = () if tables.pure is None else tuple(map(jnp.asarray, tables.pure.parameters))
    divisor = settings.divisor.astype(jnp.float64)
    room = room or model.first_room()
    state = model.start(settings, room)
    most, last = settings.max_dictionary_size.max().item(), horizon + CHUNK
    device = next(iter(settings.bonus.devices()))
    compiler = Compiler(play_chunk, model, device, ahead=device.platform != "cpu")
    used = jnp.zeros(len(scene), jnp.int32)
    shape = (len(scene), horizon)
    rows, sizes, received, regrets = np.empty(shape, int), np.empty(shape, int), np.empty(shape), np.empty(shape)
    columns: tuple[NDArray[Any], ...] = (rows, sizes, received, regrets)
    done, count, full = 0, 0, False
    log: Log | None = None
    try:
        while done < horizon:
            before, room = room, model.further_room(room, done + CHUNK, last, full, most)
            if room != before:
                state = model.enlarge(state, settings, room)
            rounds = cut(rewards, dtype, parameters, on_device, divisor, done, used)
            rest = settings, rounds, np.int32(min(CHUNK, horizon - done))
            if room != before or done == 0:
                program = _prepared(compiler, model, next_rooms(model, room, last, most), state, rest)
            state, further, outcome = program(state, *rest)
            # the device is busy: time to write down what came before
            _write(columns, log, done - count, count)
            used, log = used + outcome.used, further
            count, full, finite = (
                scalar.item() for scalar in jax.device_get((outcome.done, outcome.full, outcome.finite))
            )
            if not finite:
                raise KernelBanditsError(
                    f"The model is no longer finite after {done} rounds; check the scale of points and rewards, "
                    "and that float32 is fine enough for this regularization."
                )
            done += count
            if progress is not None:
                progress(done)
    finally:
        compiler.forget()
    _write(columns, log, done - count, count)
    return Played(rows, sizes, received, regrets, state)


def next_rooms(model: Model[Any], room: Room, horizon: int, most: float) -> list[Room]:
    """What room may be wanted after this one, the likeliest first; see :meth:`Model.further_room`."""

    def fuller(room: Room) -> Room:
        return model.further_room(room, 0, horizon, True, most)

    def longer(room: Room) -> Room:
        return model.further_room(room, min(room.rounds + 1, horizon), horizon, False, most)

    candidates = fuller(room), longer(room), longer(fuller(room)), fuller(longer(fuller(room)))
    return [candidate for candidate in dict.fromkeys(candidates) if candidate != room]


def _prepared(
    compiler: Compiler, model: Model[Any], rooms: Sequence[Room], state: Any, rest: tuple[Any, ...]
) -> Program:
    """The program for a state; those for states with these rooms are compiled meanwhile."""
    compiler.ask(state, *rest)
    for room in rooms:
        compiler.prepare(jax.eval_shape(partial(model.start, room=room), rest[0]), *rest)
    return compiler.program(state, *rest)


def _write(columns: tuple[NDArray[Any], ...], log: Log | None, start: int, count: int) -> None:
    """Write the rounds of a log that count behind ``start``."""
    for column, part in zip(columns, jax.device_get(log) or (), strict=log is not None):
        column[:, start : start + count] = part[:, :count]


def _upload(tables: Tables, draws: Draws, scene: NDArray[np.intp], player: NDArray[np.intp]) -> _DeviceTables:
    return _DeviceTables(
        jnp.asarray(tables.contexts),
        jnp.asarray(tables.noise),
        jnp.asarray(tables.actions),
        None if tables.expected is None else jnp.asarray(tables.expected),
        jnp.asarray(draws.coins),
        jnp.asarray(draws.words),
        jnp.asarray(scene, jnp.int32),
        jnp.asarray(player, jnp.int32),
    )
