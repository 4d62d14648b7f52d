"""The baseline that learns nothing."""

from typing import Any, Self, final

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.policy.policy import Choice, Policy
from kernel_bandits.posterior.base import Model, Weights


class Nothing(Model):
    """The model of a policy that learns nothing."""

    __slots__ = ()

    def learned(self, points: FloatArray, rewards: FloatArray, weights: Weights = None, evaluated: Any = None) -> Self:
        del points, rewards, evaluated
        if weights is not None:
            raise InputError("weight: uniform play learns nothing; leave weight= and noise_variance= out.")
        return self


@final
class Uniform(Policy):
    """Play an action, of rows or of a box, uniformly at random; mean, std and upper bound of its decisions are 0."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(Nothing(), generator)

    def choose(self, points: FloatArray) -> Choice:
        self.will_draw(self.generator)
        probabilities = np.full(len(points), 1.0 / len(points))
        row = int(self.generator.integers(len(points)))
        return Choice(row, propensity=probabilities.item(row), probabilities=probabilities)

    def draw_in_box(self, context: FloatArray, box: Box) -> tuple[FloatArray, float]:
        del context  # any context is the same
        fractions = self.generator.random((1, len(box.settings)))
        return box.at(fractions)[0], float(1.0 / box.volumes(fractions)[0])

    def __repr__(self) -> str:
        return f"Uniform(round_index={self.round_index})"
