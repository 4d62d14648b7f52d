"""The exact posterior: every observed point carries it, O(t²) per action and per update."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, as_kernel, kernel_gradient
from kernel_bandits.numerics import linalg
from kernel_bandits.posterior.base import (
    Evaluated,
    Evaluation,
    RegressionPosterior,
    Seen,
    Weights,
    require_finite_kernel,
)
from kernel_bandits.values import Pending, evolve, fact


@dataclass(slots=True)
class _ExactEvaluation(Evaluation):
    """Adds φ(s) = J k_S(s), shape (A, t), and the posterior variances, shape (A,)."""

    features: FloatArray
    variance: FloatArray


class ExactRegression:
    """J = L⁻¹ with LLᵀ = K + λI, bordered by one row per observation, and v = J y.

    Then mean(s) = φᵀv and variance(s) = k(s, s) − ‖φ‖² with φ = J k_S(s).

    Attributes:
        inverse: J.
        points: the observed points, shape (t, d).
        rewards: the observed rewards, shape (t,).
        whitened: v, shape (t,).
        noise_ratios: λ_i/λ of each observation, shape (t,); None while all weights are 1.
        log_determinant: log det(I + K/λ).
    """

    __slots__ = (
        "_inverse_trace",
        "inverse",
        "kernel",
        "log_determinant",
        "noise_ratios",
        "points",
        "regularization",
        "rewards",
        "whitened",
    )

    def __init__(self, kernel: KernelLike, regularization: float) -> None:
        self.kernel: KernelLike = kernel
        self.regularization: float = regularization
        self.log_determinant: float = 0.0
        self._inverse_trace = 0.0
        self.inverse: linalg.InverseFactor = linalg.InverseFactor()
        self.points: FloatArray = np.empty((0, 0))
        self.rewards: FloatArray = np.empty(0)
        self.whitened: FloatArray = self.rewards
        self.noise_ratios: FloatArray | None = None

    size: int = fact("inverse.size")
    """How many observations there are: t."""

    @property
    def effective_dimension(self) -> float:
        """Trace K(K + Λ)⁻¹, which is t − trace Λ(K + Λ)⁻¹ with the noise variances Λ, λI without weights."""
        return self.size - self.regularization * self._inverse_trace

    @property
    def weights_given(self) -> FloatArray | None:
        """The weights of the observations, shape (t,); None if all are 1."""
        return None if self.noise_ratios is None else 1.0 / self.noise_ratios

    def evaluate(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return φ, mean and variance at points (A, d)."""
        gram = np.array(self.kernel(points, self.points)) if self.size else np.empty((len(points), 0))
        # φ = J k_S(s) and mean = φᵀJy
        features = self.inverse.times(gram)
        mean = linalg.times_vector(features, self.whitened)
        # σ²λ = k(s, s) − ‖φ‖²
        return features, mean, self.kernel.diag(points) - np.vecdot(features, features)

    def gradient(
        self, points: FloatArray, features: FloatArray, std: FloatArray, bonus: float, first: int
    ) -> FloatArray:
        """Return the gradient of mean + bonus·std at evaluated points."""
        # d mean = (Jᵀv)ᵀdk_S and d variance = dk(s, s) − 2(Jᵀφ)ᵀdk_S, and d std = d variance/(2·std)
        slopes = bonus * linalg.half_inverse(std)
        by_gram = self.inverse.times_transpose(self.whitened - 2.0 * slopes[:, None] * features)
        return kernel_gradient(self.kernel, points, self.points, by_gram, slopes, first)

    def learned(
        self, point: FloatArray, reward: float, features: FloatArray, mean: float, variance: float, weight: float = 1.0
    ) -> Self:
        """Return it with a reward at a point, given its φ, mean and variance."""
        pivot, ratios = self._pivot(variance, weight), self.noise_ratios
        # the further row of J is [−φᵀJ, 1]/l
        row = linalg.appended_to(self.inverse.transpose_times_vector(features) / -pivot, 1.0 / pivot)
        scaled = row
        if weight != 1.0 or ratios is not None:
            ratios = linalg.appended_to(np.ones(self.size) if ratios is None else ratios, 1.0 / weight)
            scaled = ratios * row
        return evolve(
            self,
            inverse=self.inverse.with_row(row),
            points=np.concatenate([self.points.reshape(self.size, len(point)), point[None, :]]),
            rewards=linalg.appended_to(self.rewards, reward),
            # v = Jy gains (r − φᵀv)/l
            whitened=linalg.appended_to(self.whitened, (reward - mean) / pivot),
            noise_ratios=ratios,
            log_determinant=self.log_determinant + math.log(weight * pivot * pivot / self.regularization),
            _inverse_trace=self._inverse_trace + float(row @ scaled),
        )

    def _pivot(self, variance: float, weight: float) -> float:
        """Return the next l, l² = k(s, s) + λ/weight − ‖φ‖²; an error if that is far below λ/weight."""
        if variance < -0.5 * self.regularization:
            raise InputError(
                f"kernel: {self.kernel!r} is not positive definite on the observed points, or its diag(X) differs from "
                f"k(x, x): a posterior variance came out as {variance:.3g}. If its values are huge, that is rounding; "
                "scale the columns to about 1, or give a larger λ."
            )
        return math.sqrt(max(variance, 0.0) + self.regularization / weight)

    def counted(self, point: FloatArray, weight: float = 1.0) -> Self:
        """Return it with a point without its reward: variances depend on points alone."""
        with np.errstate(invalid="ignore", over="ignore"):
            features, mean, variance = self.evaluate(point[None, :])
        require_finite_kernel(self.kernel, mean + linalg.safe_sqrt(variance))
        return self.learned(point, 0.0, features[0], mean.item(0), variance.item(0), weight)


