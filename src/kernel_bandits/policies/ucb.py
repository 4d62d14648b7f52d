"""The one upper-confidence-bound rule, over whichever posterior and radius it is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.arrays import FloatArray
from kernel_bandits.confidence import Confidence
from kernel_bandits.joint import pair
from kernel_bandits.policies.base import Decision, Policy
from kernel_bandits.posteriors.base import Evaluation, Posterior, Prediction


class UpperConfidenceBound(Policy):
    """Play argmax mean + β·std/√λ (Algorithms 2 and 3 of the paper).

    Args:
        posterior: predicts and learns.
        confidence: answers the radius β.
        ties: the generator that breaks ties.
    """

    def __init__(self, posterior: Posterior[Any], confidence: Confidence, ties: np.random.Generator) -> None:
        super().__init__(ties)
        self.posterior = posterior
        self.confidence = confidence
        # What select computed for the point it chose, so that the update of that point does not compute it again.
        self._chosen: tuple[FloatArray, Evaluation] | None = None

    @property
    def dictionary_size(self) -> int:
        return self.posterior.dictionary_size

    @property
    def dictionary_points(self) -> FloatArray:
        """The anchors, shape (m, d): context columns first."""
        return self.posterior.dictionary_points

    @property
    def observed_points(self) -> FloatArray:
        """Every point played so far, shape (t, d), where the history is kept."""
        return self.posterior.observed_points

    @property
    def round_index(self) -> int:
        """How many observations were learned: t."""
        return self.posterior.round_index

    def predict(self, context: ArrayLike, actions: ArrayLike) -> Prediction:
        """Mean and standard deviation of the expected reward of each action, arrays of length A; writes nothing."""
        evaluation = self.posterior.evaluate(pair(context, actions, *self._dimensions))
        return Prediction(evaluation.mean, evaluation.std)

    def _select(self, points: FloatArray, actions: FloatArray) -> Decision:
        evaluation = self.posterior.evaluate(points)
        # μ + βσ with the paper's σ = std/√λ
        bonus = self.confidence.radius(self.posterior) / math.sqrt(self.posterior.regularization)
        upper_bounds = evaluation.mean + bonus * evaluation.std
        index = self._argmax(upper_bounds)
        self._chosen = (points[index], evaluation.row(index))
        return Decision(
            index,
            np.array(actions[index], dtype=np.float64),
            float(evaluation.mean[index]),
            float(evaluation.std[index]),
            float(upper_bounds[index]),
        )

    def _update(self, point: FloatArray, reward: float) -> None:
        evaluation = None
        if self._chosen is not None and (self._chosen[0] == point).all():
            evaluation = self._chosen[1]
        self.posterior.update(point, reward, evaluation)
