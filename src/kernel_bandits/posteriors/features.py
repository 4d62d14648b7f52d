"""The posterior on explicit features: linear models and Fourier features, O(D²) per action and per update."""

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

from kernel_bandits.actions import Box, are_arms
from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import UnavailableError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.kernels.fourier import FeatureMap
from kernel_bandits.numerics.linalg import half_inverse, safe_sqrt, times, times_transpose, times_vector
from kernel_bandits.posteriors.base import Evaluation, Facts, Posterior
from kernel_bandits.posteriors.pending import Awaited, Pending
from kernel_bandits.posteriors.ridge import BATCH_ROWS, RidgeRegression

# Columns whose first values lie further from 0 than this are taken about them, where the features have an intercept.
FAR = 100.0


def _far_centre(points: FloatArray) -> FloatArray | None:
    """Return the mean of the columns (d,) that lie far from 0, and 0 for the others; None if there are none."""
    with np.errstate(over="ignore"):
        means = points.mean(axis=0)
    is_far = np.isfinite(means) & (np.abs(means) > FAR)
    return np.where(is_far, means, 0.0) if is_far.any() else None


@dataclass(slots=True)
class _FeatureEvaluation(Evaluation):
    """Adds φ (A, D) and Pφ (A, D)."""

    features: FloatArray
    solved: FloatArray


class FeaturePosterior(Posterior[_FeatureEvaluation]):
    """Ridge regression on a fixed feature map; the history is not kept.

    Where the map is exact (linear features) this is the exact posterior of its kernel. Where it approximates one, the
    standard deviation is that of the finite-dimensional model: it does not grow where the features fail. The kernel is
    the one that the features stand for.
    """

    _pending: Pending[RidgeRegression]

    def __init__(self, kernel: KernelLike, regularization: float, feature_map: FeatureMap) -> None:
        facts = Facts(kernel, regularization, "exact" if feature_map.exact else "random features")
        # without coordinates until the first point says how many there are
        super().__init__(facts, Pending(RidgeRegression(facts.regularization)))
        self.feature_map = feature_map

    def describe(self, context_columns: int, points: FloatArray, box: Box | None = None) -> None:
        if self.round_index or self._pending.awaited:
            return
        arms = box is None and are_arms(points[:, context_columns:])
        self.feature_map, kernel = self.feature_map.described(context_columns, arms, _far_centre(points))
        self._facts.kernel = self.kernel if kernel is None else kernel

    @property
    def dictionary_points(self) -> FloatArray:
        return np.empty((0, self.dimension or 0))

    def _observations(self) -> tuple[FloatArray, FloatArray]:
        raise UnavailableError("observed_points: a posterior on explicit features keeps no observations.")

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        del point
        raise UnavailableError("contributions: a posterior on explicit features keeps no points to name.")

    def evaluate(self, points: FloatArray) -> _FeatureEvaluation:
        features, settled = self.feature_map(points), self._pending.settled
        if settled.size:
            mean, solved = times_vector(features, settled.weights), times(features, self._pending.ahead.covariance)
        else:
            mean, solved = np.zeros(len(points)), features / self.regularization
        # std² = λ·φᵀPφ
        std = safe_sqrt(self.regularization * np.vecdot(features, solved))
        return _FeatureEvaluation(self.round_index, mean, std, features, solved)

    def covariance(self, points: FloatArray, evaluation: _FeatureEvaluation) -> FloatArray:
        del points  # their features are all that counts: λ·ΦPΦᵀ
        return self.regularization * times_transpose(evaluation.features, evaluation.solved)

    def gradient(self, points: FloatArray, evaluation: _FeatureEvaluation, bonus: float, first: int = 0) -> FloatArray:
        # d mean = wᵀdφ and d std² = 2λ(Pφ)ᵀdφ
        slopes = bonus * half_inverse(evaluation.std)
        by_features = 2.0 * self.regularization * slopes[:, None] * evaluation.solved
        if self._pending.settled.size:
            by_features += self._pending.settled.weights
        return self.feature_map.gradient(points, by_features)[:, first:]

    def _started(self, size: int) -> tuple[Pending[RidgeRegression], Steps]:
        """Return the pair of regressions with this many features, and the step that starts it if it is new."""
        if self._pending.settled.size:
            return self._pending, []
        pair = Pending(RidgeRegression(self.regularization, size))
        return pair, [replace_state(self._pending, pair)]

    def observe_steps(self, point: FloatArray, reward: float, evaluation: _FeatureEvaluation, row: int = 0) -> Steps:
        features, solved = evaluation.features[row], evaluation.solved[row]
        pair, started = self._started(len(features))
        steps = pair.observe_steps(features, solved, float(features @ solved), evaluation.mean.item(row), reward)
        return [*started, *steps, *self._facts.count_steps(len(point))]

    def observe_weighted_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        features = self.evaluate_finite(point[None, :]).features[0]
        pair, started = self._started(len(features))
        steps = pair.observe_weighted_steps(features, reward, weight)
        return [*started, *steps, *self._facts.count_steps(len(point))]

    def anticipate_steps(self, key: int, point: FloatArray, evaluation: _FeatureEvaluation, row: int = 0) -> Steps:
        features = evaluation.features[row].copy()
        pair, started = self._started(len(features))
        steps = pair.expect_steps(key, Awaited(point, features))
        if started:
            carry_out(steps)
            steps = started
        return [*steps, (setattr, self._facts, "dimension", len(point))]

    def fulfil_steps(self, key: int, reward: float) -> Steps:
        awaited = self._pending.awaited[key]
        steps = self._pending.settled.learn_steps(awaited.coordinates, reward)
        return [*steps, *self._facts.count_steps(len(awaited.point)), *self._pending.release_steps([key])]

    def abandon_steps(self, keys: Collection[int]) -> Steps:
        pending = self._pending
        return pending.forget_steps(keys, [pending.awaited[key].coordinates for key in keys])

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._facts, twin._pending = copy.copy(self._facts), self._pending.copy()
        return twin

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        frozen = self._pending.ahead.covariance.copy()

        def variance(point: FloatArray) -> float:
            features = self.feature_map(point[None, :])[0]
            solved = times_vector(frozen, features) if len(frozen) else features / self.regularization
            return float(features @ solved)

        yield variance

    def observe_many_steps(self, points: FloatArray, rewards: FloatArray) -> Iterator[tuple[int, Steps]]:
        for start in range(0, len(points), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            evaluation = self.evaluate_finite(points[rows])
            features = evaluation.features
            pair = self._started(features.shape[1])[0].copy()
            settled, ahead = pair.settled, pair.ahead
            if ahead is not settled:
                for each in features:
                    carry_out(ahead.count_steps(each))
            settled.observe_many(features, rewards[rows])
            count = len(rewards[rows])
            yield count, [replace_state(self._pending, pair), *self._facts.count_steps(points.shape[1], count)]

    def __repr__(self) -> str:
        return (
            f"FeaturePosterior({self.kernel!r}, regularization={self.regularization:g}, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )
