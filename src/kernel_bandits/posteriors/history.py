"""Observations that only ever grow, kept in blocks: growth copies nothing and a pass over them is blocked already."""

from array import array
from collections.abc import Iterator
from itertools import repeat
from typing import TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray

# Points (b, d), the weight of each (b,), and the weighted sum of its rewards (b,). A point that was observed n times
# has weight n.
Block: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
BLOCK_ROWS = 512
_ONES = np.ones(BLOCK_ROWS)


class History:
    """Observed points and rewards, in blocks of ``BLOCK_ROWS`` points.

    Merged repeats of a point are kept as one point with a count and a sum of rewards, so that a pass costs as many rows
    as there are different points, and an index entry per point. Weights other than 1 are kept from the first on.
    """

    def __init__(self, merge_repeats: bool = False) -> None:
        self._points: list[FloatArray] = []
        self._rewards: list[FloatArray] = []
        self._size = 0
        self._row_of: dict[bytes, int] | None = {} if merge_repeats else None
        self._counts: list[FloatArray] = []
        self._order = array("q")
        self._rewards_in_order = array("d")

    def __len__(self) -> int:
        """How many rows a pass costs: observations, or different points where repeats are merged."""
        return self._size

    def append(self, point: FloatArray, reward: float, weight: float = 1.0) -> None:
        """Keep one more observation."""
        if weight != 1.0 and len(self._counts) < len(self._points):
            self._counts = [np.ones(BLOCK_ROWS) for _ in self._points]
        if self._row_of is not None:
            row = self._row_of.setdefault(point.tobytes(), self._size)
            self._order.append(row)
            self._rewards_in_order.append(reward)
            if row < self._size:
                self._counts[row // BLOCK_ROWS][row % BLOCK_ROWS] += weight
                self._rewards[row // BLOCK_ROWS][row % BLOCK_ROWS] += weight * reward
                return
        row = self._size % BLOCK_ROWS
        if row == 0:
            self._points.append(np.zeros((BLOCK_ROWS, len(point))))
            self._rewards.append(np.zeros(BLOCK_ROWS))
            if self._row_of is not None or self._counts or weight != 1.0:
                self._counts.append(np.ones(BLOCK_ROWS))
        self._points[-1][row] = point
        self._rewards[-1][row] = weight * reward
        if self._counts:
            self._counts[-1][row] = weight
        self._size += 1

    def extend(self, points: FloatArray, rewards: FloatArray, weights: FloatArray | None = None) -> None:
        """Keep observations in order."""
        if self._row_of is not None or self._counts or weights is not None:
            each = repeat(1.0) if weights is None else weights.tolist()
            for point, reward, weight in zip(points, rewards.tolist(), each, strict=False):
                self.append(point, reward, weight)
            return
        taken = 0
        while taken < len(points):
            row = self._size % BLOCK_ROWS
            if row == 0:
                self._points.append(np.zeros((BLOCK_ROWS, points.shape[1])))
                self._rewards.append(np.zeros(BLOCK_ROWS))
            count = min(BLOCK_ROWS - row, len(points) - taken)
            self._points[-1][row : row + count] = points[taken : taken + count]
            self._rewards[-1][row : row + count] = rewards[taken : taken + count]
            self._size += count
            taken += count

    def blocks(self) -> Iterator[Block]:
        """Views of different points (b, d), their weights (b,) and sums of rewards (b,), b ≤ ``BLOCK_ROWS``."""
        left = self._size
        for index, (points, rewards) in enumerate(zip(self._points, self._rewards, strict=True)):
            counts = self._counts[index] if self._counts else _ONES
            yield points[:left], counts[:left], rewards[:left]
            left -= BLOCK_ROWS

    @property
    def counts(self) -> FloatArray:
        """The weight of each row, how often it was observed unless weights were given, one fresh array."""
        return np.concatenate([counts for _, counts, _ in self.blocks()]) if self._size else np.empty(0)

    @property
    def weights(self) -> FloatArray | None:
        """The weights of all observations in order, shape (t,); None if all are 1, or where repeats are merged."""
        return self.counts if self._counts and self._row_of is None else None

    @property
    def rows(self) -> FloatArray:
        """The points a pass visits, one fresh array."""
        return np.concatenate([points for points, _, _ in self.blocks()]) if self._size else np.empty((0, 0))

    @property
    def points(self) -> FloatArray:
        """All observed points in order, one fresh array (t, d)."""
        return self.rows if self._row_of is None or not self._size else self.rows[np.array(self._order)]

    @property
    def rewards(self) -> FloatArray:
        """All observed rewards in order, one fresh array (t,)."""
        if self._row_of is not None:
            return np.array(self._rewards_in_order)
        if not self._size:
            return np.empty(0)
        return np.concatenate([sums / counts if self._counts else sums for _, counts, sums in self.blocks()])
