"""The exact posterior: every observed point carries it, O(t²) per action and per update."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray, InputError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.linalg import safe_sqrt
from kernel_bandits.posteriors.base import Approximation, Evaluation, Posterior

# Rows of J per block: few enough that a block's empty upper triangle costs little, enough for matrix products.
BLOCK_ROWS = 128


@dataclass(slots=True)
class _ExactEvaluation(Evaluation):
    """Adds φ(s) = J k_S(s), shape (A, t), and the posterior variances, shape (A,)."""

    features: FloatArray
    variance: FloatArray


class ExactPosterior(Posterior[_ExactEvaluation]):
    """Kernel ridge regression on the whole history (the paper's K-UCB appendix).

    State: J = L⁻¹ with LLᵀ = K + λI, bordered by one row per observation, and v = J y. Then
    mean(s) = φᵀv and variance(s) = k(s, s) − ‖φ‖² with φ = J k_S(s). J is stored in blocks of rows, each as wide as
    its last row, so that growth copies nothing of it and products skip the empty upper triangle.
    """

    def __init__(self, kernel: KernelLike, regularization: float) -> None:
        super().__init__(kernel, regularization)
        self._points = np.zeros((0, 0))
        self._rewards = np.zeros(0)
        self._whitened_rewards = np.zeros(0)
        self._factor_blocks: list[FloatArray] = []
        self._inverse_trace = 0.0
        self._log_determinant = 0.0

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
        size, count = self.round_index, len(points)
        features = np.empty((count, size))
        gram = self.kernel(points, self._points[:size]) if size else features
        # φ = J k_S(s), block by block, each as far as its last row reaches; mean = φᵀJy
        for start, factor_rows in zip(range(0, size, BLOCK_ROWS), self._factor_blocks, strict=True):
            stop = min(start + BLOCK_ROWS, size)
            np.matmul(gram[:, :stop], factor_rows[: stop - start, :stop].T, out=features[:, start:stop])
        mean = features @ self._whitened_rewards[:size]
        # σ²λ = k(s, s) − ‖φ‖²
        variance = self.kernel.diag(points) - np.vecdot(features, features)
        return _ExactEvaluation(self.round_index, mean, safe_sqrt(variance), features, variance)

    def contenders(self, points: FloatArray, bonus: float) -> tuple[None, _ExactEvaluation]:  # noqa: ARG002
        # The mean costs O(t) per action too, but its bound mean + bonus·√k seldom excludes one.
        return None, self.evaluate(points)

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

        size = self.round_index
        if size == len(self._rewards):
            self._make_room(len(point))
        # the further row of J is [−φᵀJ, 1]/l
        new_row = self._factor_blocks[size // BLOCK_ROWS][size % BLOCK_ROWS]
        for start, factor_rows in zip(range(0, size, BLOCK_ROWS), self._factor_blocks, strict=False):
            stop = min(start + BLOCK_ROWS, size)
            new_row[:stop] += features[start:stop] @ factor_rows[: stop - start, :stop]
        new_row[:size] /= -pivot
        new_row[size] = 1.0 / pivot

        self._points[size], self._rewards[size] = point, reward
        # v = Jy gains (r − φᵀv)/l
        self._whitened_rewards[size] = (reward - evaluation.mean.item(row)) / pivot
        self._inverse_trace += float(new_row[: size + 1] @ new_row[: size + 1])
        self._log_determinant += math.log(pivot * pivot / self.regularization)
        self.round_index += 1

    def _make_room(self, dimension: int) -> None:
        """Room for one more block of rows of J; points and rewards, which are small beside it, are copied."""
        size = self.round_index
        self._factor_blocks.append(np.zeros((BLOCK_ROWS, size + BLOCK_ROWS)))
        points = np.zeros((size + BLOCK_ROWS, dimension))
        points[:size] = self._points[:size].reshape(size, dimension)
        self._points = points
        self._rewards = np.append(self._rewards, np.zeros(BLOCK_ROWS))
        self._whitened_rewards = np.append(self._whitened_rewards, np.zeros(BLOCK_ROWS))
