"""The program that is compiled: up to ``CHUNK`` rounds of all replicas."""

from collections import Counter
from functools import partial
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernel_bandits_lab.accelerated.arrays import pick
from kernel_bandits_lab.accelerated.models import BLOCK, Model, Observation, State
from kernel_bandits_lab.accelerated.rounds import CHUNK, Rounds
from kernel_bandits_lab.accelerated.selection import choose

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
    """One entry per round; the features are None for a model without upkeep."""

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
    if model.upkeep is not None:
        assert choices.features is not None
        state = model.upkeep.refine(state, choices.features, rewards)
    finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state) if leaf.ndim == 2]).all()
    return state, ChunkRecord(choices.rows.T, choices.sizes.T, rewards.T, regrets.T), end._replace(finite=finite)


def _beginning(model: Model[Any, State, Any], state: State, rounds: Rounds) -> _Progress[State]:
    replicas = rounds.points.shape[1]
    end = ChunkEnd(jnp.int32(0), jnp.bool_(False), jnp.bool_(True), jnp.zeros(replicas, jnp.int32))
    zeros = jnp.zeros((CHUNK, replicas), jnp.int32)
    features = None
    if model.upkeep is not None:
        features = jnp.zeros((CHUNK, replicas, model.upkeep.width(state)), rounds.chances.dtype)
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
    if model.upkeep is not None:
        state = model.upkeep.settle(state)
    return _Progress(begun + BLOCK, state, end, choices)


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
