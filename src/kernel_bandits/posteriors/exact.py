"""The exact posterior: every observed point carries it, O(t²) per action and per update."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.numerics.linalg import (
    half_inverse,
    safe_sqrt,
    times,
    times_transpose,
    times_upper,
    times_upper_transpose,
    times_vector,
    upper_times_vector,
)
from kernel_bandits.posteriors.base import Approximation, Evaluation, Posterior

# Columns of Jᵀ that come after its contiguous part wait until they are this many, or this share of it, to join it.
TAIL_COLUMNS, TAIL_SHARE = 64, 1 / 8


@dataclass(slots=True)
class _ExactEvaluation(Evaluation):
    """Adds φ(s) = J k_S(s), shape (A, t) and zeros up to the room there is, and the posterior variances, shape (A,)."""

    features: FloatArray
    variance: FloatArray


class ExactPosterior(Posterior[_ExactEvaluation]):
    """Kernel ridge regression on the whole history (the paper's K-UCB appendix).

    State: J = L⁻¹ with LLᵀ = K + λI, bordered by one row per observation, and v = J y. Then
    mean(s) = φᵀv and variance(s) = k(s, s) − ‖φ‖² with φ = J k_S(s). The older columns of Jᵀ are one contiguous
    triangle, for triangular products; the newer ones follow in a narrow block and join it now and then, so that growth
    copies O(t) numbers a round.
    """

    def __init__(self, kernel: KernelLike, regularization: float) -> None:
        super().__init__(kernel, regularization)
        self._points = np.zeros((0, 0))
        self._rewards = np.zeros(0)
        self._whitened_rewards = np.zeros(0)
        self._factor = np.zeros((0, 0))
        self._tail = np.zeros((0, 0))
        self._inverse_trace = 0.0
        self._log_determinant = 0.0
        # The posterior that counts anticipated points too, with any rewards; None while there are none.
        self._ahead: ExactPosterior | None = None
        self._awaited: dict[int, FloatArray] = {}

    @property
    def approximation(self) -> Approximation:
        return "exact"

    @property
    def dimension(self) -> int | None:
        return self._points.shape[1] if self.round_index else None

    @property
    def dictionary_points(self) -> FloatArray:
        return self.observed_points

    @property
    def dictionary_size(self) -> int:
        return self.round_index

    @property
    def observed_points(self) -> FloatArray:
        return self._points[: self.round_index].copy()

    @property
    def observed_rewards(self) -> FloatArray:
        return self._rewards[: self.round_index].copy()

    @property
    def log_determinant(self) -> float:
        return self._log_determinant

    @property
    def effective_dimension(self) -> float:
        # trace K(K + λI)⁻¹ = t − λ·trace (K + λI)⁻¹
        return self.round_index - self.regularization * self._inverse_trace

    def evaluate(self, points: FloatArray) -> _ExactEvaluation:
        size, settled = self.round_index, len(self._factor)
        # room for columns to come stands as zeros, so that every matrix is used whole
        gram = np.zeros((len(points), len(self._rewards)))
        if size:
            gram[:, :size] = self.kernel(points, self._points[:size])
        # φ = J k_S(s): a triangular product for the older columns of Jᵀ, an ordinary one for the newer; mean = φᵀJy
        features = np.empty_like(gram)
        features[:, :settled] = times_upper(gram[:, :settled].copy(), self._factor)
        features[:, settled:] = times(gram, self._tail)
        mean = times_vector(features, self._whitened_rewards)
        # σ²λ = k(s, s) − ‖φ‖²
        variance = self.kernel.diag(points) - np.vecdot(features, features)
        std = safe_sqrt(variance) if self._ahead is None else self._ahead.evaluate(points).std
        return _ExactEvaluation(self.round_index, mean, std, features, variance)

    @property
    def drift(self) -> float:
        return 0.0

    def covariance(self, points: FloatArray, evaluation: _ExactEvaluation) -> FloatArray:
        if self._ahead is not None:
            return self._ahead.covariance(points, self._ahead.evaluate(points))
        # K − ΦΦᵀ, where noise that a kernel puts on its diagonal alone counts as in the std
        covariance = self.kernel(points, points.copy()) - times_transpose(evaluation.features, evaluation.features)
        np.fill_diagonal(covariance, evaluation.std**2)
        return covariance

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        size = self.round_index
        features = self.evaluate_finite(point[None, :]).features[0]
        # mean = Σ_i r_i·[(K + λI)⁻¹k_S]_i with (K + λI)⁻¹k_S = Jᵀφ
        settled = len(self._factor)
        weights = times_vector(self._tail, features[settled:])
        weights[:settled] += upper_times_vector(self._factor, features[:settled])
        return self.observed_points, weights[:size] * self._rewards[:size], self.observed_rewards

    def contenders(self, points: FloatArray, bonus: float) -> tuple[None, _ExactEvaluation]:  # noqa: ARG002
        # The mean costs O(t) per action too, but its bound mean + bonus·√k seldom excludes one.
        return None, self.evaluate(points)

    def gradient(self, points: FloatArray, evaluation: _ExactEvaluation, bonus: float) -> FloatArray:
        if self._ahead is not None and bonus:
            # the mean is this posterior's, the std that of the posterior ahead
            ahead, seen = self._ahead, self._ahead.evaluate(points)
            widths = ahead.gradient(points, seen, bonus) - ahead.gradient(points, seen, 0.0)
            return self.gradient(points, evaluation, 0.0) + widths
        size, settled = self.round_index, len(self._factor)
        # d mean = (Jᵀv)ᵀdk_S and d variance = dk(s, s) − 2(Jᵀφ)ᵀdk_S, and d std = d variance/(2·std)
        slopes = bonus * half_inverse(evaluation.std)
        by_features = self._whitened_rewards - 2.0 * slopes[:, None] * evaluation.features
        by_gram = times_transpose(by_features[:, settled:], self._tail)
        by_gram[:, :settled] += times_upper_transpose(by_features[:, :settled].copy(), self._factor)
        return self._kernel_gradient(points, self._points[:size], by_gram[:, :size], slopes)

    def observe_many(self, points: FloatArray, rewards: FloatArray) -> None:
        for point, reward in zip(points, rewards, strict=True):
            self.observe(point, float(reward), self.evaluate_finite(point[None, :]))

    def observe(self, point: FloatArray, reward: float, evaluation: _ExactEvaluation, row: int = 0) -> None:
        features = evaluation.features[row]
        # l² = k(s, s) + λ − ‖φ‖², never below λ but for rounding
        variance = evaluation.variance.item(row)
        if variance < -0.5 * self.regularization:
            raise InputError(
                f"kernel: {self.kernel!r} is not positive definite on the observed points, or its diag(X) differs from "
                f"k(x, x): a posterior variance came out as {variance:.3g}."
            )
        pivot = math.sqrt(max(variance, 0.0) + self.regularization)
        if self._ahead is not None:
            # the last thing that may fail
            self._ahead._play(point)

        size, settled = self.round_index, len(self._factor)
        if size == len(self._rewards):
            self._make_room(len(point))
            settled, features = size, np.append(features, np.zeros(len(self._rewards) - size))
        # the further row of J is [−φᵀJ, 1]/l
        column = times_vector(self._tail, features[settled:])
        column[:settled] += upper_times_vector(self._factor, features[:settled])
        column /= -pivot
        column[size] = 1.0 / pivot
        self._tail[:, size - settled] = column

        self._points[size], self._rewards[size] = point, reward
        # v = Jy gains (r − φᵀv)/l
        self._whitened_rewards[size] = (reward - evaluation.mean.item(row)) / pivot
        self._inverse_trace += float(column @ column)
        self._log_determinant += math.log(pivot * pivot / self.regularization)
        self.round_index += 1

    def _play(self, point: FloatArray) -> None:
        """Learn a point with a reward that is never asked for: variances depend on points alone."""
        self.observe(point, 0.0, self.evaluate_finite(point[None, :]))

    def anticipate(self, key: int, point: FloatArray, evaluation: _ExactEvaluation, row: int = 0) -> None:  # noqa: ARG002
        # Nothing of the evaluation is of the posterior ahead.
        ahead = self._without_awaited() if self._ahead is None else self._ahead
        ahead._play(point)
        self._ahead = ahead
        self._awaited[key] = point

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        frozen = self._without_awaited() if self._ahead is None else copy.deepcopy(self._ahead)

        def variance(point: FloatArray) -> float:
            return frozen.evaluate(point[None, :]).std.item(0) ** 2 / self.regularization

        yield variance

    def _without_awaited(self) -> ExactPosterior:
        """A copy to count further points into."""
        twin = ExactPosterior(self.kernel, self.regularization)
        for name, value in vars(self).items():
            if name not in ("kernel", "_ahead", "_awaited"):
                setattr(twin, name, copy.deepcopy(value))
        return twin

    def fulfil(self, key: int, reward: float) -> None:
        point, ahead = self._awaited[key], self._ahead
        evaluation = self.evaluate_finite(point[None, :])
        # The point counts ahead already.
        self._ahead = None
        try:
            self.observe(point, reward, evaluation)
        finally:
            self._ahead = ahead
        self._no_longer_await(key)

    def abandon(self, key: int) -> None:
        others = [point for other, point in self._awaited.items() if other != key]
        if len(others) < len(self._awaited):
            # A row cannot be taken out of the factor: count the others anew, O(t²) each.
            ahead = self._without_awaited()
            for point in others:
                ahead._play(point)
            self._ahead = ahead
        self._no_longer_await(key)

    def _no_longer_await(self, key: int) -> None:
        del self._awaited[key]
        if not self._awaited:
            self._ahead = None

    def _make_room(self, dimension: int) -> None:
        """Let the newer columns join the triangle and make room for more, for points and rewards too."""
        size, settled = self.round_index, len(self._factor)
        factor = np.zeros((size, size))
        factor[:settled, :settled] = self._factor
        factor[:, settled:] = self._tail[:size]
        self._factor = factor
        room = max(TAIL_COLUMNS, int(TAIL_SHARE * size))
        self._tail = np.zeros((size + room, room))
        points = np.zeros((size + room, dimension))
        points[:size] = self._points[:size].reshape(size, dimension)
        self._points = points
        self._rewards = np.append(self._rewards, np.zeros(room))
        self._whitened_rewards = np.append(self._whitened_rewards, np.zeros(room))

    def __repr__(self) -> str:
        return (
            f"ExactPosterior({self.kernel!r}, regularization={self.regularization:g}, round_index={self.round_index})"
        )
