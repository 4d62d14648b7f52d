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

from kernel_bandits.accelerated.models import BLOCK, Model, Observation, Settings, pick
from kernel_bandits.accelerated.problems import ExpectedRewards, Tables
from kernel_bandits.accelerated.selection import choose
from kernel_bandits.arrays import FloatArray, KernelBanditsError
from kernel_bandits.randomness import stream

# Rounds of one compiled program; between two the host looks whether there is room, and rounding is taken back.
CHUNK = 64
# Tables are padded to a power of two of rounds, at least this, so that horizons share the programs that cut them.
SMALLEST_TABLE = 512

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
        noise: shape (B, R).
        coins: shape (B, R).
        words: the next words of the generators of ties, shape (R, B + 2).
    """

    points: jax.Array
    expected: jax.Array
    noise: jax.Array
    coins: jax.Array
    words: jax.Array


class Log(NamedTuple):
    """What happened in ``CHUNK`` rounds, arrays of shape (B, R).

    Attributes:
        rows: of the chosen actions.
        rewards: noisy.
        regrets: of the round alone.
        sizes: points that carry the model after the round.
    """

    rows: jax.Array
    rewards: jax.Array
    regrets: jax.Array
    sizes: jax.Array


class Outcome(NamedTuple):
    """How a chunk ended; scalars but for the last.

    Attributes:
        done: rounds that count.
        full: some replica had no room for an anchor at the next round.
        finite: the model predicts numbers.
        used: words of the generators of ties that were used up, shape (R,).
    """

    done: jax.Array
    full: jax.Array
    finite: jax.Array
    used: jax.Array


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def play_chunk(
    model: Model[Any], state: Any, settings: Settings, rounds: Rounds, limit: jax.Array
) -> tuple[Any, Log, Outcome]:
    """Play up to ``limit`` rounds; fewer if a replica runs out of room."""
    shapes = f"{rounds.points.shape[1:]}, {[leaf.shape[1:] for leaf in state]} {rounds.points.dtype.name}"
    _traces[f"{model} {shapes}"] += 1

    def step(carry: tuple[Any, Outcome], offer: tuple[jax.Array, ...]) -> tuple[tuple[Any, Outcome], Any]:
        state, outcome = carry
        number, points, expected, noise, coin = offer
        evaluation = model.evaluate(state, settings, points)
        bounds = evaluation.mean + settings.bonus[:, None] * evaluation.std
        words = jnp.take_along_axis(rounds.words, outcome.used[:, None] + jnp.arange(2), axis=1)
        row, used = choose(bounds, words)
        chosen = pick(expected, row)
        reward = chosen + noise
        within = number < limit
        observation = Observation(row, pick(points, row), reward, coin, number % BLOCK, within & ~outcome.full)
        state, features, full = model.observe(state, settings, evaluation, observation)
        live = observation.live & ~full
        outcome = outcome._replace(
            done=outcome.done + live,
            full=outcome.full | (full & within),
            used=outcome.used + jnp.where(live, used, 0),
        )
        return (state, outcome), (Log(row, reward, expected.max(axis=1) - chosen, model.sizes(state)), features)

    def block(carry: tuple[Any, Outcome], offers: tuple[jax.Array, ...]) -> tuple[tuple[Any, Outcome], Any]:
        (state, outcome), happened = lax.scan(step, carry, offers)
        return (model.settle(state), outcome), happened

    outcome = Outcome(jnp.int32(0), jnp.bool_(False), jnp.bool_(True), jnp.zeros(len(settings.bonus), jnp.int32))
    numbers = jnp.arange(CHUNK, dtype=jnp.int32)
    offers = (numbers, rounds.points, rounds.expected, rounds.noise, rounds.coins)
    blocks = jax.tree.map(lambda table: table.reshape(-1, BLOCK, *table.shape[1:]), offers)
    (state, outcome), happened = lax.scan(block, (state, outcome), blocks)
    log, features = jax.tree.map(lambda table: table.reshape(CHUNK, *table.shape[2:]), happened)
    state = model.refine(state, features, log.rewards)
    beliefs = model.evaluate(state, settings, rounds.points[-1])
    finite = jnp.isfinite(beliefs.mean).all() & jnp.isfinite(beliefs.std).all()
    return state, log, outcome._replace(finite=finite)


@dataclass(frozen=True, eq=False)
class Draws:
    """The randomness of the policies of S seeds: coins (S, T) and the words that break ties (S, T + 2)."""

    coins: FloatArray
    words: NDArray[np.uint32]


def draw(horizon: int, seeds: Sequence[int]) -> Draws:
    """The coins and tie-breaks that the policies of ``kernel_bandits`` would draw for each seed."""
    coins = [stream(seed, "coins").random(horizon) for seed in seeds]
    words = [stream(seed, "ties").integers(0, 2**32, size=horizon + 2, dtype=np.uint32) for seed in seeds]
    return Draws(np.array(coins), np.array(words))


class _DeviceTables(NamedTuple):
    """Tables on the device with T padded, and the row of each replica in them."""

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
        of_context = jax.vmap(lambda context: rewards(context, tables.actions, *parameters))
        flat = of_context(contexts.reshape(-1, contexts.shape[2]))
        expected = flat.reshape(*contexts.shape[:2], -1)
    actions = jnp.broadcast_to(actions, (*contexts.shape[:2], *actions.shape[-2:]))
    repeated = jnp.broadcast_to(contexts[:, :, None, :], (*actions.shape[:3], contexts.shape[2]))
    points = jnp.concatenate([repeated, actions], axis=3) / divisor[:, None, :]
    positions = used[:, None] + jnp.arange(CHUNK + 2)
    return Rounds(
        points.astype(dtype),
        expected.astype(dtype),
        part(tables.noise, tables.scene).astype(dtype),
        part(tables.coins, tables.player).astype(dtype),
        jnp.take_along_axis(tables.words[tables.player], positions, axis=1, mode="clip"),
    )


@dataclass(frozen=True, eq=False)
class Played:
    """What R replicas did in T rounds; arrays of shape (R, T), and the state they ended in."""

    rows: NDArray[np.int64]
    rewards: FloatArray
    regrets: FloatArray
    sizes: NDArray[np.int64]
    state: Any


def play(
    model: Model[Any],
    settings: Settings,
    tables: Tables,
    draws: Draws,
    scene: NDArray[np.intp],
    player: NDArray[np.intp],
    room: int,
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
        room: anchors that there is room for at first.
        progress: called with the number of finished rounds now and then.
    """
    horizon = tables.noise.shape[1]
    dtype = settings.divisor.dtype.name
    on_device = _upload(tables, draws, scene, player)
    rewards = None if tables.pure is None else tables.pure.expected_rewards
    parameters = () if tables.pure is None else tuple(map(jnp.asarray, tables.pure.parameters))
    divisor = settings.divisor.astype(jnp.float64)
    state = model.start(settings, room)
    used = jnp.zeros(len(scene), jnp.int32)
    logs: list[Log] = []
    done, full = 0, False
    while done < horizon:
        state = model.make_room(state, settings, done + CHUNK, full)
        rounds = cut(rewards, dtype, parameters, on_device, divisor, jnp.int32(done), used)
        state, log, outcome = play_chunk(model, state, settings, rounds, jnp.int32(min(CHUNK, horizon - done)))
        used = used + outcome.used
        count, full, finite = jax.device_get((outcome.done, outcome.full, outcome.finite))
        if not finite:
            raise KernelBanditsError(
                f"The model is no longer finite after {done} rounds; check the scale of points and rewards, "
                "and that float32 is fine enough for this regularization."
            )
        logs.append(jax.tree.map(lambda column, count=int(count): column[:count], log))
        done += int(count)
        if progress is not None:
            progress(done)
    columns = [np.concatenate(column).T for column in zip(*jax.device_get(logs), strict=True)]
    rows, seen, regrets, sizes = columns
    return Played(
        rows.astype(np.int64), seen.astype(np.float64), regrets.astype(np.float64), sizes.astype(np.int64), state
    )


def _upload(tables: Tables, draws: Draws, scene: NDArray[np.intp], player: NDArray[np.intp]) -> _DeviceTables:
    length = SMALLEST_TABLE
    while length < tables.noise.shape[1] + CHUNK:
        length *= 2

    def padded(table: NDArray[Any]) -> jax.Array:
        widths = [(0, 0)] * table.ndim
        widths[1] = (0, length - table.shape[1])
        return jnp.asarray(np.pad(table, widths))

    return _DeviceTables(
        padded(tables.contexts),
        padded(tables.noise),
        jnp.asarray(tables.actions) if tables.actions.ndim == 2 else padded(tables.actions),
        None if tables.expected is None else padded(tables.expected),
        padded(draws.coins),
        padded(draws.words),
        jnp.asarray(scene, jnp.int32),
        jnp.asarray(player, jnp.int32),
    )
