"""The exact posterior: every observed point carries it, O(t²) per action and per update."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, as_kernel, kernel_gradient
from kernel_bandits.numerics import linalg
from kernel_bandits.posterior.base import Evaluated, Evaluation, RegressionPosterior, require_finite_kernel
from kernel_bandits.values import Pending, evolve, fact, fields_of

# Columns of Jᵀ that come after its contiguous part wait until they are this many, or this share of it, to join it.
TAIL_COLUMNS, TAIL_SHARE = 64, 1 / 8


@dataclass(slots=True)
class _ExactEvaluation(Evaluation):
    """Adds φ(s) = J k_S(s), shape (A, t) and zeros up to the room there is, and the posterior variances, shape (A,)."""

    features: FloatArray
    variance: FloatArray


class _Room:
    """Arrays with room for further observations, which the regressions that grew from one share.

    Whoever holds all rows that are taken may take the next; another copies the arrays first.

    Attributes:
        points: shape (n, d).
        rewards: shape (n,).
        whitened: v = J y, shape (n,).
        factor: the older columns of Jᵀ, one triangle.
        tail: the newer ones, shape (n, r).
        noise_ratios: λ_i/λ of each observation, shape (n,); None while all weights are 1.
        taken: the rows in use.
    """

    __slots__ = ("factor", "noise_ratios", "points", "rewards", "tail", "taken", "whitened")

    def __init__(
        self,
        points: FloatArray,
        rewards: FloatArray,
        whitened: FloatArray,
        factor: FloatArray,
        tail: FloatArray,
        noise_ratios: FloatArray | None,
        taken: int,
    ) -> None:
        self.points, self.rewards, self.whitened = points, rewards, whitened
        self.factor, self.tail, self.noise_ratios, self.taken = factor, tail, noise_ratios, taken

    def copy(self, size: int) -> _Room:
        """Return room of one's own with the first rows of this one; what lies beyond is 0."""
        points, rewards, whitened = self.points.copy(), self.rewards.copy(), self.whitened.copy()
        points[size:], rewards[size:], whitened[size:] = 0.0, 0.0, 0.0
        tail = self.tail.copy()
        tail[:, size - len(self.factor) :] = 0.0
        ratios = None if self.noise_ratios is None else self.noise_ratios.copy()
        if ratios is not None:
            ratios[size:] = 1.0
        return _Room(points, rewards, whitened, self.factor, tail, ratios, size)

    def extended(self, size: int, dimension: int) -> _Room:
        """Return it with the newer columns in the triangle, and room for more points and rewards."""
        settled = len(self.factor)
        factor = np.zeros((size, size))
        factor[:settled, :settled] = self.factor
        factor[:, settled:] = self.tail[:size]
        room = max(TAIL_COLUMNS, int(TAIL_SHARE * size))
        points = np.zeros((size + room, dimension))
        points[:size] = self.points[:size].reshape(size, dimension)
        ratios = None if self.noise_ratios is None else np.append(self.noise_ratios, np.ones(room))
        return _Room(
            points,
            np.append(self.rewards, np.zeros(room)),
            np.append(self.whitened, np.zeros(room)),
            factor,
            np.zeros((size + room, room)),
            ratios,
            size,
        )


class ExactRegression:
    """J = L⁻¹ with LLᵀ = K + λI, bordered by one row per observation, and v = J y.

    Then mean(s) = φᵀv and variance(s) = k(s, s) − ‖φ‖² with φ = J k_S(s). The older columns of Jᵀ are one contiguous
    triangle, for triangular products; the newer ones follow in a narrow block and join it now and then, so that growth
    copies O(t) numbers a round. Rows beyond ``size`` may belong to a regression that grew from this one.

    Attributes:
        size: t.
        log_determinant: log det(I + K/λ).
    """

    __slots__ = ("_inverse_trace", "_room", "kernel", "log_determinant", "regularization", "size")

    def __init__(self, kernel: KernelLike, regularization: float) -> None:
        self.kernel: KernelLike = kernel
        self.regularization: float = regularization
        self.log_determinant: float = 0.0
        self.size: int = 0
        self._inverse_trace = 0.0
        empty, square = np.zeros(0), np.zeros((0, 0))
        self._room = _Room(square, empty, empty, square, square, None, 0)

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        # without the rows of regressions that grew from this one
        room = self._room if self._room.taken == self.size else self._room.copy(self.size)
        return None, {name: getattr(self, name) for name in fields_of(type(self))} | {"_room": room}

    @property
    def effective_dimension(self) -> float:
        """Trace K(K + Λ)⁻¹, which is t − trace Λ(K + Λ)⁻¹ with the noise variances Λ, λI without weights."""
        return self.size - self.regularization * self._inverse_trace

    @property
    def points(self) -> FloatArray:
        """The observed points, a view (t, d)."""
        return self._room.points[: self.size]

    @property
    def rewards(self) -> FloatArray:
        """The observed rewards, a view (t,)."""
        return self._room.rewards[: self.size]

    @property
    def weights_given(self) -> FloatArray | None:
        """The weights of the observations, shape (t,); None if all are 1."""
        ratios = self._room.noise_ratios
        return None if ratios is None else 1.0 / ratios[: self.size]

    def evaluate(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return φ, mean and variance at points (A, d)."""
        size, room = self.size, self._room
        settled = len(room.factor)
        # room for columns to come stands as zeros, so that every matrix is used whole
        gram = np.zeros((len(points), len(room.rewards)))
        if size:
            gram[:, :size] = self.kernel(points, room.points[:size])
        # φ = J k_S(s): a triangular product for the older columns of Jᵀ, an ordinary one for the newer; mean = φᵀJy
        features = np.empty_like(gram)
        features[:, :settled] = linalg.times_upper(gram[:, :settled].copy(), room.factor)
        features[:, settled:] = linalg.times(gram, room.tail)
        features[:, size:] = 0.0
        mean = linalg.times_vector(features, room.whitened)
        # σ²λ = k(s, s) − ‖φ‖²
        return features, mean, self.kernel.diag(points) - np.vecdot(features, features)

    def weights(self, features: FloatArray) -> FloatArray:
        """Return (K + λI)⁻¹k_S = Jᵀφ of one φ, with zeros up to the room there is."""
        return _solved(self._room, features)

    def gradient(
        self, points: FloatArray, features: FloatArray, std: FloatArray, bonus: float, first: int
    ) -> FloatArray:
        """Return the gradient of mean + bonus·std at evaluated points."""
        room = self._room
        settled = len(room.factor)
        # d mean = (Jᵀv)ᵀdk_S and d variance = dk(s, s) − 2(Jᵀφ)ᵀdk_S, and d std = d variance/(2·std)
        slopes = bonus * linalg.half_inverse(std)
        by_features = room.whitened - 2.0 * slopes[:, None] * features
        by_features[:, self.size :] = 0.0
        by_gram = linalg.times_transpose(by_features[:, settled:], room.tail)
        by_gram[:, :settled] += linalg.times_upper_transpose(by_features[:, :settled].copy(), room.factor)
        return kernel_gradient(self.kernel, points, self.points, by_gram[:, : self.size], slopes, first)

    def learned(
        self, point: FloatArray, reward: float, features: FloatArray, mean: float, variance: float, weight: float = 1.0
    ) -> Self:
        """Return it with a reward at a point, given its φ, mean and variance."""
        size, room, pivot = self.size, self._room, self._pivot(variance, weight)
        if room.taken != size:
            room = room.copy(size)
        if size == len(room.rewards):
            room = room.extended(size, len(point))
            features = np.append(features, np.zeros(len(room.rewards) - size))
        if weight != 1.0 and room.noise_ratios is None:
            room = room.copy(size)
            room.noise_ratios = np.ones(len(room.rewards))
        # the further row of J is [−φᵀJ, 1]/l
        column = _solved(room, features)
        column /= -pivot
        column[size] = 1.0 / pivot
        scaled = column
        if room.noise_ratios is not None:
            scaled = room.noise_ratios * column
            scaled[size] = column[size] / weight
        # taken before it is written: if that fails, others see it and copy
        room.taken = size + 1
        if room.noise_ratios is not None:
            room.noise_ratios[size] = 1.0 / weight
        room.tail[:, size - len(room.factor)] = column
        # v = Jy gains (r − φᵀv)/l
        room.points[size], room.rewards[size], room.whitened[size] = point, reward, (reward - mean) / pivot
        return evolve(
            self,
            _room=room,
            _inverse_trace=self._inverse_trace + float(column @ scaled),
            log_determinant=self.log_determinant + math.log(weight * pivot * pivot / self.regularization),
            size=size + 1,
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


def _solved(room: _Room, features: FloatArray) -> FloatArray:
    """Return Jᵀφ, with zeros up to the room there is."""
    settled = len(room.factor)
    solved = linalg.times_vector(room.tail, features[settled:])
    solved[:settled] += linalg.upper_times_vector(room.factor, features[:settled])
    return solved


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
        weights = self.regression.weights(self.evaluate_finite(point[None, :]).features[0])
        points, rewards = self.observations
        return points, weights[: len(rewards)] * rewards, rewards

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

    def learned(
        self,
        points: FloatArray,
        rewards: FloatArray,
        weights: FloatArray | None = None,
        evaluated: Evaluated | None = None,
    ) -> Self:
        posterior = self
        for row in range(len(points)):
            weight, known = 1.0 if weights is None else weights.item(row), evaluated if row == 0 else None
            regression = posterior._learned_one(points[row], rewards.item(row), weight, known)
            with_pending = posterior.with_pending
            counted = regression if with_pending is posterior.regression else with_pending.counted(points[row], weight)
            posterior = evolve(posterior, regression=regression, with_pending=counted, dimension=points.shape[1])
        return posterior

    def _learned_one(
        self, point: FloatArray, reward: float, weight: float, evaluated: Evaluated | None
    ) -> ExactRegression:
        evaluation, row = (self.evaluate_finite(point[None, :]), 0) if evaluated is None else evaluated
        mean, variance = evaluation.mean.item(row), evaluation.variance.item(row)
        return self.regression.learned(point, reward, evaluation.features[row], mean, variance, weight)

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Evaluated | None = None) -> Self:
        del evaluated  # nothing of it is of the regression with pending points
        with_pending = self.with_pending
        for point in points:
            with_pending = with_pending.counted(point)
        awaited = {key: point.copy() for key, point in zip(keys, points, strict=True)}
        return evolve(self, with_pending=with_pending, awaited=self.awaited.with_items(awaited))

    def settled(
        self, keys: Sequence[int], points: FloatArray, rewards: FloatArray, weights: FloatArray | None = None
    ) -> Self:
        if weights is not None:
            # they were counted with weight 1
            return super().settled(keys, points, rewards, weights)
        posterior = self
        for row, key in enumerate(keys):
            # the point is counted already
            regression = posterior._learned_one(points[row], rewards.item(row), 1.0, None)
            awaited = posterior.awaited.without([key])
            with_pending = posterior.with_pending if awaited else regression
            posterior = evolve(
                posterior, regression=regression, with_pending=with_pending, awaited=awaited, dimension=points.shape[1]
            )
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
