"""Observations that only ever grow, as a value: growth copies nothing and a pass over them is blocked already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Self, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.values import Rows, copied, evolve

# Points (b, d), how much each counts (b,), and its reward times that (b,).
Block: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
BLOCK_ROWS = 512
_ONES = np.ones(BLOCK_ROWS)


class History:
    """Observed points and rewards, with weights from the first on that is not 1."""

    __slots__ = ("_anchors", "_points", "_rewards", "_weights")

    def __init__(self) -> None:
        self._points = self._rewards = Rows(BLOCK_ROWS)
        # the rows that are known to be anchors
        self._anchors = Rows(BLOCK_ROWS)
        self._weights: Rows | None = None

    def appended(self, point: FloatArray, reward: float, weight: float = 1.0, is_anchor: bool = False) -> Self:
        """Return it with one more observation."""
        after = copied(self)
        after._points, after._rewards = self._points.appended(point), self._rewards.appended(reward)
        if is_anchor:
            after._anchors = self._anchors.appended(self._points.size)
        if self._weights is not None or weight != 1.0:
            weights = Rows.of(np.ones(len(self._rewards)), BLOCK_ROWS) if self._weights is None else self._weights
            after._weights = weights.appended(weight)
        return after

    def extended(
        self,
        points: FloatArray,
        rewards: FloatArray,
        weights: FloatArray | None = None,
        anchors: Sequence[int] = (),
    ) -> Self:
        """Return it with further observations in order; ``anchors`` says which of them are."""
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
        """Yield views of points (b, d), how much each counts, and its reward times that (b,), b ≤ ``BLOCK_ROWS``."""
        weights = None if self._weights is None else self._weights.blocks()
        for points, rewards in zip(self._points.blocks(), self._rewards.blocks(), strict=True):
            if weights is None:
                yield points, _ONES[: len(points)], rewards
            else:
                own = next(weights)
                yield points, own, own * rewards

    def outside(self) -> Iterator[Block]:
        """Yield the observations that are not known to be anchors, block by block."""
        anchors, first = self._anchors.array, 0
        for points, counts, sums in self.blocks() if len(anchors) < self._points.size else ():
            start, stop = anchors.searchsorted((first, first + len(points))).tolist()
            if stop == start:
                yield points, counts, sums
            elif stop - start < len(points):
                others = np.ones(len(points), dtype=bool)
                others[anchors[start:stop] - first] = False
                yield points[others], counts[others], sums[others]
            first += len(points)

    def with_anchors(self, anchors: FloatArray) -> Self:
        """Return it for a basis of these anchors (m, d), which may be among the observed points."""
        known = {anchor.tobytes() for anchor in anchors}
        rows = [row for row, point in enumerate(self.points) if point.tobytes() in known]
        return evolve(self, _anchors=Rows.of(np.array(rows, dtype=np.intp), BLOCK_ROWS))

    @property
    def weights(self) -> FloatArray | None:
        """The weights of all observations in order, shape (t,); None if all are 1."""
        return None if self._weights is None else self._weights.array

    @property
    def points(self) -> FloatArray:
        """All observed points in order, one fresh array (t, d)."""
        return self._points.array if self._points.size else np.empty((0, 0))

    @property
    def rewards(self) -> FloatArray:
        """All observed rewards in order, one fresh array (t,)."""
        return self._rewards.array


def rewards_at(points: FloatArray, observed: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return the rewards of some observed points (n, d), in order.

    Args:
        points: all that were observed, or those of one arm.
        observed: all points in the order of the history, shape (t, d).
        rewards: shape (t,).
    """
    if len(points) == len(observed):
        return rewards
    earned = defaultdict[bytes, list[float]](list)
    for each, reward in zip(observed, rewards.tolist(), strict=True):
        earned[each.tobytes()].append(reward)
    return np.array([earned[each.tobytes()].pop(0) for each in points])
