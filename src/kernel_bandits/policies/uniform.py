"""The baseline that learns nothing."""

from __future__ import annotations

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.policies.base import BoxPolicy, Choice


class Uniform(BoxPolicy):
    """Play an action, of rows or of a box, uniformly at random; mean, std and upper bound of its decisions are 0."""

    def __init__(self, ties: np.random.Generator) -> None:
        super().__init__(ties)
        self._rewards_seen = 0

    @property
    def posteriors(self) -> tuple[()]:
        return ()

    @property
    def round_index(self) -> int:
        return self._rewards_seen

    @property
    def dictionary_size(self) -> int:
        return 0

    def _select(self, points: FloatArray) -> Choice:
        return int(self._ties.integers(len(points))), 0.0, 0.0, 0.0, 1.0 / len(points)

    def _finalists(self, context: FloatArray, box: Box) -> FloatArray:  # noqa: ARG002 (context does not matter)
        return box.sample(self._ties, 1)

    def _select_many(self, points: FloatArray) -> list[Choice]:
        return [self._select(offered) for offered in points]

    def _update(self, point: FloatArray, reward: float, chosen: bool) -> None:  # noqa: ARG002 (nothing to learn)
        self._rewards_seen += 1

    def _update_many(self, points: FloatArray, rewards: FloatArray) -> None:  # noqa: ARG002 (nothing to learn)
        self._rewards_seen += len(rewards)

    def _anticipate(self, key: int, point: FloatArray) -> None:
        """Nothing to learn."""

    def _fulfil(self, key: int, reward: float) -> None:  # noqa: ARG002 (nothing to learn)
        self._rewards_seen += 1

    def _abandon(self, key: int) -> None:
        """Nothing to learn."""

    def __repr__(self) -> str:
        return f"Uniform(round_index={self.round_index})"
