"""Observations that only ever grow, kept in blocks: growth copies nothing and a pass over them is blocked already."""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from copy import copy
from itertools import repeat
from operator import setitem
from typing import Protocol, Self, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out

# Points (b, d), how often each was observed (b,), and the sum of its rewards (b,).
Block: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
BLOCK_ROWS = 512
_ONES = np.ones(BLOCK_ROWS)


class Blocks(Protocol):
    """What a pass needs of a history."""

    def blocks(self) -> Iterator[Block]:
        """Return points, their counts and sums of rewards, block by block."""


class Thinned:
    """Every k-th observation, each standing for those around it."""

    def __init__(self, points: FloatArray, rewards: FloatArray, most: int) -> None:
        step = -(-len(points) // most)
        self.points, self.rewards, self.count = points[::step], rewards[::step], float(step)

    def blocks(self) -> Iterator[Block]:
        """Return views of points, their counts and sums of rewards, as :meth:`History.blocks`."""
        for start in range(0, len(self.points), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            points = self.points[rows]
            yield points, np.full(len(points), self.count), self.count * self.rewards[rows]


class History:
    """Observed points and rewards, in blocks of ``BLOCK_ROWS`` points.

    Merged repeats of a point are kept as one point with a count and a sum of rewards, so that a pass costs as many rows
    as there are different points, and an index entry per point. Weights other than 1 are kept from the first on.
    """

    __slots__ = ("_counts", "_order", "_points", "_rewards", "_rewards_in_order", "_row_of", "_size")

    def __init__(self, merge_repeats: bool = False) -> None:
        self._points: list[FloatArray] = []
        self._rewards: list[FloatArray] = []
        self._size = 0
        self._row_of: dict[bytes, int] | None = {} if merge_repeats else None
        self._counts: list[FloatArray] = []
        self._order = array("q")
        self._rewards_in_order = array("d")

    def __len__(self) -> int:
        """Return how many rows a pass costs: observations, or different points where repeats are merged."""
        return self._size

    def append_steps(self, point: FloatArray, reward: float, weight: float = 1.0) -> Steps:
        """Return the steps that keep one more observation."""
        row = self._size % BLOCK_ROWS
        if row and weight == 1.0 and self._row_of is None and not self._counts:
            return [(self._store, self._points[-1], self._rewards[-1], row, point, reward, self._size + 1)]
        return self._append_steps(point, reward, weight)

    def _append_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        """Return the steps in all other cases: repeats that are merged, weights, the first row of a block."""
        reward_in_order, reward = reward, reward if weight == 1.0 else weight * reward
        steps: Steps = []
        if self._row_of is not None:
            key = point.tobytes()
            row = self._row_of.get(key, self._size)
            steps = [(self._order.append, row), (self._rewards_in_order.append, reward_in_order)]
            if row < self._size:
                block, row = divmod(row, BLOCK_ROWS)
                steps.append((setitem, self._counts[block], row, self._counts[block][row] + weight))
                steps.append((setitem, self._rewards[block], row, self._rewards[block][row] + reward))
                return steps
            steps.append((setitem, self._row_of, key, row))
        row, counts = self._size % BLOCK_ROWS, self._counts
        if weight != 1.0 and len(counts) < len(self._points):
            counts = [np.ones(BLOCK_ROWS) for _ in self._points]
            steps.append((setattr, self, "_counts", counts))
        if row:
            if counts:
                steps.append((setitem, counts[-1], row, weight))
            steps.append((self._store, self._points[-1], self._rewards[-1], row, point, reward, self._size + 1))
            return steps
        points, rewards = np.zeros((BLOCK_ROWS, len(point))), np.zeros(BLOCK_ROWS)
        points[0], rewards[0] = point, reward
        steps += [(self._points.append, points), (self._rewards.append, rewards)]
        if self._row_of is not None or counts or weight != 1.0:
            first = np.ones(BLOCK_ROWS)
            first[0] = weight
            steps.append((counts.append, first))
        steps.append((setattr, self, "_size", self._size + 1))
        return steps

    def _store(
        self, points: FloatArray, rewards: FloatArray, row: int, point: FloatArray, reward: float, size: int
    ) -> None:
        """Write one more row; may be repeated."""
        points[row], rewards[row], self._size = point, reward, size

    def copy(self) -> Self:
        """Return a history that grows apart from this one; blocks that are full are shared."""
        twin = copy(self)
        twin._points = [*self._points[:-1], *(block.copy() for block in self._points[-1:])]
        if self._row_of is None:
            twin._rewards = [*self._rewards[:-1], *(block.copy() for block in self._rewards[-1:])]
            twin._counts = [*self._counts[:-1], *(block.copy() for block in self._counts[-1:])]
        else:
            # merged rows may gain a count and a reward at any time
            twin._row_of, twin._order, twin._rewards_in_order = (
                dict(self._row_of),
                self._order[:],
                self._rewards_in_order[:],
            )
            twin._rewards, twin._counts = [r.copy() for r in self._rewards], [c.copy() for c in self._counts]
        return twin

    def extend(self, points: FloatArray, rewards: FloatArray, weights: FloatArray | None = None) -> None:
        """Keep observations in order, in a history that nobody else holds."""
        if self._row_of is not None or self._counts or weights is not None:
            each = repeat(1.0) if weights is None else weights.tolist()
            for point, reward, weight in zip(points, rewards.tolist(), each, strict=False):
                carry_out(self.append_steps(point, reward, weight))
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
        """Return views of different points (b, d), their counts and sums of rewards (b,), b ≤ ``BLOCK_ROWS``."""
        left = self._size
        for index, (points, rewards) in enumerate(zip(self._points, self._rewards, strict=True)):
            counts = self._counts[index] if self._counts else _ONES
            yield points[:left], counts[:left], rewards[:left]
            left -= BLOCK_ROWS

    @property
    def counts(self) -> FloatArray:
        """How often each row was observed, one fresh array."""
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


def rewards_at(points: FloatArray, observed: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return the rewards of some observed points (n, d), in order; means where repeats are merged.

    Args:
        points: all that were observed, those of one arm, or each different one once.
        observed: all points in the order of the history, shape (t, d).
        rewards: shape (t,).
    """
    if len(points) == len(observed):
        return rewards
    earned = defaultdict[bytes, list[float]](list)
    for each, reward in zip(observed, rewards.tolist(), strict=True):
        earned[each.tobytes()].append(reward)
    keys = [each.tobytes() for each in points]
    is_merged = len(set(keys)) == len(keys)
    return np.array([np.mean(earned[key]) if is_merged else earned[key].pop(0) for key in keys])
