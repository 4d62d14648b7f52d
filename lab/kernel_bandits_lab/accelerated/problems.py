"""Environments as the accelerator sees them: tables on the device, from which the rounds of all replicas are cut.

Expected rewards are a pure function where they can be.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count, as_points
from kernel_bandits.environments import Bump, Chessboard, Environment, MovingOptimum, StepDiagonal
from kernel_bandits.environments.base import noise_takes_play
from kernel_bandits.environments.moving import moving_optimum_rewards
from kernel_bandits.environments.paper import bump_rewards, chessboard_rewards, step_diagonal_rewards
from kernel_bandits.errors import InputError
from kernel_bandits.rng import stream
from kernel_bandits_lab.accelerated.arrays import bucket

ExpectedRewards: TypeAlias = Callable[..., jax.Array]

# One function object per class for the whole process: compiled programs are found by it.
_REWARDS: dict[type[Environment], ExpectedRewards] = {
    Bump: partial(bump_rewards, jnp),
    Chessboard: partial(chessboard_rewards, jnp),
    StepDiagonal: partial(step_diagonal_rewards, jnp),
    MovingOptimum: partial(moving_optimum_rewards, jnp),
}


def uniform_contexts(generator: np.random.Generator, horizon: int, dimension: int) -> FloatArray:
    """Draw contexts uniform on [0, 1]^d_x, the same as one draw per round gives, shape (T, d_x)."""
    return generator.random((horizon, dimension))


@dataclass(frozen=True, eq=False)
class PureEnvironment:
    """An environment that offers the same actions at every round and whose expected reward compiles.

    Attributes:
        expected_rewards: ``f(context, actions, *parameters)`` in ``jax.numpy``, from (d_x,) and (A, d_a) to (A,). Make
            it a module-level function: environments that share it share its compiled program.
        actions: offered at every round, shape (A, d_a).
        context_dimension: d_x.
        parameters: arrays and numbers that distinguish instances.
        noise_std: standard deviation of the Gaussian reward noise, in reward units.
        draw_contexts: ``draw(generator, horizon, context_dimension)`` with a NumPy generator, shape (T, d_x).
    """

    expected_rewards: ExpectedRewards
    actions: FloatArray
    context_dimension: int
    parameters: tuple[FloatArray | float, ...] = ()
    noise_std: float = 0.1
    draw_contexts: Callable[[np.random.Generator, int, int], FloatArray] = uniform_contexts

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", as_points("actions", self.actions))
        as_count("context_dimension", self.context_dimension)


def as_pure(environment: Environment | PureEnvironment) -> PureEnvironment | None:
    """Return the environment as a pure function, or None if only its own Python methods describe it."""
    if isinstance(environment, PureEnvironment):
        return environment
    if not isinstance(environment, Environment):
        raise InputError(f"environment: expected an Environment or a PureEnvironment instance, got {environment!r}.")
    # A subclass may redefine anything, so the class itself must be known.
    rewards = _REWARDS.get(type(environment))
    if rewards is None:
        return None
    assert isinstance(environment, (Bump, Chessboard, StepDiagonal, MovingOptimum))
    parameters, noise_std = environment.reward_parameters, environment.noise_std
    return PureEnvironment(rewards, environment.actions, environment.context_dimension, parameters, noise_std)


@dataclass(frozen=True, eq=False)
class Tables:
    """The rounds of S seeds, T each; nothing in them depends on the chosen actions."""

    horizon: int  # how many of the T rounds count; zeros follow
    contexts: FloatArray  # shape (S, T, d_x)
    noise: FloatArray  # shape (S, T), in reward units
    actions: FloatArray  # shape (A, d_a), or (S, T, A, d_a) if they change
    expected: FloatArray | None  # shape (S, T, A); None if ``pure`` computes it on the device
    pure: PureEnvironment | None  # the environment as a function, or None


def tabulate(environment: Environment | PureEnvironment, horizon: int, seeds: Sequence[int], length: int) -> Tables:
    """Draw the contexts and noise that ``kernel_bandits.run`` draws for each seed, in tables of ``length`` rounds.

    A :class:`PureEnvironment` and the environments of this package are drawn at once. The methods of any other
    environment are called round by round on the host, which takes some microseconds a round.
    """
    pure = as_pure(environment)
    if pure is None:
        assert isinstance(environment, Environment)
        rounds = [_rounds_of_seed(environment, horizon, seed, length) for seed in seeds]
        contexts, noise, actions, expected = (np.stack(column) for column in zip(*rounds, strict=True))
        return Tables(horizon, contexts, noise, actions, expected, None)
    contexts = np.zeros((len(seeds), length, pure.context_dimension))
    noise = np.zeros((len(seeds), length))
    for row, seed in enumerate(seeds):
        generator = stream(seed, "contexts")
        drawn, shape = pure.draw_contexts(generator, horizon, pure.context_dimension), contexts[row, :horizon].shape
        if np.shape(drawn) != shape:
            raise InputError(f"draw_contexts: expected shape {shape}, got {np.shape(drawn)}.")
        contexts[row, :horizon] = drawn
    for row, seed in enumerate(seeds):
        generator = stream(seed, "noise")
        generator.standard_normal(out=noise[row, :horizon])
    noise *= pure.noise_std
    return Tables(horizon, contexts, noise, pure.actions, None, pure)


def _rounds_of_seed(environment: Environment, horizon: int, seed: int, length: int) -> list[FloatArray]:
    """Return contexts, noise, actions and expected rewards; zeros follow the last round."""
    contexts, noise = stream(seed, "contexts"), stream(seed, "noise")
    offers = [environment.next_round(contexts) for _ in range(horizon)]
    shapes = {offer.rows.shape for offer in offers}
    if len(shapes) > 1:
        raise InputError(
            f"environment: expected as many actions at every round, got shapes {sorted(shapes)}; "
            "run such an environment with kernel_bandits.run."
        )
    if noise_takes_play(environment):
        raise InputError(
            f"environment: the noise of {environment.name} depends on what is played, and accelerated runs draw it in "
            "advance; run it with kernel_bandits.run."
        )
    columns: tuple[list[Any], ...] = (
        [offer.context for offer in offers],
        [environment.noise(noise) for _ in range(horizon)],
        [offer.rows for offer in offers],
        [environment.expected_rewards(offer.context, offer.rows) for offer in offers],
    )
    return [np.pad(column, [(0, length - horizon)] + [(0, 0)] * (np.ndim(column) - 1)) for column in columns]


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
    for row, seed in enumerate(seeds):
        generator = stream(seed, "coins")
        generator.random(out=coins[row, :horizon])
    for row, seed in enumerate(seeds):
        generator = stream(seed, "ties")
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