class ExactPosterior(RegressionPosterior):
    """Kernel ridge regression on the whole history (the paper's K-UCB appendix).

    Args:
        kernel: the covariance function, ours or scikit-learn's.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view.
    """

    __slots__ = ("awaited", "dimension", "kernel", "regression", "regularization", "with_pending")

    approximation = "exact"

    def __init__(self, kernel: KernelLike, regularization: float) -> None:
        self.kernel: KernelLike = as_kernel(kernel)
        self.regularization: float = as_positive("regularization", regularization)
        self.regression: ExactRegression = ExactRegression(self.kernel, self.regularization)
        self.with_pending: ExactRegression = self.regression
        self.awaited: Pending[FloatArray] = Pending[FloatArray]()
        self.dimension: int | None = None

    round_index: int = fact("regression.size")

    @property
    def dictionary_points(self) -> FloatArray:
        return self.regression.points.copy()

    @property
    def pending_shrinkage(self) -> float:
        if self.with_pending is self.regression:
            return 1.0
        points = np.array(list(self.awaited.values()))
        features, _, variance = self.regression.evaluate(points)
        # with C the covariance of the awaited points: V_pending ⪯ (1 + λ_max(C)/λ)·V
        covariance = self.kernel(points, points.copy()) - linalg.times_transpose(features, features)
        np.fill_diagonal(covariance, variance)
        return 1.0 + linalg.largest_eigenvalue(covariance) / self.regularization

    @property
    def awaited_points(self) -> dict[int, FloatArray]:
        return dict(self.awaited)

    @property
    def observations(self) -> tuple[FloatArray, FloatArray]:
        return self.regression.points.copy(), self.regression.rewards.copy()

    @property
    def observed_weights(self) -> FloatArray | None:
        return self.regression.weights_given

    def evaluate(self, points: FloatArray) -> _ExactEvaluation:
        features, mean, variance = self.regression.evaluate(points)
        pending = self.with_pending is not self.regression
        std = linalg.safe_sqrt(self.with_pending.evaluate(points)[2] if pending else variance)
        return _ExactEvaluation(mean, std, features, variance)

    def covariance(self, points: FloatArray, evaluation: _ExactEvaluation) -> FloatArray:
        pending = self.with_pending is not self.regression
        features = self.with_pending.evaluate(points)[0] if pending else evaluation.features
        # K − ΦΦᵀ, where noise that a kernel puts on its diagonal alone counts as in the std
        covariance = self.kernel(points, points.copy()) - linalg.times_transpose(features, features)
        np.fill_diagonal(covariance, evaluation.std**2)
        return covariance

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        # mean = Σ_i r_i·[(K + λI)⁻¹k_S]_i
        weights = self.regression.inverse.transpose_times_vector(self.evaluate_finite(point[None, :]).features[0])
        points, rewards = self.observations
        return points, weights * rewards, rewards

    def gradient(self, points: FloatArray, evaluation: _ExactEvaluation, bonus: float, first: int = 0) -> FloatArray:
        regression, with_pending = self.regression, self.with_pending
        if with_pending is regression or not bonus:
            return regression.gradient(points, evaluation.features, evaluation.std, bonus, first)
        # the mean is of the settled regression, the std of the one with pending points
        seen = with_pending.evaluate(points)[0]
        widths = with_pending.gradient(points, seen, evaluation.std, bonus, first) - with_pending.gradient(
            points, seen, evaluation.std, 0.0, first
        )
        return regression.gradient(points, evaluation.features, evaluation.std, 0.0, first) + widths

    def learned(self, points: FloatArray, rewards: FloatArray, weights: Weights = None, evaluated: Seen = None) -> Self:
        if len(points) > 1:
            return self._one_by_one(points, rewards, weights)
        weight = 1.0 if weights is None else weights.item(0)
        regression = counted = self._with_reward(points[0], rewards.item(0), weight, evaluated)
        if self.with_pending is not self.regression:
            counted = self.with_pending.counted(points[0], weight)
        return evolve(self, regression=regression, with_pending=counted, dimension=points.shape[1])

    def _with_reward(
        self, point: FloatArray, reward: float, weight: float, evaluated: Evaluated | None
    ) -> ExactRegression:
        evaluation, row = (self.evaluate_finite(point[None, :]), 0) if evaluated is None else evaluated
        mean, variance = evaluation.mean.item(row), evaluation.variance.item(row)
        return self.regression.learned(point, reward, evaluation.features[row], mean, variance, weight)

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Seen = None) -> Self:
        del evaluated  # nothing of it is of the regression with pending points
        with_pending = self.with_pending
        for point in points:
            with_pending = with_pending.counted(point)
        awaited = {key: point.copy() for key, point in zip(keys, points, strict=True)}
        return evolve(self, with_pending=with_pending, awaited=self.awaited.with_items(awaited))

    def _with_rewards(self, keys: Sequence[int], points: FloatArray, rewards: FloatArray) -> Self:
        del keys
        posterior = self
        for point, reward in zip(points, rewards.tolist(), strict=True):
            regression = posterior._with_reward(point, reward, 1.0, None)
            posterior = evolve(posterior, regression=regression, dimension=len(point))
        return posterior

    def abandoned(self, keys: Collection[int]) -> Self:
        # A row cannot be taken out of the factor: count the others again, O(t²) each.
        return self.counting(self.awaited.without(keys))

    def counting(self, points: Mapping[int, FloatArray]) -> Self:
        with_pending = self.regression
        for point in points.values():
            with_pending = with_pending.counted(point)
        return evolve(self, with_pending=with_pending, awaited=Pending(points))

    def __repr__(self) -> str:
        return (
            f"ExactPosterior({self.kernel!r}, regularization={self.regularization:g}, round_index={self.round_index})"
        )
