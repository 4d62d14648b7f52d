"""What every policy offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.arrays import FloatArray, as_vector
from kernel_bandits.joint import pair


@dataclass(frozen=True, slots=True)
class Decision:
    """The action to play and what the policy believed of it.

    Attributes:
        index: its row among the offered actions.
        action: the action itself, shape (d_a,).
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        upper_bound: its upper confidence bound, the largest of all offered actions.
    """

    index: int
    action: FloatArray
    mean: float
    std: float
    upper_bound: float


class Policy(ABC):
    """Plays one of the offered actions and learns from its reward. Rewards are maximised.

    The dimensions of contexts and actions are those of the first observation; the number of actions may change from
    round to round.

    Args:
        ties: the generator that breaks ties.
    """

    def __init__(self, ties: np.random.Generator) -> None:
        self._ties = ties
        self._dimensions: tuple[int | None, int | None] = (None, None)

    @property
    @abstractmethod
    def dictionary_size(self) -> int:
        """How many points carry the model: m for a dictionary, t for an exact posterior, 0 without a model."""

    @abstractmethod
    def _select(self, points: FloatArray, actions: FloatArray) -> Decision:
        """Choose among valid joint points; the model stays as it is."""

    @abstractmethod
    def _update(self, point: FloatArray, reward: float) -> None:
        """Learn from a valid joint point; either succeeds or changes nothing."""

    def select(self, context: ArrayLike, actions: ArrayLike) -> Decision:
        """Choose an action for a context.

        Does not change the model; randomness is consumed only to break ties.

        Args:
            context: shape (d_x,); empty for a problem without contexts.
            actions: one offered action per row, shape (A, d_a), A ≥ 1.
        """
        points = pair(context, actions, *self._dimensions)
        return self._select(points, np.asarray(actions))

    def update(self, context: ArrayLike, action: ArrayLike, reward: float) -> None:
        """Learn the reward of an action that was played in a context.

        Args:
            context: shape (d_x,).
            action: shape (d_a,), for instance ``decision.action``.
            reward: a finite number; larger is better.
        """
        action = as_vector("action", action, self._dimensions[1])
        points = pair(context, action[None, :], *self._dimensions)
        self._update(points[0], reward)
        self._dimensions = (points.shape[1] - len(action), len(action))

    def _argmax(self, values: FloatArray) -> int:
        """The index of the largest value; among equals, up to rounding, one at random."""
        best = int(values.argmax())
        peak = float(values[best])
        # Far from all data the bounds of different actions agree but for the order of rounding, which must not decide.
        tied = np.flatnonzero(values >= peak - 1e-12 * abs(peak))
        return best if len(tied) == 1 else int(tied[self._ties.integers(len(tied))])
