"""The rounds of all replicas, cut chunk by chunk from tables on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits_lab.accelerated.arrays import bucket
from kernel_bandits_lab.accelerated.problems import ExpectedRewards, Tables
from kernel_bandits_lab.accelerated.seeding import streams

# Rounds of one call of a compiled program; between two calls the host checks capacity, and rounding is removed.
CHUNK = 128


class Rounds(NamedTuple):
    """``CHUNK`` rounds before anything is chosen in them."""

    points: jax.Array  # offered, in units of the lengthscales, shape (B, R, A, d)
    expected: jax.Array  # their expected rewards, shape (B, R, A)
    chances: jax.Array  # noise and coin, shape (B, R, 2)
    words: jax.Array  # the next words of the generators of ties, shape (R, B + 2)


@dataclass(frozen=True, eq=False)
class Draws:
    """The randomness of the policies of S seeds in T rounds: coins (S, T) and the words that break ties (S, T)."""

    coins: FloatArray
    words: NDArray[np.uint32]


def table_length(horizon: int) -> int:
    """Return the number of rounds in a table: whole chunks, in few sizes so that horizons share programs."""
    return bucket(horizon + CHUNK)


def draw(horizon: int, seeds: Sequence[int]) -> Draws:
    """Draw the coins and tie-breaks that the policies of ``kernel_bandits`` draw for each seed."""
    coins = np.zeros((len(seeds), table_length(horizon)))
    words = np.zeros((len(seeds), table_length(horizon)), np.uint32)
    for row, generator in enumerate(streams(seeds, "coins")):
        generator.random(out=coins[row, :horizon])
    for row, generator in enumerate(streams(seeds, "ties")):
        # a round uses two at most, and all rounds together hardly ever more than their number plus one
        words[row, : horizon + 2] = generator.integers(0, 2**32, size=horizon + 2, dtype=np.uint32)
    return Draws(coins, words)


class _DeviceTables(NamedTuple):
    """Tables on the device, and the row of each replica in those of the environment and of the policies."""

    contexts: jax.Array
    noise: jax.Array
    actions: jax.Array
    expected: jax.Array | None
    coins: jax.Array
    words: jax.Array
    environment_rows: jax.Array
    policy_rows: jax.Array


class RoundSource:
    """The rounds of R replicas: tables of the environment and draws of the policies, each with the row of each replica.

    Lengthscales are the divisors of the columns of points, shape (R, d); rounds have their dtype.
    """

    def __init__(
        self,
        tables: Tables,
        draws: Draws,
        environment_rows: NDArray[np.intp],
        policy_rows: NDArray[np.intp],
        lengthscales: jax.Array,
    ) -> None:
        self.horizon = tables.horizon
        self._dtype = lengthscales.dtype.name
        self._lengthscales = lengthscales.astype(jnp.float64)
        pure = tables.pure
        self._rewards = None if pure is None else pure.expected_rewards
        self._parameters = () if pure is None else tuple(map(jnp.asarray, pure.parameters))
        self._tables = _DeviceTables(
            jnp.asarray(tables.contexts),
            jnp.asarray(tables.noise),
            jnp.asarray(tables.actions),
            None if tables.expected is None else jnp.asarray(tables.expected),
            jnp.asarray(draws.coins),
            jnp.asarray(draws.words),
            jnp.asarray(environment_rows, jnp.int32),
            jnp.asarray(policy_rows, jnp.int32),
        )

    def chunk(self, start: int, used: jax.Array) -> Rounds:
        """Return the rounds after the first ``start``, given the number of words of ties used so far, shape (R,)."""
        return _cut(self._rewards, self._dtype, self._parameters, self._tables, self._lengthscales, start, used)


@partial(jax.jit, static_argnums=(0, 1))
def _cut(
    rewards: ExpectedRewards | None,
    dtype: str,
    parameters: tuple[jax.Array, ...],
    tables: _DeviceTables,
    lengthscales: jax.Array,
    start: jax.Array | int,
    used: jax.Array,
) -> Rounds:
    def part(table: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.swapaxes(lax.dynamic_slice_in_dim(table, start, CHUNK, axis=1)[rows], 0, 1)

    contexts = part(tables.contexts, tables.environment_rows)
    actions = tables.actions if tables.actions.ndim == 2 else part(tables.actions, tables.environment_rows)
    if rewards is None:
        assert tables.expected is not None
        expected = part(tables.expected, tables.environment_rows)
    else:
        expected = jax.vmap(jax.vmap(lambda context: rewards(context, tables.actions, *parameters)))(contexts)
    actions = jnp.broadcast_to(actions, (*contexts.shape[:2], *actions.shape[-2:]))
    repeated = jnp.broadcast_to(contexts[:, :, None, :], (*actions.shape[:3], contexts.shape[2]))
    points = jnp.concatenate([repeated, actions], axis=3) / lengthscales[:, None, :]
    noise, coins = part(tables.noise, tables.environment_rows), part(tables.coins, tables.policy_rows)
    positions = used[:, None] + jnp.arange(CHUNK + 2)
    return Rounds(
        points.astype(dtype),
        expected.astype(dtype),
        jnp.stack([noise, coins], axis=2).astype(dtype),
        jnp.take_along_axis(tables.words[tables.policy_rows], positions, axis=1, mode="clip"),
    )
