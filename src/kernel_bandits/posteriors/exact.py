"""The exact posterior: every observed point carries it, O(t²) per action and per update."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import KernelLike
from kernel_bandits.linalg import safe_sqrt
from kernel_bandits.posteriors.base import Approximation, Evaluation, Posterior
from kernel_bandits.posteriors.history import BLOCK_ROWS, History


@dataclass(slots=True)
class _ExactEvaluation(Evaluation):
    """Adds φ(s) = J k_S(s), shape (A, t), and the posterior variances, shape (A,)."""

    features: FloatArray
    variance: FloatArray


class ExactPosterior(Posterior[_ExactEvaluation]):
    """Kernel ridge regression on the whole history (the paper's K-UCB appendix).

    State: J = L⁻¹ with LLᵀ = K + λI, bordered by one row per observation, and v = J y. Then
    mean(s) = φᵀv and variance(s) = k(s, s) − ‖φ‖² with φ = J k_S(s). J is stored in blocks of rows, each as wide as
    its last row, so that growth copies nothing and products skip the empty upper triangle.
    """

    def __init__(self, kernel: KernelLike, regularization: float) -> None:
        super().__init__(kernel, regularization)
        self._history = History()
        self._factor_blocks: list[FloatArray] = []
        self._whitened_rewards: list[FloatArray] = []
        self._inverse_trace = 0.0
        self._log_determinant = 0.0

    @property
    def approximation(self) -> Approximation:
        return "exact"

    @property
    def dimension(self) -> int | None:
        return self._history.dimension

    @property
    def dictionary_points(self) -> FloatArray:
        return self._history.points

    @property
    def dictionary_size(self) -> int:
        return len(self._history)

    @property
    def observed_points(self) -> FloatArray:
        return self._history.points

    @property
    def observed_rewards(self) -> FloatArray:
        return self._history.rewards

    @property
    def log_determinant(self) -> float:
        return self._log_determinant

    @property
    def effective_dimension(self) -> float:
        # trace K(K + λI)⁻¹ = t − λ·trace (K + λI)⁻¹
        return self.round_index - self.regularization * self._inverse_trace

    def evaluate(self, points: FloatArray) -> _ExactEvaluation:
        size, count = self.round_index, len(points)
        gram, features = np.empty((count, size)), np.empty((count, size))
        mean = np.zeros(count)
        start = 0
        blocks = zip(self._history.blocks(), self._factor_blocks, self._whitened_rewards, strict=True)
        for (past_points, _, _), factor_rows, whitened in blocks:
            rows = len(past_points)
            stop = start + rows
            gram[:, start:stop] = self.kernel(points, past_points)
            # φ = J k_S(s), block by block; mean = φᵀJy
            features[:, start:stop] = gram[:, :stop] @ factor_rows[:rows, :stop].T
            mean += features[:, start:stop] @ whitened[:rows]
            start = stop
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
        pivot = math.sqrt(max(evaluation.variance.item(row), 0.0) + self.regularization)

        size = self.round_index
        place = size % BLOCK_ROWS
        if place == 0:
            self._factor_blocks.append(np.zeros((BLOCK_ROWS, size + BLOCK_ROWS)))
            self._whitened_rewards.append(np.zeros(BLOCK_ROWS))
        # the further row of J is [−φᵀJ, 1]/l
        new_row = self._factor_blocks[-1][place]
        start = 0
        for factor_rows in self._factor_blocks:
            stop = min(start + BLOCK_ROWS, size)
            new_row[:stop] += features[start:stop] @ factor_rows[: stop - start, :stop]
            start = stop
        new_row[:size] /= -pivot
        new_row[size] = 1.0 / pivot
        self._whitened_rewards[-1][place] = (reward - evaluation.mean.item(row)) / pivot

        self._history.append(point, reward)
        self._inverse_trace += float(new_row[: size + 1] @ new_row[: size + 1])
        self._log_determinant += math.log(pivot * pivot / self.regularization)
        self.round_index += 1
