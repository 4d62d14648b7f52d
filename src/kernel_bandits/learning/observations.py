"""A sample of observations as blocks: those of each arm apart, or all of them together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.learning.blocks import Block, Similarity
from kernel_bandits.learning.columns import ColumnUnits
from kernel_bandits.numerics.linalg import times, times_transpose
from kernel_bandits.numerics.packed import pack

# Described actions have something of their own if they return: from this many observations of each on, on average.
PLAYS_OF_ONE_ACTION = 2


@dataclass(frozen=True)
class Observations:
    """A sample, in random order.

    Attributes:
        contexts: shape (n, d_x).
        actions: shape (n, d_a).
        rewards: in units of their spread, about their mean, shape (n,).
        context_units: of the context columns.
        action_units: of the action columns; None where they name arms.
        may_return: whether described actions may have something of their own.
    """

    contexts: FloatArray
    actions: FloatArray
    rewards: FloatArray
    context_units: ColumnUnits
    action_units: ColumnUnits | None
    may_return: bool

    @cached_property
    def arms(self) -> NDArray[np.intp]:
        """The arm of each observation, numbered from 0, shape (n,); all are of one where actions are described."""
        if self.action_units is not None:
            return np.zeros(len(self.actions), dtype=np.intp)
        return np.unique(self.actions, axis=0, return_inverse=True)[1].reshape(-1)

    @cached_property
    def arm_count(self) -> int:
        """How many arms there are."""
        return int(self.arms.max()) + 1

    def apart(self, size: int) -> list[Block]:
        """Return the first observations, those of each arm in a block."""
        arms = self.arms[:size]
        return [self._block(np.flatnonzero(arms == arm)) for arm in np.unique(arms)]

    def together(self, size: int) -> Block:
        """Return the first observations as those of correlated arms."""
        arms = self.arms[:size]
        return replace(self._block(np.arange(len(arms))), other_arm=pack((arms[:, None] != arms).astype(np.float64)))

    def _block(self, rows: NDArray[np.intp]) -> Block:
        """Return some observations of one arm, or of described actions."""
        described = same = None
        units = self.action_units
        if units is not None:
            described = Similarity.of(units.standardised(self.actions[rows]), units.variables, units.labels)
            same = self._same_action(rows)
        units = self.context_units
        contexts = units.standardised(self.contexts[rows])
        similarity = Similarity.of(contexts, units.variables, units.labels)
        decorrelated = pack(times_transpose(times(contexts, units.precision), contexts))
        return Block(similarity, decorrelated, described, self.rewards[rows], same_action=same)

    def _same_action(self, rows: NDArray[np.intp]) -> FloatArray | None:
        """1 where two observations are of the same action; None where actions return too seldom to be known."""
        kinds = np.unique(self.actions[rows], axis=0, return_inverse=True)[1].reshape(-1)
        if not self.may_return or kinds.max() >= len(kinds) // PLAYS_OF_ONE_ACTION:
            return None
        return pack(np.equal.outer(kinds, kinds).astype(np.float64))
