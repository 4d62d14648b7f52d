"""How columns are warped before they are compared: how much each variable matters, and how contexts move actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray


@dataclass(frozen=True)
class Warp:
    """Standardised contexts x become x·exp ρ, and described actions a become (a − Mx)·exp ρ', variable by variable.

    Attributes:
        contexts: ρ of each variable; empty where all count alike.
        actions: ρ' of each variable; empty where all count alike.
        moves: M, shape (d_a, d_x): how many standard deviations what an action does moves with one of a context column;
            of shape (0, 0) where nothing moves.
    """

    contexts: FloatArray
    actions: FloatArray
    moves: FloatArray

    @property
    def flat(self) -> FloatArray:
        """All of it in one row."""
        return np.concatenate([self.contexts, self.actions, self.moves.ravel()])


@dataclass(frozen=True)
class WarpSizes:
    """How much of a warp there is to learn.

    Attributes:
        contexts: variables of contexts that may have a weight of their own.
        actions: the same of actions.
        moves: the shape of M.
    """

    contexts: int
    actions: int
    moves: tuple[int, int]

    @property
    def weights(self) -> int:
        """How many of the numbers are weights."""
        return self.contexts + self.actions

    @property
    def total(self) -> int:
        """How many numbers there are."""
        return self.weights + self.moves[0] * self.moves[1]

    def warp(self, flat: FloatArray) -> Warp:
        """Return the warp of numbers in one row."""
        weights = self.weights
        return Warp(flat[: self.contexts], flat[self.contexts : weights], flat[weights:].reshape(self.moves))


NO_WARP = Warp(np.empty(0), np.empty(0), np.empty((0, 0)))
