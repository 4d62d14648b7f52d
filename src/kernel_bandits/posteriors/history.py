"""Rows that only ever grow, kept in blocks: nothing is copied on growth and a pass over them is blocked already."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_bandits.arrays import FloatArray

BLOCK_ROWS = 512


class History:
    """Observed points and rewards in the order of arrival, in blocks of ``BLOCK_ROWS``."""

    def __init__(self) -> None:
        self._points: list[FloatArray] = []
        self._rewards: list[FloatArray] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def dimension(self) -> int | None:
        """d, the length of a point; None before the first."""
        return self._points[0].shape[1] if self._points else None

    def append(self, point: FloatArray, reward: float) -> None:
        """Keep one more observation."""
        row = self._size % BLOCK_ROWS
        if row == 0:
            self._points.append(np.zeros((BLOCK_ROWS, len(point))))
            self._rewards.append(np.zeros(BLOCK_ROWS))
        self._points[-1][row] = point
        self._rewards[-1][row] = reward
        self._size += 1

    def blocks(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Views of the points (b, d) and rewards (b,), b ≤ ``BLOCK_ROWS``."""
        left = self._size
        for points, rewards in zip(self._points, self._rewards, strict=True):
            yield points[:left], rewards[:left]
            left -= BLOCK_ROWS

    @property
    def points(self) -> FloatArray:
        """All points in one fresh array (t, d)."""
        return np.concatenate([points for points, _ in self.blocks()]) if self._size else np.empty((0, 0))

    @property
    def rewards(self) -> FloatArray:
        """All rewards in one fresh array (t,)."""
        return np.concatenate([rewards for _, rewards in self.blocks()]) if self._size else np.empty(0)
