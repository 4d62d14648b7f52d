"""The posterior on explicit features: linear models and Fourier features, O(D²) per action and per update."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import UnavailableError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.kernels.fourier import FeatureMap
from kernel_bandits.numerics.linalg import half_inverse, safe_sqrt, times, times_transpose, times_vector
from kernel_bandits.posteriors.base import Approximation, Evaluation, Posterior
from kernel_bandits.posteriors.regression import BATCH_ROWS, RidgeRegression, sequential_factor


@dataclass(slots=True)
class _FeatureEvaluation(Evaluation):
    """Adds φ (A, D) and Pφ (A, D)."""

    features: FloatArray
    solved: FloatArray


class FeaturePosterior(Posterior[_FeatureEvaluation]):
    """Ridge regression on a fixed feature map; the history is not kept.

    Where the map is exact (linear features) this is the exact posterior of its kernel. Where it approximates one, the
    standard deviation is that of the finite-dimensional model: it does not grow where the features fail.

    Args:
        kernel: the kernel the features stand for.
        regularization: λ.
        feature_map: the features.
    """

    def __init__(self, kernel: KernelLike, regularization: float, feature_map: FeatureMap) -> None:
        super().__init__(kernel, regularization)
        self.feature_map = feature_map
        self._dimension: int | None = None
        self._ridge: RidgeRegression | None = None
        # The regression that counts anticipated points too, and their φ; the same object while there are none.
        self._ahead: RidgeRegression | None = None
        self._awaited: dict[int, FloatArray] = {}

    @property
    def approximation(self) -> Approximation:
        return "exact" if self.feature_map.exact else "random features"

    @property
    def dimension(self) -> int | None:
        return self._dimension

    @property
    def dictionary_points(self) -> FloatArray:
        return np.empty((0, self._dimension or 0))

    @property
    def dictionary_size(self) -> int:
        return 0 if self._ridge is None else len(self._ridge)

    @property
    def observed_points(self) -> FloatArray:
        raise UnavailableError("observed_points: a posterior on explicit features keeps no observations.")

    @property
    def observed_rewards(self) -> FloatArray:
        raise UnavailableError("observed_rewards: a posterior on explicit features keeps no observations.")

    @property
    def log_determinant(self) -> float:
        return 0.0 if self._ridge is None else self._ridge.log_determinant

    @property
    def effective_dimension(self) -> float:
        return 0.0 if self._ridge is None else self._ridge.effective_dimension

    def evaluate(self, points: FloatArray) -> _FeatureEvaluation:
        features = self.feature_map(points)
        if self._ridge is None or self._ahead is None:
            mean, solved = np.zeros(len(points)), features / self.regularization
        else:
            mean, solved = times_vector(features, self._ridge.weights), times(features, self._ahead.covariance)
        # std² = λ·φᵀPφ
        std = safe_sqrt(self.regularization * np.vecdot(features, solved))
        return _FeatureEvaluation(self.round_index, mean, std, features, solved)

    @property
    def drift(self) -> float:
        return 0.0 if self._ridge is None else self._ridge.drift

    def covariance(self, points: FloatArray, evaluation: _FeatureEvaluation) -> FloatArray:  # noqa: ARG002
        # λ·ΦPΦᵀ
        return self.regularization * times_transpose(evaluation.features, evaluation.solved)

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:  # noqa: ARG002
        raise UnavailableError("contributions: a posterior on explicit features keeps no points to name.")

    def contenders(self, points: FloatArray, bonus: float) -> tuple[None, _FeatureEvaluation]:  # noqa: ARG002
        return None, self.evaluate(points)

    def gradient(self, points: FloatArray, evaluation: _FeatureEvaluation, bonus: float) -> FloatArray:
        # d mean = wᵀdφ and d std² = 2λ(Pφ)ᵀdφ
        slopes = bonus * half_inverse(evaluation.std)
        by_features = 2.0 * self.regularization * slopes[:, None] * evaluation.solved
        if self._ridge is not None:
            by_features += self._ridge.weights
        return self.feature_map.gradient(points, by_features)

    def _started(self, points: FloatArray, size: int) -> RidgeRegression:
        self._dimension = points.shape[-1]
        if self._ridge is None:
            self._ridge = self._ahead = RidgeRegression(self.regularization, size)
        return self._ridge

    def observe(self, point: FloatArray, reward: float, evaluation: _FeatureEvaluation, row: int = 0) -> None:
        features, solved = evaluation.features[row], evaluation.solved[row]
        ridge = self._started(point, len(features))
        if self._awaited:
            self._play(features)
            solved = times_vector(ridge.covariance, features)
        ridge.observe(features, solved, float(features @ solved), evaluation.mean.item(row), reward)
        self.round_index += 1

    def _play(self, features: FloatArray) -> None:
        """Count φ into the regression ahead, whose rewards are never asked for."""
        assert self._ahead is not None
        solved = times_vector(self._ahead.covariance, features)
        self._ahead.observe(features, solved, float(features @ solved), 0.0, 0.0)

    def anticipate(self, key: int, point: FloatArray, evaluation: _FeatureEvaluation, row: int = 0) -> None:
        features = evaluation.features[row].copy()
        ridge = self._started(point, len(features))
        if self._ahead is ridge:
            self._ahead = copy.deepcopy(ridge)
        self._play(features)
        self._awaited[key] = features

    def fulfil(self, key: int, reward: float) -> None:
        features, ridge = self._awaited[key], self._ridge
        assert ridge is not None
        solved = times_vector(ridge.covariance, features)
        ridge.observe(features, solved, float(features @ solved), float(features @ ridge.weights), reward)
        self.round_index += 1
        self._no_longer_await(key)

    def abandon(self, key: int) -> None:
        assert self._ahead is not None
        self._ahead.forget(self._awaited[key])
        self._no_longer_await(key)

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        frozen = None if self._ahead is None else self._ahead.covariance.copy()

        def variance(point: FloatArray) -> float:
            features = self.feature_map(point[None, :])[0]
            solved = features / self.regularization if frozen is None else times_vector(frozen, features)
            return float(features @ solved)

        yield variance

    def _no_longer_await(self, key: int) -> None:
        del self._awaited[key]
        if not self._awaited:
            self._ahead = self._ridge

    def observe_many(self, points: FloatArray, rewards: FloatArray) -> None:
        for start in range(0, len(points), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            evaluation = self.evaluate_finite(points[rows])
            ridge = self._started(points, evaluation.features.shape[1])
            solved = times(evaluation.features, ridge.covariance) if self._awaited else evaluation.solved
            for features in evaluation.features if self._awaited else ():
                self._play(features)
            ridge.observe_many(
                evaluation.features, solved, sequential_factor(evaluation.features, solved), rewards[rows]
            )
            self.round_index += len(rewards[rows])

    def __repr__(self) -> str:
        return (
            f"FeaturePosterior({self.kernel!r}, regularization={self.regularization:g}, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )
