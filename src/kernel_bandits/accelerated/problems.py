"""Environments as the accelerator sees them: tables of contexts and noise, and expected rewards as a pure function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from kernel_bandits.accelerated.seeding import streams
from kernel_bandits.arrays import FloatArray, as_count, as_points
from kernel_bandits.environments import Bump, Chessboard, Environment, MovingOptimum, StepDiagonal
from kernel_bandits.errors import InputError
from kernel_bandits.rng import stream

ExpectedRewards: TypeAlias = Callable[..., jax.Array]


def uniform_contexts(generator: np.random.Generator, horizon: int, dimension: int) -> FloatArray:
    """Contexts uniform on [0, 1]^d_x, those that drawing one after the other gives, shape (T, d_x)."""
    return generator.random((horizon, dimension))


@dataclass(frozen=True, eq=False)
class PureEnvironment:
    """An environment whose offered actions are the same at every round and whose expected reward compiles.

    Attributes:
        expected_rewards: ``f(context, actions, *parameters)`` in ``jax.numpy``, (d_x,) and (A, d_a) to (A,); a
            module-level function, so that environments that share it share its compiled program.
        actions: offered at every round, shape (A, d_a).
        context_dimension: d_x.
        parameters: arrays and numbers that tell instances apart.
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


def bump_rewards(
    context: jax.Array, actions: jax.Array, best: jax.Array, centre: jax.Array, weights: jax.Array
) -> jax.Array:
    """Those of :class:`~kernel_bandits.environments.Bump`."""
    return jnp.maximum(0.0, 1.0 - jnp.abs(actions[:, 0] - best) - weights @ (context - centre))


def chessboard_rewards(context: jax.Array, actions: jax.Array, values: jax.Array) -> jax.Array:
    """Those of :class:`~kernel_bandits.environments.Chessboard`."""
    row = jnp.minimum((4 * context[0]).astype(int), 3)
    columns = jnp.minimum((4 * actions[:, 0]).astype(int), 3)
    return values[row, columns]


def step_diagonal_rewards(context: jax.Array, actions: jax.Array) -> jax.Array:
    """Those of :class:`~kernel_bandits.environments.StepDiagonal`."""
    action = actions[:, 0]
    above = jnp.abs(context[0] - (action + 0.15)) < 0.1
    below = jnp.abs(context[0] - (action - 0.15)) < 0.1
    return jnp.where(above, 1.0, jnp.where(below, 0.5, 0.0))


def moving_optimum_rewards(
    context: jax.Array, actions: jax.Array, weights: jax.Array, phases: jax.Array, width: jax.Array
) -> jax.Array:
    """Those of :class:`~kernel_bandits.environments.MovingOptimum`."""
    place = 0.5 * (1.0 + jnp.cos(jnp.pi * (weights @ context) + phases))
    offsets = (actions - place) / width
    return jnp.exp(-0.5 * jnp.sum(offsets * offsets, axis=1))


def as_pure(environment: Environment | PureEnvironment) -> PureEnvironment | None:
    """The environment as a pure function; None for a class that only its own Python methods describe."""
    if isinstance(environment, PureEnvironment):
        return environment
    if not isinstance(environment, Environment):
        raise InputError(f"environment: expected an Environment or a PureEnvironment instance, got {environment!r}.")
    # A subclass may redefine anything, so only these very classes are known.
    kind = type(environment)
    if isinstance(environment, Bump) and kind is Bump:
        parameters: tuple[FloatArray | float, ...] = (environment.best_action, environment.centre, environment.weights)
        rewards: ExpectedRewards = bump_rewards
    elif isinstance(environment, Chessboard) and kind is Chessboard:
        rewards, parameters = chessboard_rewards, (environment._VALUES,)
    elif isinstance(environment, StepDiagonal) and kind is StepDiagonal:
        rewards, parameters = step_diagonal_rewards, ()
    elif isinstance(environment, MovingOptimum) and kind is MovingOptimum:
        rewards, parameters = moving_optimum_rewards, (environment.weights, environment.phases, environment._WIDTH)
    else:
        return None
    return PureEnvironment(
        rewards, environment.actions, environment.context_dimension, parameters, environment.noise_std
    )


@dataclass(frozen=True, eq=False)
class Tables:
    """What S seeds meet in T rounds; nothing of it depends on what is played.

    Attributes:
        horizon: how many of the T rounds count; zeros follow.
        contexts: shape (S, T, d_x).
        noise: shape (S, T), in reward units.
        actions: shape (A, d_a), or (S, T, A, d_a) where they change.
        expected: shape (S, T, A); None where ``pure`` computes it on the device.
        pure: the environment as a function, or None.
    """

    horizon: int
    contexts: FloatArray
    noise: FloatArray
    actions: FloatArray
    expected: FloatArray | None
    pure: PureEnvironment | None


def tabulate(environment: Environment | PureEnvironment, horizon: int, seeds: Sequence[int], length: int) -> Tables:
    """The contexts and noise that ``kernel_bandits.run`` would draw for each seed, in tables of ``length`` rounds.

    A :class:`PureEnvironment` and the environments of this package are drawn at once; of any other environment the
    methods are called round by round, which takes some microseconds of the host each.
    """
    pure = as_pure(environment)
    if pure is None:
        assert isinstance(environment, Environment)
        played = [_play_out(environment, horizon, seed) for seed in seeds]
        columns = (np.array(column) for column in zip(*played, strict=True))
        contexts, noise, actions, expected = (_lengthened(column, length) for column in columns)
        return Tables(horizon, contexts, noise, actions, expected, None)
    contexts = np.zeros((len(seeds), length, pure.context_dimension))
    noise = np.zeros((len(seeds), length))
    for row, generator in enumerate(streams(seeds, "contexts")):
        drawn = pure.draw_contexts(generator, horizon, pure.context_dimension)
        if np.shape(drawn) != (horizon, pure.context_dimension):
            raise InputError(
                f"draw_contexts: expected shape ({horizon}, {pure.context_dimension}), got {np.shape(drawn)}."
            )
        contexts[row, :horizon] = drawn
    for row, generator in enumerate(streams(seeds, "noise")):
        generator.standard_normal(out=noise[row, :horizon])
    noise *= pure.noise_std
    return Tables(horizon, contexts, noise, pure.actions, None, pure)


def _lengthened(column: FloatArray, length: int) -> FloatArray:
    widths = [(0, 0)] * column.ndim
    widths[1] = (0, length - column.shape[1])
    return np.pad(column, widths)


def _play_out(environment: Environment, horizon: int, seed: int) -> tuple[FloatArray, ...]:
    contexts, noise = stream(seed, "contexts"), stream(seed, "noise")
    offers = [environment.next_round(contexts) for _ in range(horizon)]
    shapes = {offer.rows.shape for offer in offers}
    if len(shapes) > 1:
        raise InputError(
            f"environment: expected as many actions at every round, got shapes {sorted(shapes)}; "
            "run such an environment with kernel_bandits.run."
        )
    return (
        np.array([offer.context for offer in offers]),
        np.array([environment.noise(noise) for _ in range(horizon)]),
        np.array([offer.rows for offer in offers]),
        np.array([environment.expected_rewards(offer.context, offer.rows) for offer in offers]),
    )
