"""The exact posterior: every observed point carries it, O(t²) per action and per update."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.numerics import linalg
from kernel_bandits.posteriors.base import Evaluation, Facts, Posterior, require_finite_kernel
from kernel_bandits.posteriors.basis import kernel_gradient
from kernel_bandits.posteriors.pending import Awaited, Pending

# Columns of Jᵀ that come after its contiguous part wait until they are this many, or this share of it, to join it.
TAIL_COLUMNS, TAIL_SHARE = 64, 1 / 8


@dataclass(slots=True)
class _ExactEvaluation(Evaluation):
    """Adds φ(s) = J k_S(s), shape (A, t) and zeros up to the room there is, and the posterior variances, shape (A,)."""

    features: FloatArray
    variance: FloatArray


class ExactRegression:
    """J = L⁻¹ with LLᵀ = K + λI, bordered by one row per observation, and v = J y.

    Then mean(s) = φᵀv and variance(s) = k(s, s) − ‖φ‖² with φ = J k_S(s). The older columns of Jᵀ are one contiguous
    triangle, for triangular products; the newer ones follow in a narrow block and join it now and then, so that growth
    copies O(t) numbers a round.
    """

    drift = 0.0

    def __init__(self, kernel: KernelLike, regularization: float) -> None:
        self.kernel, self.regularization = kernel, regularization
        self.log_determinant = 0.0
        self.size = 0
        self._points = np.zeros((0, 0))
        self._rewards = np.zeros(0)
        self._whitened_rewards = np.zeros(0)
        self._factor = np.zeros((0, 0))
        self._tail = np.zeros((0, 0))
        self._inverse_trace = 0.0
        # λ_i/λ of each observation, 1 unless weights were given
        self._noise_ratios = np.zeros(0)

    @property
    def effective_dimension(self) -> float:
        """Trace K(K + Λ)⁻¹, which is t − trace Λ(K + Λ)⁻¹ with the noise variances Λ, λI without weights."""
        return self.size - self.regularization * self._inverse_trace

    @property
    def points(self) -> FloatArray:
        """The observed points, a view (t, d)."""
        return self._points[: self.size]

    @property
    def weights_given(self) -> FloatArray | None:
        """The weights of the observations, shape (t,); None if all are 1."""
        ratios = self._noise_ratios[: self.size]
        return None if (ratios == 1.0).all() else 1.0 / ratios

    @property
    def rewards(self) -> FloatArray:
        """The observed rewards, a view (t,)."""
        return self._rewards[: self.size]

    def evaluate(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """φ, mean and variance at points (A, d)."""
        size, settled = self.size, len(self._factor)
        # room for columns to come stands as zeros, so that every matrix is used whole
        gram = np.zeros((len(points), len(self._rewards)))
        if size:
            gram[:, :size] = self.kernel(points, self._points[:size])
        # φ = J k_S(s): a triangular product for the older columns of Jᵀ, an ordinary one for the newer; mean = φᵀJy
        features = np.empty_like(gram)
        features[:, :settled] = linalg.times_upper(gram[:, :settled].copy(), self._factor)
        features[:, settled:] = linalg.times(gram, self._tail)
        mean = linalg.times_vector(features, self._whitened_rewards)
        # σ²λ = k(s, s) − ‖φ‖²
        return features, mean, self.kernel.diag(points) - np.vecdot(features, features)

    def weights(self, features: FloatArray) -> FloatArray:
        """(K + λI)⁻¹k_S = Jᵀφ of one φ, with zeros up to the room there is."""
        settled = len(self._factor)
        weights = linalg.times_vector(self._tail, features[settled:])
        weights[:settled] += linalg.upper_times_vector(self._factor, features[:settled])
        return weights

    def gradient(self, points: FloatArray, features: FloatArray, std: FloatArray, bonus: float) -> FloatArray:
        """The gradient of mean + bonus·std at evaluated points."""
        settled = len(self._factor)
        # d mean = (Jᵀv)ᵀdk_S and d variance = dk(s, s) − 2(Jᵀφ)ᵀdk_S, and d std = d variance/(2·std)
        slopes = bonus * linalg.half_inverse(std)
        by_features = self._whitened_rewards - 2.0 * slopes[:, None] * features
        by_gram = linalg.times_transpose(by_features[:, settled:], self._tail)
        by_gram[:, :settled] += linalg.times_upper_transpose(by_features[:, :settled].copy(), self._factor)
        return kernel_gradient(self.kernel, points, self.points, by_gram[:, : self.size], slopes)

    def pivot(self, variance: float, weight: float = 1.0) -> float:
        """The next l² = k(s, s) + λ/weight − ‖φ‖², never below λ/weight but for rounding, as l; an error if it is."""
        if variance < -0.5 * self.regularization:
            raise InputError(
                f"kernel: {self.kernel!r} is not positive definite on the observed points, or its diag(X) differs from "
                f"k(x, x): a posterior variance came out as {variance:.3g}."
            )
        return math.sqrt(max(variance, 0.0) + self.regularization / weight)

    def observe(
        self, point: FloatArray, reward: float, features: FloatArray, mean: float, pivot: float, weight: float = 1.0
    ) -> None:
        """Learn a reward at a point, with its φ, mean and l as they stand."""
        size, settled = self.size, len(self._factor)
        if size == len(self._rewards):
            self._make_room(len(point))
            settled, features = size, np.append(features, np.zeros(len(self._rewards) - size))
        # the further row of J is [−φᵀJ, 1]/l
        column = self.weights(features)
        column /= -pivot
        column[size] = 1.0 / pivot
        self._tail[:, size - settled] = column

        self._points[size], self._rewards[size] = point, reward
        # v = Jy gains (r − φᵀv)/l
        self._whitened_rewards[size] = (reward - mean) / pivot
        self._noise_ratios[size] = 1.0 / weight
        self._inverse_trace += float(column @ (self._noise_ratios * column))
        self.log_determinant += math.log(weight * pivot * pivot / self.regularization)
        self.size += 1

    def count(self, coordinates: FloatArray, weight: float = 1.0) -> None:
        """Learn a point with a reward that is never asked for: variances depend on points alone."""
        with np.errstate(invalid="ignore", over="ignore"):
            features, mean, variance = self.evaluate(coordinates[None, :])
        require_finite_kernel(self.kernel, mean + linalg.safe_sqrt(variance))
        self.observe(coordinates, 0.0, features[0], mean.item(0), self.pivot(variance.item(0), weight), weight)

    def copy(self) -> Self:
        """A regression that goes on by itself, with the same kernel."""
        return copy.deepcopy(self, {id(self.kernel): self.kernel})

    def _make_room(self, dimension: int) -> None:
        """Let the newer columns join the triangle and make room for more, for points and rewards too."""
        size, settled = self.size, len(self._factor)
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
        self._noise_ratios = np.append(self._noise_ratios, np.zeros(room))


class ExactPosterior(Posterior[_ExactEvaluation]):
    """Kernel ridge regression on the whole history (the paper's K-UCB appendix).

    Args:
        kernel: the covariance function, ours or scikit-learn's.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view.
    """

    _pending: Pending[ExactRegression]

    def __init__(self, kernel: KernelLike, regularization: float) -> None:
        facts = Facts(kernel, regularization, "exact")
        super().__init__(facts, Pending(ExactRegression(facts.kernel, facts.regularization)))

    @property
    def dictionary_points(self) -> FloatArray:
        return self._pending.settled.points.copy()

    def _observations(self) -> tuple[FloatArray, FloatArray]:
        return self._pending.settled.points.copy(), self._pending.settled.rewards.copy()

    def evaluate(self, points: FloatArray) -> _ExactEvaluation:
        settled, ahead = self._pending.settled, self._pending.ahead
        features, mean, variance = settled.evaluate(points)
        std = linalg.safe_sqrt(variance if ahead is settled else ahead.evaluate(points)[2])
        return _ExactEvaluation(self._facts.round_index, mean, std, features, variance)

    def covariance(self, points: FloatArray, evaluation: _ExactEvaluation) -> FloatArray:
        settled, ahead = self._pending.settled, self._pending.ahead
        features = evaluation.features if ahead is settled else ahead.evaluate(points)[0]
        # K − ΦΦᵀ, where noise that a kernel puts on its diagonal alone counts as in the std
        covariance = self.kernel(points, points.copy()) - linalg.times_transpose(features, features)
        np.fill_diagonal(covariance, evaluation.std**2)
        return covariance

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        settled = self._pending.settled
        # mean = Σ_i r_i·[(K + λI)⁻¹k_S]_i
        weights = settled.weights(self.evaluate_finite(point[None, :]).features[0])
        points, rewards = self._observations()
        return points, weights[: len(rewards)] * rewards, rewards

    def gradient(self, points: FloatArray, evaluation: _ExactEvaluation, bonus: float) -> FloatArray:
        settled, ahead = self._pending.settled, self._pending.ahead
        if ahead is settled or not bonus:
            return settled.gradient(points, evaluation.features, evaluation.std, bonus)
        # the mean is of the settled regression, the std of the one ahead
        seen = ahead.evaluate(points)[0]
        widths = ahead.gradient(points, seen, evaluation.std, bonus) - ahead.gradient(points, seen, evaluation.std, 0.0)
        return settled.gradient(points, evaluation.features, evaluation.std, 0.0) + widths

    def observe(self, point: FloatArray, reward: float, evaluation: _ExactEvaluation, row: int = 0) -> None:
        settled, ahead = self._pending.settled, self._pending.ahead
        pivot = settled.pivot(evaluation.variance.item(row))
        if ahead is not settled:
            # the last thing that may fail
            ahead.count(point)
        self._learn(point, reward, evaluation, row, pivot)

    def observe_weighted(self, point: FloatArray, reward: float, weight: float) -> None:
        settled, ahead = self._pending.settled, self._pending.ahead
        evaluation = self.evaluate_finite(point[None, :])
        pivot = settled.pivot(evaluation.variance.item(0), weight)
        if ahead is not settled:
            # the last thing that may fail
            ahead.count(point, weight)
        self._learn(point, reward, evaluation, 0, pivot, weight)

    @property
    def observed_weights(self) -> FloatArray | None:
        return self._pending.settled.weights_given

    def _learn(
        self,
        point: FloatArray,
        reward: float,
        evaluation: _ExactEvaluation,
        row: int,
        pivot: float,
        weight: float = 1.0,
    ) -> None:
        features, mean = evaluation.features[row], evaluation.mean.item(row)
        self._pending.settled.observe(point, reward, features, mean, pivot, weight)
        self._facts.dimension = len(point)
        self._facts.round_index += 1

    def anticipate(self, key: int, point: FloatArray, evaluation: _ExactEvaluation, row: int = 0) -> None:
        del evaluation, row  # nothing of it is of the regression ahead
        self._pending.expect(key, Awaited(point, point))

    def fulfil(self, key: int, reward: float) -> None:
        point = self._pending.awaited[key].point
        evaluation = self.evaluate_finite(point[None, :])
        # the point counts ahead already
        self._learn(point, reward, evaluation, 0, self._pending.settled.pivot(evaluation.variance.item(0)))
        self._pending.release(key)

    def abandon(self, key: int) -> None:
        # A row cannot be taken out of the factor: count the others anew, O(t²) each.
        others = dict(self._pending.awaited)
        del others[key]
        self._pending.recount(others)

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        frozen = self._pending.ahead.copy()

        def variance(point: FloatArray) -> float:
            return linalg.safe_sqrt(frozen.evaluate(point[None, :])[2]).item(0) ** 2 / self.regularization

        yield variance

    def __repr__(self) -> str:
        ridge, rounds = self.regularization, self.round_index
        return f"ExactPosterior({self.kernel!r}, regularization={ridge:g}, round_index={rounds})"
