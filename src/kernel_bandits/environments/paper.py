"""The three environments of the paper's section 5 and appendix, with the instances that its published code draws.

Each reward is a function of arrays: ``xp`` is NumPy here and ``jax.numpy`` in :mod:`kernel_bandits_lab.accelerated`.
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.environments.base import Environment, Round

# NumPy's legacy generator with seed 123 draws these, in this order; they are written out because that stream is frozen.
PUBLISHED_ACTIONS = (0.08, 0.70, 0.82, 0.28, 0.63, 0.00, 0.05, 0.50, 0.81, 0.04)
PUBLISHED_BEST_ACTION = 0.81
PUBLISHED_CENTRE = (0.1085423, 0.51165472, 0.9097694, 0.21837601, 0.36310407)
PUBLISHED_WEIGHTS = (0.70994563, 0.4227836, -0.21411118, -0.53739704, -0.23965057)
NUMBER_OF_ACTIONS = 10


def bump_rewards(xp: Any, context: Any, actions: Any, best_action: Any, centre: Any, weights: Any) -> Any:
    """Return max(0, 1 − |a − a*| − ⟨w*, x − x*⟩) for each action, shape (A,)."""
    return xp.maximum(0.0, 1.0 - xp.abs(actions[:, 0] - best_action) - weights @ (context - centre))


def chessboard_rewards(xp: Any, context: Any, actions: Any, values: Any) -> Any:
    """Return the value of the square of the 4×4 board that each (x, a) lies in, shape (A,)."""
    row = xp.minimum((4 * context).astype(int), 3)
    columns = xp.minimum((4 * actions[:, 0]).astype(int), 3)
    return values[row, columns]


def step_diagonal_rewards(xp: Any, context: Any, actions: Any) -> Any:
    """Return 1 where |x − (a + 0.15)| < 0.1, ½ where |x − (a − 0.15)| < 0.1, else 0, shape (A,)."""
    action = actions[:, 0]
    above = xp.abs(context[0] - (action + 0.15)) < 0.1
    below = xp.abs(context[0] - (action - 0.15)) < 0.1
    return xp.where(above, 1.0, xp.where(below, 0.5, 0.0))


class _TenActions(Environment):
    """Contexts uniform on [0, 1]^d_x and the same ten actions out of {0, 0.01, …, 0.99} at every round.

    The instance is the published one, or another that a seed draws.
    """

    context_dimension: int
    actions: FloatArray

    def __init__(self, instance_seed: int | None = None) -> None:
        self.instance_seed: int | None = instance_seed
        generator = None if instance_seed is None else np.random.default_rng(instance_seed)
        self.actions = np.array(PUBLISHED_ACTIONS)[:, None]
        if generator is not None:
            self.actions = generator.choice(100, size=NUMBER_OF_ACTIONS, replace=False)[:, None] / 100
        self._set_instance(generator)

    def _set_instance(self, generator: np.random.Generator | None) -> None:
        """Set the parameters besides the actions, published or drawn; by default none."""
        del generator

    @property
    @abstractmethod
    def reward_parameters(self) -> tuple[FloatArray | float, ...]:
        """The arrays and numbers that the reward function takes after the context and the actions."""

    def next_round(self, contexts: np.random.Generator) -> Round:
        return Round(contexts.random(self.context_dimension), self.actions.copy())

    def __repr__(self) -> str:
        instance = "" if self.instance_seed is None else f"instance_seed={self.instance_seed}"
        return f"{self.name}({instance})"


class Bump(_TenActions):
    """r = max(0, 1 − |a − a*| − ⟨w*, x − x*⟩) with contexts in five dimensions.

    The best action is the same in every context: this environment tests how fast a policy finds it, not whether it uses
    the context.
    """

    context_dimension: int = 5
    lengthscale: float = 1.0

    def _set_instance(self, generator: np.random.Generator | None) -> None:
        if generator is None:
            self.best_action: float = PUBLISHED_BEST_ACTION
            self.centre: FloatArray = np.array(PUBLISHED_CENTRE)
            self.weights: FloatArray = np.array(PUBLISHED_WEIGHTS)
        else:
            self.best_action = float(generator.choice(self.actions[:, 0]))
            self.centre = generator.random(self.context_dimension)
            self.weights = generator.uniform(-1.0, 1.0, self.context_dimension)

    @property
    def reward_parameters(self) -> tuple[FloatArray | float, ...]:
        return self.best_action, self.centre, self.weights

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return bump_rewards(np, context, actions, self.best_action, self.centre, self.weights)


class Chessboard(_TenActions):
    """Rewards 1, ½ or 0 on a 4×4 grid of (x, a)."""

    context_dimension = 1
    lengthscale: float = 0.1
    # rows: quarter of x; columns: quarter of a
    _VALUES = np.array([[0.0, 0.5, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 1.0, 0.0]])

    @property
    def reward_parameters(self) -> tuple[FloatArray | float, ...]:
        return (self._VALUES,)

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return chessboard_rewards(np, context, actions, self._VALUES)


class StepDiagonal(_TenActions):
    """Reward 1 where |x − (a + 0.15)| < 0.1, ½ where |x − (a − 0.15)| < 0.1, else 0."""

    context_dimension = 1
    lengthscale: float = 0.1

    @property
    def reward_parameters(self) -> tuple[FloatArray | float, ...]:
        return ()

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return step_diagonal_rewards(np, context, actions)
