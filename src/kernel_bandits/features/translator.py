"""Between the names of a table and the arrays of a policy, both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.features.description import Features
from kernel_bandits.features.layout import Side
from kernel_bandits.features.offers import Action, ArmEncoder, Offer
from kernel_bandits.features.portable import Node, variables
from kernel_bandits.features.rows import RowLike
from kernel_bandits.features.values import Level, nearest, shown

# A mask by position or by name.
Mask: TypeAlias = ArrayLike | Mapping[Level, bool]


class Translator:
    """Encodes rows and actions, and decodes joint points, with the levels and arms that were learned so far.

    Args:
        features: what the table is.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self._contexts, self._actions = features.encoders()

    def context(self, row: RowLike) -> tuple[FloatArray, bool]:
        """Return the vector (d_x,) of a row, and whether it is settled for good."""
        vector = np.zeros(self._contexts.width)
        return vector, self._contexts.write(vector, row, "context")

    def contexts(self, rows: Sequence[RowLike]) -> tuple[FloatArray, bool]:
        """Return the vectors (n, d_x) of rows, and whether all are settled for good."""
        return self._contexts.encode(rows, "contexts")

    def offered(self, offer: Offer | None = None) -> Sequence[Action]:
        """Return the actions of an offer, one by one; every known arm unless some are given."""
        return self._actions.offered(offer)

    def actions(self, actions: Sequence[Action]) -> tuple[FloatArray, bool]:
        """Return the vectors (A, d_a) of actions, and whether all are settled for good."""
        return self._actions.encode(actions)

    def box(self, box: Box) -> Box:
        """Return a box in the units of the table as one of encoded actions."""
        return self._actions.box(box)

    def mask(self, mask: Mask, offered: Sequence[Action]) -> ArrayLike:
        """Return a mask by name as one boolean for each action; names that are left out may be played."""
        if not isinstance(mask, Mapping):
            return mask
        names = [self.arm_of(action) for action in offered]
        for name, value in mask.items():
            if name not in names:
                raise InputError(f"mask: {shown(name)} is not on offer{nearest(name, names)}")
            if not isinstance(value, (bool, np.bool_)):
                raise InputError(f"mask: expected True or False for {name!r}, got {shown(value)}.")
        return [name is None or bool(mask.get(name, True)) for name in names]

    def require_played(self, actions: Sequence[Action]) -> None:
        """Raise if an action that was played is a number where all known arms are text: most likely its index."""
        known = self.arms
        for action in actions:
            if isinstance(action, (int, np.integer)) and known and all(isinstance(name, str) for name in known):
                raise InputError(
                    f"action: expected the name of an arm, which is text, got {shown(action)}; pass decision.arm, not "
                    "its index."
                )

    def learn(self, row: RowLike, action: Action) -> None:
        """Settle the encoding of a row and an action for good; may be repeated."""
        self._contexts.learn(row)
        self._actions.learn(action)

    def log(self, rows: Sequence[RowLike], actions: Sequence[Action]) -> tuple[FloatArray, FloatArray, Translator]:
        """Return vectors of rounds that are learned one after the other, and the translator that has learned them."""
        contexts, settled = self.contexts(rows)
        refusal: InputError | None = None
        try:
            encoded, known = self.actions(actions)
        except InputError as reason:
            # an arm may be named alone once the log has described it
            encoded, known, refusal = np.empty((len(actions), self._actions.width)), False, reason
        if settled and known:
            return contexts, encoded, self
        twin = object.__new__(Translator)
        twin.features, twin._contexts, twin._actions = self.features, self._contexts.copy(), self._actions.copy()
        try:
            for i, (row, action) in enumerate(zip(rows, actions, strict=True)):
                contexts[i], encoded[i] = twin.context(row)[0], twin.actions([action])[0][0]
                twin.learn(row, action)
        except InputError as reason:
            # the first refusal knows the number of the row
            raise refusal or reason from reason
        return contexts, encoded, twin

    def read_action(self, vector: FloatArray) -> Action | None:
        """Return the action that a vector (d_a,) stands for, as far as it can be told."""
        return self._actions.read(vector)

    def decode(self, points: FloatArray) -> list[tuple[dict[str, Any], Action | None]]:
        """Return the row and the action that each of the joint points (n, d) stands for, as far as they can be told."""
        split = self._contexts.width
        return [(self._contexts.read(point[:split]), self._actions.read(point[split:])) for point in points]

    def arm_of(self, action: Action) -> Level | None:
        """Return the name of an action's arm; None where actions are described by features alone."""
        return self._actions.name_of(action)

    def features_of(self, action: Action) -> dict[str, Any]:
        """Return the features of an action as a row, with the name of its arm under ``"arm"`` where it has one."""
        return self._actions.row_of(action)

    def variables(self) -> list[Node]:
        """Return how each variable is encoded now, as :meth:`TablePolicy.export` writes it."""
        return variables(self._contexts, self._actions)

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The arms that are known, and the levels that were met of each column that finds them on the way."""
        contexts, actions = self._contexts.levels, self._actions.levels
        shared = contexts.keys() & actions.keys()

        def named(levels: dict[str, tuple[Level, ...]], side: Side) -> dict[str, tuple[Level, ...]]:
            return {f"{name} ({side})" if name in shared else name: values for name, values in levels.items()}

        return named(contexts, "context") | named(actions, "action")

    @property
    def arms(self) -> tuple[Level, ...]:
        """The arms that are known; none where actions are described by features alone."""
        return self._actions.names if isinstance(self._actions, ArmEncoder) else ()
