"""The one upper-confidence-bound rule, over whichever posterior and radius it is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.arrays import FloatArray, InputError
from kernel_bandits.confidence import Confidence, require_radius
from kernel_bandits.joint import pair
from kernel_bandits.policies.base import Choice, Policy
from kernel_bandits.posteriors.base import Evaluation, Posterior, Prediction

# Points evaluated at once by select_many: enough for matrix products, little enough for the caches.
ROWS_AT_ONCE = 4096


class UpperConfidenceBound(Policy):
    """Play argmax mean + β·std/√λ (Algorithm 2 of the paper, and the "Kernel UCB" of its appendix).

    Args:
        posterior: predicts and learns.
        confidence: answers the radius β.
        ties: the generator that breaks ties.
    """

    def __init__(self, posterior: Posterior[Any], confidence: Confidence, ties: np.random.Generator) -> None:
        super().__init__(ties)
        require_radius(confidence, posterior)
        self.posterior = posterior
        self.confidence = confidence
        # What select computed for all actions and the row it chose: the update computes nothing of it again.
        self._chosen: tuple[Evaluation, int] | None = None

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

    @np.errstate(over="ignore")
    def predict(self, context: ArrayLike, actions: ArrayLike) -> Prediction:
        """Mean and standard deviation of the expected reward of each action, arrays of length A; writes nothing."""
        return self.posterior.predict(pair(context, actions, *self._dimensions))

    def _bonus(self) -> float:
        # βσ = β·std/√λ
        return self.confidence.radius(self.posterior) / math.sqrt(self.posterior.regularization)

    def _check_width(self, width: int) -> None:
        """Before the first observation only a dictionary given beforehand knows how wide points are."""
        known = self.posterior.dimension
        if known is not None and width != known:
            raise InputError(
                f"dictionary: its points have {known} columns, but context and action together have {width}."
            )

    def _select(self, points: FloatArray) -> Choice:
        if not self.posterior.round_index:
            self._check_width(points.shape[1])
        bonus = self._bonus()
        contenders, evaluation = self.posterior.contenders(points, bonus)
        upper_bounds = evaluation.mean + bonus * evaluation.std
        row = self._argmax(upper_bounds)
        upper_bound = upper_bounds.item(row)
        # argmax finds a NaN before any number, so one look tells that all bounds are finite.
        if not math.isfinite(upper_bound):
            self.posterior.require_finite(evaluation)
        self._chosen = (evaluation, row)
        index = row if contenders is None else int(contenders[row])
        return index, evaluation.mean.item(row), evaluation.std.item(row), upper_bound

    def _select_many(self, points: FloatArray) -> list[Choice]:
        self._check_width(points.shape[2])
        bonus = self._bonus()
        number_of_actions = points.shape[1]
        choices = []
        step = max(1, ROWS_AT_ONCE // number_of_actions)
        for start in range(0, len(points), step):
            block = points[start : start + step]
            evaluation = self.posterior.evaluate_finite(block.reshape(-1, points.shape[2]))
            upper_bounds = evaluation.mean + bonus * evaluation.std
            for offset in range(0, len(upper_bounds), number_of_actions):
                index = self._argmax(upper_bounds[offset : offset + number_of_actions])
                row = offset + index
                choices.append((index, evaluation.mean.item(row), evaluation.std.item(row), upper_bounds.item(row)))
        return choices

    def _update(self, point: FloatArray, reward: float, chosen: bool) -> None:
        if chosen and self._chosen is not None and self._chosen[0].round_index == self.posterior.round_index:
            self.posterior.observe(point, reward, *self._chosen)
        else:
            self.posterior.update(point, reward)
        self._chosen = None

    def _update_many(self, points: FloatArray, rewards: FloatArray) -> None:
        self._check_width(points.shape[1])
        self.posterior.observe_many(points, rewards)
