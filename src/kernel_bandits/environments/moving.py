"""Environments whose best action depends on every dimension of the context, unlike the paper's Bump."""

from typing import Any

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.environments.base import ContinuousEnvironment, Environment, Round


def moving_place(xp: Any, context: Any, weights: Any, phases: Any) -> Any:
    """Return a*(x) with a*_j = ½(1 + cos(π⟨w_j, x⟩ + b_j)), shape (2,)."""
    return 0.5 * (1.0 + xp.cos(np.pi * (weights @ context) + phases))


def moving_optimum_rewards(xp: Any, context: Any, actions: Any, weights: Any, phases: Any, width: Any) -> Any:
    """Return exp(−‖a − a*(x)‖²/(2·width²)) for each action, shape (A,); ``xp`` is NumPy or ``jax.numpy``."""
    across, along = ((actions - moving_place(xp, context, weights, phases)) / width).T
    return xp.exp(-0.5 * (across * across + along * along))


class MovingOptimum(Environment):
    """A smooth peak in the action square whose place follows the context.

    r(x, a) = exp(−‖a − a*(x)‖²/(2·0.25²)) with a*_j(x) = ½(1 + cos(π⟨w_j, x⟩ + b_j)): as the context moves through
    [0, 1]^d_x, the best action moves through [0, 1]^2. The offered actions are the same at every round.

    Args:
        context_dimension: d_x.
        number_of_actions: A, drawn uniformly in [0, 1]^2.
        instance_seed: draws the actions, the w_j (uniform on [0, 1]^d_x, scaled to sum 1.5) and the b_j.
    """

    lengthscale: float = 0.5
    _WIDTH = 0.25

    def __init__(self, context_dimension: int = 3, number_of_actions: int = 25, instance_seed: int = 0) -> None:
        self.context_dimension: int = as_count("context_dimension", context_dimension)
        self.instance_seed: int = instance_seed
        generator = np.random.default_rng(instance_seed)
        self.actions: FloatArray = generator.random((as_count("number_of_actions", number_of_actions), 2))
        weights = generator.random((2, self.context_dimension))
        self.weights: FloatArray = 1.5 * weights / weights.sum(axis=1, keepdims=True)
        self.phases: FloatArray = generator.uniform(0.0, 2.0 * np.pi, 2)

    def best_place(self, context: FloatArray) -> FloatArray:
        """Return a*(x), shape (2,)."""
        return moving_place(np, context, self.weights, self.phases)

    @property
    def reward_parameters(self) -> tuple[FloatArray | float, ...]:
        """The arguments of the reward function after the context and the actions."""
        return self.weights, self.phases, self._WIDTH

    def next_round(self, contexts: np.random.Generator) -> Round:
        return Round(contexts.random(self.context_dimension), self.actions.copy())

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return moving_optimum_rewards(np, context, actions, self.weights, self.phases, self._WIDTH)

    def __repr__(self) -> str:
        return f"MovingOptimum({self.context_dimension}, {len(self.actions)}, instance_seed={self.instance_seed})"


class MovingPeak(ContinuousEnvironment):
    """:class:`MovingOptimum` that offers the whole square [0, 1]²; its optimum is 1 in every context.

    The path of the peak is that of a :class:`MovingOptimum` with the same seed.
    """

    lengthscale: float = MovingOptimum.lengthscale

    def __init__(self, context_dimension: int = 3, instance_seed: int = 0) -> None:
        self._peak = MovingOptimum(context_dimension, instance_seed=instance_seed)
        self.box: Box = Box([0.0, 0.0], [1.0, 1.0])

    def next_round(self, contexts: np.random.Generator) -> Round:
        return Round(contexts.random(self._peak.context_dimension), self.box)

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return self._peak.expected_rewards(context, actions)

    def best_action(self, context: FloatArray) -> FloatArray:
        return self._peak.best_place(context)

    def __repr__(self) -> str:
        return f"MovingPeak({self._peak.context_dimension}, instance_seed={self._peak.instance_seed})"
