"""Levels as vectors of a fixed width: unit vectors for the first ones, fixed random vectors for those beyond."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.features.values import Level, sign_code

# This many names of levels beyond the capacity are kept, to be shown again.
REMEMBERED = 10_000


class Codebook:
    """Which vector stands for which level. A level that was learned once keeps its vector for good.

    The first ``capacity`` levels are unit vectors, in the order in which they were learned. Later ones are
    :func:`~kernel_bandits.features.values.sign_code` s in the same columns, which need no memory. A level that was not
    learned yet takes the next free unit vector until another level is learned.

    Args:
        capacity: the width of the vectors, and the number of levels with unit vectors.
        levels: that are known from the beginning, at most ``capacity``.
    """

    def __init__(self, capacity: int, levels: Iterable[Level] = ()) -> None:
        self.capacity = capacity
        self.slots: dict[Level, int] = {level: slot for slot, level in enumerate(dict.fromkeys(levels))}
        self.late: dict[Level, None] = {}

    def write(self, out: FloatArray, start: int, level: Level) -> bool:
        """Write the vector of a level to zeros of a row, from a column on; whether it is settled for good."""
        slot = self.slots.get(level)
        if slot is not None:
            out[start + slot] = 1.0
            return True
        free = len(self.slots)
        if free < self.capacity:
            out[start + free] = 1.0
            return False
        out[start : start + self.capacity] = sign_code(level, self.capacity)
        return level in self.late or len(self.late) >= REMEMBERED

    def learn(self, level: Level) -> None:
        """Give a level the vector that :meth:`write` writes for it, for good."""
        if level in self.slots:
            return
        if len(self.slots) < self.capacity:
            self.slots[level] = len(self.slots)
        elif len(self.late) < REMEMBERED:
            self.late[level] = None

    def read(self, vector: FloatArray) -> Level | None:
        """Return the level of a vector of shape (capacity,); None if it is not known any more."""
        if np.count_nonzero(vector) <= 1:
            slot = int(np.argmax(vector))
            return next((level for level, other in self.slots.items() if other == slot), None)
        return next((level for level in self.late if np.array_equal(sign_code(level, self.capacity), vector)), None)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Every level that was learned or given, in order."""
        return (*self.slots, *self.late)

    def copy(self) -> Codebook:
        """Return a codebook that learns apart from this one."""
        twin = Codebook(self.capacity)
        twin.slots, twin.late = dict(self.slots), dict(self.late)
        return twin
