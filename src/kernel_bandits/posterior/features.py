"""The posterior on explicit features: linear models and Fourier features, O(D²) per action and per update."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from kernel_bandits.actions import Box, are_arms
from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.errors import UnavailableError
from kernel_bandits.kernels import KernelLike, as_kernel
from kernel_bandits.kernels.fourier import FeatureMap
from kernel_bandits.numerics.linalg import half_inverse, safe_sqrt, times, times_transpose, times_vector
from kernel_bandits.posterior.base import Evaluation, RegressionPosterior, Seen, Weights
from kernel_bandits.posterior.ridge import BATCH_ROWS, RidgeRegression
from kernel_bandits.values import Pending, evolve, fact

# Columns whose first values lie further from 0 than this are taken about them, where the features have an intercept.
FAR = 100.0


def _far_centre(points: FloatArray) -> FloatArray | None:
    """Return the mean of the columns (d,) that lie far from 0, and 0 for the others; None if there are none."""
    with np.errstate(over="ignore"):
        means = points.mean(axis=0)
    is_far = np.isfinite(means) & (np.abs(means) > FAR)
    return np.where(is_far, means, 0.0) if is_far.any() else None


class _Awaited(NamedTuple):
    """A point whose reward is awaited, shape (d,), and its φ."""

    point: FloatArray
    features: FloatArray


@dataclass(slots=True)
class _FeatureEvaluation(Evaluation):
    """Adds φ (A, D) and Pφ (A, D)."""

    features: FloatArray
    solved: FloatArray


class FeaturePosterior(RegressionPosterior):
    """Ridge regression on a fixed feature map; the history is not kept.

    Where the map is exact (linear features) this is the exact posterior of its kernel. Where it approximates one, the
    standard deviation is that of the finite-dimensional model: it does not grow where the features fail. The kernel is
    the one that the features stand for.

    Args:
        kernel: what the features stand for.
        regularization: λ.
        feature_map: points (A, d) ↦ φ (A, D).
    """

    __slots__ = (
        "approximation",
        "awaited",
        "dimension",
        "feature_map",
        "kernel",
        "regression",
        "regularization",
        "round_index",
        "with_pending",
    )

    def __init__(self, kernel: KernelLike, regularization: float, feature_map: FeatureMap) -> None:
        self.kernel: KernelLike = as_kernel(kernel)
        self.regularization: float = as_positive("regularization", regularization)
        self.approximation = "exact" if feature_map.exact else "random features"
        self.feature_map: FeatureMap = feature_map
        self.regression: RidgeRegression = RidgeRegression(self.regularization)
        self.with_pending: RidgeRegression = self.regression
        self.awaited: Pending[_Awaited] = Pending[_Awaited]()
        self.dimension: int | None = None
        self.round_index: int = 0

    drift: float = fact("regression.drift")

    def described(self, context_columns: int, points: FloatArray, box: Box | None = None) -> Self:
        if self.round_index or self.awaited:
            return self
        arms = box is None and are_arms(points[:, context_columns:])
        feature_map, kernel = self.feature_map.described(context_columns, arms, _far_centre(points))
        return evolve(self, feature_map=feature_map, kernel=self.kernel if kernel is None else as_kernel(kernel))

    @property
    def pending_shrinkage(self) -> float:
        if self.with_pending is self.regression:
            return 1.0
        return self.regression.shrinkage(np.array([awaited.features for awaited in self.awaited.values()]))

    @property
    def observations(self) -> tuple[FloatArray, FloatArray]:
        raise UnavailableError("observed_points: a posterior on explicit features keeps no observations.")

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        del point
        raise UnavailableError("contributions: a posterior on explicit features keeps no points to name.")

    def evaluate(self, points: FloatArray) -> _FeatureEvaluation:
        features, regression = self.feature_map(points), self.regression
        if regression.size:
            mean, solved = times_vector(features, regression.weights), times(features, self.with_pending.covariance)
        else:
            mean, solved = np.zeros(len(points)), features / self.regularization
        # std² = λ·φᵀPφ
        std = safe_sqrt(self.regularization * np.vecdot(features, solved))
        return _FeatureEvaluation(mean, std, features, solved)

    def covariance(self, points: FloatArray, evaluation: _FeatureEvaluation) -> FloatArray:
        del points  # their features are all that counts: λ·ΦPΦᵀ
        return self.regularization * times_transpose(evaluation.features, evaluation.solved)

    def gradient(self, points: FloatArray, evaluation: _FeatureEvaluation, bonus: float, first: int = 0) -> FloatArray:
        # d mean = wᵀdφ and d std² = 2λ(Pφ)ᵀdφ
        slopes = bonus * half_inverse(evaluation.std)
        by_features = 2.0 * self.regularization * slopes[:, None] * evaluation.solved
        if self.regression.size:
            by_features += self.regression.weights
        return self.feature_map.gradient(points, by_features)[:, first:]

    def _started(self, size: int) -> Self:
        """Return the posterior with coordinates for this many features."""
        if self.regression.size:
            return self
        regression = RidgeRegression(self.regularization, size)
        return evolve(self, regression=regression, with_pending=regression)

    def learned(self, points: FloatArray, rewards: FloatArray, weights: Weights = None, evaluated: Seen = None) -> Self:
        if len(points) > 1 and weights is None:
            posterior = self
            for start in range(0, len(points), BATCH_ROWS):
                rows = slice(start, start + BATCH_ROWS)
                posterior = posterior._learned_many(points[rows], rewards[rows])
            return posterior
        if len(points) > 1:
            return self._one_by_one(points, rewards, weights)
        reward, weight = rewards.item(0), 1.0 if weights is None else weights.item(0)
        evaluation, row = (self.evaluate_finite(points), 0) if evaluated is None else evaluated
        features = evaluation.features[row]
        known = (evaluation.solved[row], evaluation.mean.item(row)) if weight == 1.0 else ()
        started = self._started(len(features))
        regression, with_pending = started.regression, started.with_pending
        if with_pending is regression:
            after = counted = regression.learned(features, reward, weight, *known)
        else:
            after, counted = (
                regression.learned(features, reward, weight),
                with_pending.learned(features, 0.0, weight, *known),
            )
        return started._counting(points.shape[1], 1, regression=after, with_pending=counted)

    def _learned_many(self, points: FloatArray, rewards: FloatArray) -> Self:
        features = self.evaluate_finite(points).features
        started = self._started(features.shape[1])
        after = counted = started.regression.learned_many(features, rewards)
        if started.with_pending is not started.regression:
            counted = started.with_pending.learned_many(features, np.zeros(len(features)))
        return started._counting(points.shape[1], len(points), regression=after, with_pending=counted)

    def _counting(self, dimension: int, observations: int, **changes: object) -> Self:
        return evolve(self, dimension=dimension, round_index=self.round_index + observations, **changes)

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Seen = None) -> Self:
        if evaluated is None:
            features = self.evaluate_finite(points).features
        else:
            features = evaluated[0].features[evaluated[1] : evaluated[1] + 1]
        started = self._started(features.shape[1])
        rows = zip(keys, points, features, strict=True)
        awaited = {key: _Awaited(point.copy(), own.copy()) for key, point, own in rows}
        with_pending = started.with_pending.learned_many(features, np.zeros(len(keys)))
        changes = {"with_pending": with_pending, "awaited": self.awaited.with_items(awaited)}
        return started._counting(points.shape[1], 0, **changes)

    def _with_rewards(self, keys: Sequence[int], points: FloatArray, rewards: FloatArray) -> Self:
        regression = self.regression.learned_many(np.array([self.awaited[key].features for key in keys]), rewards)
        return self._counting(points.shape[1], len(keys), regression=regression)

    def abandoned(self, keys: Collection[int]) -> Self:
        features, awaited = [self.awaited[key].features for key in keys], self.awaited.without(keys)
        with_pending = self.with_pending.forgotten(features) if awaited else self.regression
        return evolve(self, awaited=awaited, with_pending=with_pending)

    def counting(self, points: Mapping[int, FloatArray]) -> Self:
        fresh = evolve(self, awaited=Pending(), with_pending=self.regression)
        return fresh.awaiting(list(points), np.array(list(points.values()))) if points else fresh

    def reseeded(self, entropy: int) -> Self:
        return evolve(self, feature_map=self.feature_map.reseeded(entropy))

    def __repr__(self) -> str:
        return (
            f"FeaturePosterior({self.kernel!r}, regularization={self.regularization:g}, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )
