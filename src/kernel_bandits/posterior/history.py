"""Observations that only ever grow, as a value: growth copies nothing and a pass over them is blocked already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.values import Rows, copied, evolve

# Points (b, d), how often each was observed (b,), and the sum of its rewards (b,).
Block: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
BLOCK_ROWS = 512
_ONES = np.ones(BLOCK_ROWS)


class Outside(NamedTuple):
    """Observations that are no anchors: points (b, d), counts, sums of rewards and row numbers (b,)."""

    points: FloatArray
    counts: FloatArray
    rewards: FloatArray
    order: NDArray[np.intp]


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


class _Repeats:
    """Which observation stands in which row, where a point that is observed again is kept once.

    The index is shared by the histories that grew from one; whoever holds all of its rows may add the next.
    """

    __slots__ = ("_rows", "order")

    def __init__(self, rows: dict[bytes, int] | None = None, order: Rows | None = None) -> None:
        self._rows = {} if rows is None else rows
        self.order = Rows() if order is None else order

    def __reduce__(self) -> tuple[Any, ...]:
        # without the index, which may hold points of histories that grew from this one; it is made anew when needed
        return _Repeats, (None, self.order)

    def appended(self, point: FloatArray, known: Rows) -> _Repeats:
        """Return them with one more point, given the different points so far."""
        rows, key = self._rows, point.tobytes()
        if len(rows) != len(known):
            # another history has grown from the same one
            rows = {each.tobytes(): row for row, each in enumerate(known.array)}
        return _Repeats(rows, self.order.appended(rows.setdefault(key, len(rows))))


class History:
    """Observed points and rewards, with weights from the first on that is not 1.

    Where repeats are merged, a pass costs as many rows as there are different points.
    """

    __slots__ = ("_anchors", "_points", "_repeats", "_rewards", "_weights")

    def __init__(self, merge_repeats: bool = False) -> None:
        self._points = self._rewards = Rows(BLOCK_ROWS)
        # the rows that are known to be anchors
        self._anchors = Rows(BLOCK_ROWS)
        self._weights: Rows | None = None
        self._repeats = _Repeats() if merge_repeats else None

    def __len__(self) -> int:
        """Return how many rows a pass costs: observations, or different points where repeats are merged."""
        return len(self._points)

    def appended(self, point: FloatArray, reward: float, weight: float = 1.0, is_anchor: bool = False) -> Self:
        """Return it with one more observation."""
        weights, repeats, points, anchors = self._weights, self._repeats, self._points, self._anchors
        if weights is None and weight != 1.0:
            weights = Rows.of(np.ones(len(self._rewards)), BLOCK_ROWS)
        if weights is not None:
            weights = weights.appended(weight)
        if repeats is not None:
            repeats = repeats.appended(point, points)
        if is_anchor and repeats is None:
            anchors = anchors.appended(points.size)
        if repeats is None or repeats.order.tail.item(-1) == points.size:
            points = points.appended(point)
        after = copied(self)
        after._anchors, after._points, after._rewards = anchors, points, self._rewards.appended(reward)
        after._weights, after._repeats = weights, repeats
        return after

    def extended(
        self,
        points: FloatArray,
        rewards: FloatArray,
        weights: FloatArray | None = None,
        anchors: Sequence[int] = (),
    ) -> Self:
        """Return it with further observations in order; ``anchors`` says which of them are."""
        if self._repeats is not None:
            grown, each = self, np.ones(len(points)) if weights is None else weights
            for point, reward, weight in zip(points, rewards.tolist(), each.tolist(), strict=True):
                grown = grown.appended(point, reward, weight)
            return grown
        kept = self._weights
        if weights is not None and kept is None:
            kept = Rows.of(np.ones(len(self._rewards)), BLOCK_ROWS)
        if kept is not None:
            kept = kept.extended(np.ones(len(points)) if weights is None else weights)
        grown_points, grown_rewards = self._points.extended(points), self._rewards.extended(rewards)
        known = self._anchors
        for row in anchors:
            known = known.appended(len(self._points) + row)
        return evolve(self, _anchors=known, _points=grown_points, _rewards=grown_rewards, _weights=kept)

    def blocks(self) -> Iterator[Block]:
        """Return views of different points (b, d), their counts and sums of rewards (b,), b ≤ ``BLOCK_ROWS``."""
        if self._repeats is not None:
            yield from self._merged_blocks(self._repeats.order.array)
            return
        weights = None if self._weights is None else self._weights.blocks()
        for points, rewards in zip(self._points.blocks(), self._rewards.blocks(), strict=True):
            if weights is None:
                yield points, _ONES[: len(points)], rewards
            else:
                own = next(weights)
                yield points, own, own * rewards

    def outside(self) -> Iterator[Outside]:
        """Yield the observations that are not known to be anchors, block by block."""
        anchors, first = self._anchors.array, 0
        for points, counts, sums in self.blocks() if len(anchors) < self._points.size else ():
            start, stop = anchors.searchsorted((first, first + len(points))).tolist()
            if stop == start:
                yield Outside(points, counts, sums, np.arange(first, first + len(points)))
            elif stop - start < len(points):
                others = np.ones(len(points), dtype=bool)
                others[anchors[start:stop] - first] = False
                (order,) = others.nonzero()
                yield Outside(points[order], counts[order], sums[order], first + order)
            first += len(points)

    def with_anchors(self, anchors: FloatArray) -> Self:
        """Return it for a basis of these anchors (m, d), which may be among the observed points."""
        if self._repeats is not None:
            return self
        known = {anchor.tobytes() for anchor in anchors}
        rows = [row for row, point in enumerate(self.rows) if point.tobytes() in known]
        return evolve(self, _anchors=Rows.of(np.array(rows, dtype=np.intp), BLOCK_ROWS))

    def _merged_blocks(self, order: Any) -> Iterator[Block]:
        if not len(order):
            return
        weights, rewards = self.weights_in_order, self._rewards.array
        counts: FloatArray = np.bincount(order, weights).astype(float)
        sums: FloatArray = np.bincount(order, rewards if weights is None else weights * rewards).astype(float)
        start = 0
        for points in self._points.blocks():
            rows = slice(start, start + len(points))
            yield points, counts[rows], sums[rows]
            start += len(points)

    @property
    def weights_in_order(self) -> FloatArray | None:
        """The weights of all observations in order, shape (t,); None if all are 1."""
        return None if self._weights is None else self._weights.array

    @property
    def weights(self) -> FloatArray | None:
        """The weights of all observations in order, shape (t,); None if all are 1, or where repeats are merged."""
        return self.weights_in_order if self._repeats is None else None

    @property
    def rows(self) -> FloatArray:
        """The points a pass visits, one fresh array."""
        return self._points.array if len(self._points) else np.empty((0, 0))

    @property
    def points(self) -> FloatArray:
        """All observed points in order, one fresh array (t, d)."""
        if self._repeats is None or not len(self._points):
            return self.rows
        return self.rows[self._repeats.order.array]

    @property
    def rewards(self) -> FloatArray:
        """All observed rewards in order, one fresh array (t,)."""
        return self._rewards.array


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
