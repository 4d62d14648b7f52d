"""A posterior around another one that learns rewards less their mean and in a unit of its own: what it predicts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps
from kernel_bandits.posteriors.base import Bound, Evaluation, Posterior
from kernel_bandits.posteriors.history import rewards_at


@dataclass(slots=True)
class ConvertedEvaluation(Evaluation):
    """Adds the evaluation of the posterior within, whose mean is less the prior mean."""

    within: Any


class ConvertedPosterior(Posterior[ConvertedEvaluation]):
    """Predictions and pending points of the posterior within, in the units of the data.

    Args:
        within: the other posterior; its facts and what it awaits are shown.
    """

    def __init__(self, within: Posterior[Any]) -> None:
        super().__init__(within._facts, within._pending)
        self._within = within

    @abstractmethod
    def _check_first(self, points: FloatArray) -> None:
        """Raise if points (A, d), which are the first, cannot be learned from."""

    @property
    def _is_history_free(self) -> bool:
        return self.approximation == "history-free"

    @property
    def dictionary_points(self) -> FloatArray:
        return self._within.dictionary_points

    def _in_data_units(self, means: FloatArray) -> FloatArray:
        return means + self.prior_mean if self.unit == 1.0 else self.unit * means + self.prior_mean

    def _shifted(self, evaluation: Evaluation) -> ConvertedEvaluation:
        std = evaluation.std if self.unit == 1.0 else self.unit * evaluation.std
        return ConvertedEvaluation(evaluation.round_index, self._in_data_units(evaluation.mean), std, evaluation)

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        if not self.round_index:
            # the columns are still to be checked
            return super().bound_in(context, bonus)
        return self._within.bound_in(context, bonus)

    def evaluate(self, points: FloatArray) -> ConvertedEvaluation:
        if not self.round_index:
            self._check_first(points)
        return self._shifted(self._within.evaluate(points))

    def means(self, points: FloatArray) -> FloatArray:
        if not self.round_index:
            self._check_first(points)
        return self._in_data_units(self._within.means(points))

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, ConvertedEvaluation]:
        if not self.round_index:
            self._check_first(points)
        chosen, evaluation = self._within.contenders(points, bonus)
        return chosen, self._shifted(evaluation)

    def gradient(self, points: FloatArray, evaluation: ConvertedEvaluation, bonus: float, first: int = 0) -> FloatArray:
        return self.unit * self._within.gradient(points, evaluation.within, bonus, first)

    def covariance(self, points: FloatArray, evaluation: ConvertedEvaluation) -> FloatArray:
        return self._within.covariance(points, evaluation.within)

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        points, values, rewards = self._within.contributions(point)
        is_kept = rewards is not None and not self._is_history_free
        # as they came, where the posterior within learned them centred and bounded
        return points, self.unit * values, rewards_at(points, *self._observations()) if is_kept else None

    def batch(self) -> AbstractContextManager[Callable[[FloatArray], float]]:
        return self._within.batch()

    def predict_awaited(self, key: int) -> tuple[float, float]:
        mean, std = self._within.predict_awaited(key)
        return self.unit * mean + self.prior_mean, self.unit * std

    def anticipate_steps(self, key: int, point: FloatArray, evaluation: ConvertedEvaluation, row: int = 0) -> Steps:
        return self._within.anticipate_steps(key, point, evaluation.within, row)

    def anticipate_many_steps(self, keys: Sequence[int], points: FloatArray) -> tuple[int, Steps]:
        return self._within.anticipate_many_steps(keys, points)

    def abandon_steps(self, keys: Collection[int]) -> Steps:
        return self._within.abandon_steps(keys)

    def abandon_many_steps(self, keys: Sequence[int]) -> Iterator[tuple[int, Steps]]:
        return self._within.abandon_many_steps(keys)
