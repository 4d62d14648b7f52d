"""The posterior on explicit features: linear models and Fourier features, O(D²) per action and per update."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kernel_bandits.actions import are_arms
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import UnavailableError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.kernels.fourier import FeatureMap
from kernel_bandits.numerics.linalg import half_inverse, safe_sqrt, times, times_transpose, times_vector
from kernel_bandits.posteriors.base import Evaluation, Facts, Posterior
from kernel_bandits.posteriors.pending import Awaited, Pending
from kernel_bandits.posteriors.regression import BATCH_ROWS, RidgeRegression, sequential_factor


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

    def describe(self, context_columns: int, actions: FloatArray) -> None:
        if self.round_index or self._pending.awaited:
            return
        self.feature_map, kernel = self.feature_map.described(context_columns, are_arms(actions))
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

    def gradient(self, points: FloatArray, evaluation: _FeatureEvaluation, bonus: float) -> FloatArray:
        # d mean = wᵀdφ and d std² = 2λ(Pφ)ᵀdφ
        slopes = bonus * half_inverse(evaluation.std)
        by_features = 2.0 * self.regularization * slopes[:, None] * evaluation.solved
        if self._pending.settled.size:
            by_features += self._pending.settled.weights
        return self.feature_map.gradient(points, by_features)

    def _start(self, dimension: int, size: int) -> None:
        """Start the regression on the first point."""
        self._facts.dimension = dimension
        if not self._pending.settled.size:
            self._pending.settled = self._pending.ahead = RidgeRegression(self.regularization, size)

    def observe(self, point: FloatArray, reward: float, evaluation: _FeatureEvaluation, row: int = 0) -> None:
        features, solved = evaluation.features[row], evaluation.solved[row]
        self._start(len(point), len(features))
        self._pending.observe(features, solved, float(features @ solved), evaluation.mean.item(row), reward)
        self._facts.round_index += 1

    def observe_weighted(self, point: FloatArray, reward: float, weight: float) -> None:
        features = self.evaluate_finite(point[None, :]).features[0]
        self._start(len(point), len(features))
        self._pending.observe_weighted(features, reward, weight)
        self._facts.round_index += 1

    def anticipate(self, key: int, point: FloatArray, evaluation: _FeatureEvaluation, row: int = 0) -> None:
        features = evaluation.features[row].copy()
        self._start(len(point), len(features))
        self._pending.expect(key, Awaited(point, features))

    def fulfil(self, key: int, reward: float) -> None:
        self._pending.settled.learn(self._pending.awaited[key].coordinates, reward)
        self._facts.round_index += 1
        self._pending.release(key)

    def abandon(self, key: int) -> None:
        self._pending.ahead.forget(self._pending.awaited[key].coordinates)
        self._pending.release(key)

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        frozen = self._pending.ahead.covariance.copy()

        def variance(point: FloatArray) -> float:
            features = self.feature_map(point[None, :])[0]
            solved = times_vector(frozen, features) if len(frozen) else features / self.regularization
            return float(features @ solved)

        yield variance

    def observe_many(self, points: FloatArray, rewards: FloatArray) -> None:
        for start in range(0, len(points), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            evaluation = self.evaluate_finite(points[rows])
            features, solved = evaluation.features, evaluation.solved
            self._start(points.shape[1], features.shape[1])
            settled, ahead = self._pending.settled, self._pending.ahead
            if ahead is not settled:
                solved = times(features, settled.covariance)
                for each in features:
                    ahead.count(each)
            settled.observe_many(features, solved, sequential_factor(features, solved), rewards[rows])
            self._facts.round_index += len(rewards[rows])

    def __repr__(self) -> str:
        return (
            f"FeaturePosterior({self.kernel!r}, regularization={self.regularization:g}, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )
