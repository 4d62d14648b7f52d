"""The three environments of the paper's section 5 and appendix, with the instances its published code draws."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.environments.base import Environment, Round

# NumPy's legacy generator with seed 123 draws these, in this order; they are written out since that stream is frozen
# history.
PUBLISHED_ACTIONS = (0.08, 0.70, 0.82, 0.28, 0.63, 0.00, 0.05, 0.50, 0.81, 0.04)
PUBLISHED_BEST_ACTION = 0.81
PUBLISHED_CENTRE = (0.1085423, 0.51165472, 0.9097694, 0.21837601, 0.36310407)
PUBLISHED_WEIGHTS = (0.70994563, 0.4227836, -0.21411118, -0.53739704, -0.23965057)
NUMBER_OF_ACTIONS = 10


class _TenActions(Environment):
    """Contexts uniform on [0, 1]^d_x and the same ten actions out of {0, 0.01, …, 0.99} at every round.

    Args:
        instance_seed: None for the published instance, or a seed that draws another.
    """

    context_dimension: int

    def __init__(self, instance_seed: int | None = None) -> None:
        self.instance_seed = instance_seed
        if instance_seed is None:
            self._draw_instance(None, np.array(PUBLISHED_ACTIONS))
        else:
            generator = np.random.default_rng(instance_seed)
            self._draw_instance(generator, generator.choice(100, size=NUMBER_OF_ACTIONS, replace=False) / 100)

    @abstractmethod
    def _draw_instance(self, generator: np.random.Generator | None, actions: FloatArray) -> None:
        """Set the actions and whatever else an instance consists of; no generator means the published instance."""

    @abstractmethod
    def _expected(self, context: FloatArray, action: FloatArray) -> FloatArray:
        """The expected reward of scalar actions (A,)."""

    def next_round(self, contexts: np.random.Generator) -> Round:
        return Round(contexts.random(self.context_dimension), self.actions.copy())

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return self._expected(context, actions[:, 0])

    actions: FloatArray

    def __repr__(self) -> str:
        instance = "" if self.instance_seed is None else f"instance_seed={self.instance_seed}"
        return f"{self.name}({instance})"


class Bump(_TenActions):
    """r = max(0, 1 − |a − a*| − ⟨w*, x − x*⟩) with contexts in five dimensions.

    The best action is the same in every context: this environment tests how fast a policy finds it, not whether it uses
    the context.
    """

    context_dimension = 5
    lengthscale = 1.0

    def _draw_instance(self, generator: np.random.Generator | None, actions: FloatArray) -> None:
        self.actions = actions[:, None]
        if generator is None:
            self.best_action = PUBLISHED_BEST_ACTION
            self.centre, self.weights = np.array(PUBLISHED_CENTRE), np.array(PUBLISHED_WEIGHTS)
        else:
            self.best_action = float(generator.choice(actions))
            self.centre = generator.random(self.context_dimension)
            self.weights = generator.uniform(-1.0, 1.0, self.context_dimension)

    def _expected(self, context: FloatArray, action: FloatArray) -> FloatArray:
        # r(x, a) = max(0, 1 − |a − a*| − ⟨w*, x − x*⟩)
        return np.maximum(0.0, 1.0 - np.abs(action - self.best_action) - self.weights @ (context - self.centre))


class _Plane(_TenActions):
    """A piecewise constant reward on the unit square of (x, a)."""

    context_dimension = 1
    lengthscale = 0.1

    def _draw_instance(self, generator: np.random.Generator | None, actions: FloatArray) -> None:  # noqa: ARG002
        # An instance is its actions; nothing else is drawn.
        self.actions = actions[:, None]


class Chessboard(_Plane):
    """Rewards 1, ½ or 0 on a 4×4 grid of (x, a)."""

    # rows: quarter of x; columns: quarter of a
    _VALUES = np.array([[0.0, 0.5, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 1.0, 0.0]])

    def _expected(self, context: FloatArray, action: FloatArray) -> FloatArray:
        row = min(int(4 * context[0]), 3)
        columns = np.minimum((4 * action).astype(int), 3)
        return self._VALUES[row, columns]


class StepDiagonal(_Plane):
    """Reward 1 where |x − (a + 0.15)| < 0.1, ½ where |x − (a − 0.15)| < 0.1, else 0."""

    def _expected(self, context: FloatArray, action: FloatArray) -> FloatArray:
        above = np.abs(context[0] - (action + 0.15)) < 0.1
        below = np.abs(context[0] - (action - 0.15)) < 0.1
        return np.where(above, 1.0, np.where(below, 0.5, 0.0))
