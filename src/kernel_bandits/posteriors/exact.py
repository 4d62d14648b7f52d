"""The exact posterior: every observed point carries it, O(t²) per action and per update."""

import copy
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, kernel_gradient
from kernel_bandits.numerics import linalg
from kernel_bandits.posteriors.base import Evaluation, Facts, Posterior, require_finite_kernel
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
        # λ_i/λ of each observation, from the first weight on that is not 1
        self._noise_ratios: FloatArray | None = None

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
        return None if self._noise_ratios is None else 1.0 / self._noise_ratios[: self.size]

    @property
    def rewards(self) -> FloatArray:
        """The observed rewards, a view (t,)."""
        return self._rewards[: self.size]

    def evaluate(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return φ, mean and variance at points (A, d)."""
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
        """Return (K + λI)⁻¹k_S = Jᵀφ of one φ, with zeros up to the room there is."""
        settled = len(self._factor)
        weights = linalg.times_vector(self._tail, features[settled:])
        weights[:settled] += linalg.upper_times_vector(self._factor, features[:settled])
        return weights

    def gradient(
        self, points: FloatArray, features: FloatArray, std: FloatArray, bonus: float, first: int
    ) -> FloatArray:
        """Return the gradient of mean + bonus·std at evaluated points."""
        settled = len(self._factor)
        # d mean = (Jᵀv)ᵀdk_S and d variance = dk(s, s) − 2(Jᵀφ)ᵀdk_S, and d std = d variance/(2·std)
        slopes = bonus * linalg.half_inverse(std)
        by_features = self._whitened_rewards - 2.0 * slopes[:, None] * features
        by_gram = linalg.times_transpose(by_features[:, settled:], self._tail)
        by_gram[:, :settled] += linalg.times_upper_transpose(by_features[:, :settled].copy(), self._factor)
        return kernel_gradient(self.kernel, points, self.points, by_gram[:, : self.size], slopes, first)

    def pivot(self, variance: float, weight: float = 1.0) -> float:
        """Return the next l, l² = k(s, s) + λ/weight − ‖φ‖²; an error if that is far below λ/weight."""
        if variance < -0.5 * self.regularization:
            raise InputError(
                f"kernel: {self.kernel!r} is not positive definite on the observed points, or its diag(X) differs from "
                f"k(x, x): a posterior variance came out as {variance:.3g}. If its values are huge, that is rounding; "
                "scale the columns to about 1, or give a larger λ."
            )
        return math.sqrt(max(variance, 0.0) + self.regularization / weight)

    def observe_steps(
        self, point: FloatArray, reward: float, features: FloatArray, mean: float, pivot: float, weight: float = 1.0
    ) -> Steps:
        """Return the steps that learn a reward at a point, with its φ, mean and l as they stand."""
        size, grown = self.size, self
        if size == len(self._rewards):
            grown = self._with_room(len(point))
            features = np.append(features, np.zeros(len(grown._rewards) - size))
        if weight != 1.0 and grown._noise_ratios is None:
            grown = copy.copy(grown)
            grown._noise_ratios = np.ones(len(grown._rewards))
        # the further row of J is [−φᵀJ, 1]/l
        column = grown.weights(features)
        column /= -pivot
        column[size] = 1.0 / pivot
        scaled = column
        if grown._noise_ratios is not None:
            scaled = grown._noise_ratios * column
            scaled[size] = column[size] / weight
        trace = self._inverse_trace + float(column @ scaled)
        log_determinant = self.log_determinant + math.log(weight * pivot * pivot / self.regularization)
        # v = Jy gains (r − φᵀv)/l
        store = (size, point, reward, column, (reward - mean) / pivot, trace, log_determinant, weight)
        if grown is self:
            return [(self._store, *store)]
        grown._store(*store)
        return [replace_state(self, grown)]

    def _store(
        self,
        row: int,
        point: FloatArray,
        reward: float,
        column: FloatArray,
        whitened: float,
        inverse_trace: float,
        log_determinant: float,
        weight: float,
    ) -> None:
        """Write one more observation; may be repeated."""
        if self._noise_ratios is not None:
            self._noise_ratios[row] = 1.0 / weight
        self._tail[:, row - len(self._factor)] = column
        self._points[row], self._rewards[row], self._whitened_rewards[row] = point, reward, whitened
        self._inverse_trace, self.log_determinant, self.size = inverse_trace, log_determinant, row + 1

    def count_steps(self, coordinates: FloatArray, weight: float = 1.0) -> Steps:
        """Return the steps that learn a point without its reward: variances depend on points alone."""
        with np.errstate(invalid="ignore", over="ignore"):
            features, mean, variance = self.evaluate(coordinates[None, :])
        require_finite_kernel(self.kernel, mean + linalg.safe_sqrt(variance))
        pivot = self.pivot(variance.item(0), weight)
        return self.observe_steps(coordinates, 0.0, features[0], mean.item(0), pivot, weight)

    def count_many(self, coordinates: Sequence[FloatArray]) -> None:
        """Learn points with rewards that are never asked for, in a regression that nobody else holds."""
        for point in coordinates:
            carry_out(self.count_steps(point))

    def copy(self) -> Self:
        """Return an independent copy of the regression, with the same kernel."""
        return copy.deepcopy(self, {id(self.kernel): self.kernel})

    def _with_room(self, dimension: int) -> Self:
        """Return the regression with its newer columns in the triangle, and room for more points and rewards."""
        size, settled, grown = self.size, len(self._factor), copy.copy(self)
        factor = np.zeros((size, size))
        factor[:settled, :settled] = self._factor
        factor[:, settled:] = self._tail[:size]
        grown._factor = factor
        room = max(TAIL_COLUMNS, int(TAIL_SHARE * size))
        grown._tail = np.zeros((size + room, room))
        points = np.zeros((size + room, dimension))
        points[:size] = self._points[:size].reshape(size, dimension)
        grown._points = points
        grown._rewards = np.append(self._rewards, np.zeros(room))
        grown._whitened_rewards = np.append(self._whitened_rewards, np.zeros(room))
        if self._noise_ratios is not None:
            grown._noise_ratios = np.append(self._noise_ratios, np.ones(room))
        return grown


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

    def gradient(self, points: FloatArray, evaluation: _ExactEvaluation, bonus: float, first: int = 0) -> FloatArray:
        settled, ahead = self._pending.settled, self._pending.ahead
        if ahead is settled or not bonus:
            return settled.gradient(points, evaluation.features, evaluation.std, bonus, first)
        # the mean is of the settled regression, the std of the one ahead
        seen = ahead.evaluate(points)[0]
        widths = ahead.gradient(points, seen, evaluation.std, bonus, first) - ahead.gradient(
            points, seen, evaluation.std, 0.0, first
        )
        return settled.gradient(points, evaluation.features, evaluation.std, 0.0, first) + widths

    def observe_steps(self, point: FloatArray, reward: float, evaluation: _ExactEvaluation, row: int = 0) -> Steps:
        settled, ahead = self._pending.settled, self._pending.ahead
        steps = self._learn_steps(point, reward, evaluation, row)
        return steps if ahead is settled else [*ahead.count_steps(point), *steps]

    def observe_weighted_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        settled, ahead = self._pending.settled, self._pending.ahead
        steps = self._learn_steps(point, reward, self.evaluate_finite(point[None, :]), 0, weight)
        return steps if ahead is settled else [*ahead.count_steps(point, weight), *steps]

    @property
    def observed_weights(self) -> FloatArray | None:
        return self._pending.settled.weights_given

    def _learn_steps(
        self, point: FloatArray, reward: float, evaluation: _ExactEvaluation, row: int, weight: float = 1.0
    ) -> Steps:
        settled = self._pending.settled
        pivot = settled.pivot(evaluation.variance.item(row), weight)
        features, mean = evaluation.features[row], evaluation.mean.item(row)
        steps = settled.observe_steps(point, reward, features, mean, pivot, weight)
        return [*steps, *self._facts.count_steps(len(point))]

    def anticipate_steps(self, key: int, point: FloatArray, evaluation: _ExactEvaluation, row: int = 0) -> Steps:
        del evaluation, row  # nothing of it is of the regression ahead
        return self._pending.expect_steps(key, Awaited(point, point))

    def fulfil_steps(self, key: int, reward: float) -> Steps:
        point = self._pending.awaited[key].point
        # the point counts ahead already
        steps = self._learn_steps(point, reward, self.evaluate_finite(point[None, :]), 0)
        return [*steps, *self._pending.release_steps([key])]

    def abandon_steps(self, keys: Collection[int]) -> Steps:
        # A row cannot be taken out of the factor: count the others again, O(t²) each.
        others = dict(self._pending.awaited)
        for key in keys:
            del others[key]
        return [replace_state(self._pending, self._pending.recounted(others))]

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._facts, twin._pending = copy.copy(self._facts), self._pending.copy()
        return twin

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        frozen = self._pending.ahead.copy()

        def variance(point: FloatArray) -> float:
            return linalg.safe_sqrt(frozen.evaluate(point[None, :])[2]).item(0) ** 2 / self.regularization

        yield variance

    def __repr__(self) -> str:
        ridge, rounds = self.regularization, self.round_index
        return f"ExactPosterior({self.kernel!r}, regularization={ridge:g}, round_index={rounds})"
