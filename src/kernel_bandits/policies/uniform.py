"""The baseline that learns nothing."""

from typing import final

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.boxes.density import volume
from kernel_bandits.policies.decision import Choice
from kernel_bandits.policies.policy import Policy


@final
class Uniform(Policy):
    """Play an action, of rows or of a box, uniformly at random; mean, std and upper bound of its decisions are 0."""

    def choose(self, points: FloatArray) -> Choice:
        self.will_draw(self.generator)
        probabilities = np.full(len(points), 1.0 / len(points))
        row = int(self.generator.integers(len(points)))
        return Choice(row, propensity=probabilities.item(row), probabilities=probabilities)

    def draw_in_box(self, context: FloatArray, box: Box) -> tuple[FloatArray, float]:
        del context  # any context is the same
        return box.sample(self.generator, 1)[0], 1.0 / volume(box)

    def learn(self, point: FloatArray, reward: float, choice: Choice | None) -> None:
        """Nothing to learn."""

    def __repr__(self) -> str:
        return f"Uniform(round_index={self.round_index})"
