"""The baseline that learns nothing."""

from __future__ import annotations

import numpy as np

from kernel_bandits.arrays import FloatArray, as_reward
from kernel_bandits.policies.base import Decision, Policy


class Uniform(Policy):
    """Play an offered action uniformly at random; mean, std and upper bound of its decisions are 0."""

    @property
    def dictionary_size(self) -> int:
        return 0

    def _select(self, points: FloatArray, actions: FloatArray) -> Decision:
        index = int(self._ties.integers(len(points)))
        return Decision(index, np.array(actions[index], dtype=np.float64), 0.0, 0.0, 0.0)

    def _update(self, point: FloatArray, reward: float) -> None:  # noqa: ARG002 (checked, then forgotten)
        as_reward(reward)
