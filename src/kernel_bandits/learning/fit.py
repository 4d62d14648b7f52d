"""When a kernel is learned, and the lengthscales, output variance and noise that explain a sample of rewards best.

Rewards are y = c + f(s) + noise with f a Gaussian process of covariance v·k, k a stationary kernel, v its output
variance, and Gaussian noise of variance λ; c is a constant mean. With inducing points Z and
Q = K_SZ K_ZZ⁻¹ K_ZS the collapsed bound on the log evidence (Titsias 2009) is

    F = log N(y; c, Q + λI) − trace(K − Q)/(2λ)  ≤  log N(y; c, K + λI),

with equality where Z spans S. The trace is what the inducing points leave unexplained: without it a kernel could look
good because they are poor.

The fit maximises F plus a weak prior, in units in which every column of the points and the rewards have spread one, so
that the result does not depend on the units of the data. The prior ties the columns together while little is known: a
handful of points cannot declare a column irrelevant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.linalg import lapack

from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.kernels import Stationary
from kernel_bandits.learning import defaults
from kernel_bandits.learning.columns import RewardModel, Units
from kernel_bandits.learning.prior import STATIONARY_PRIOR
from kernel_bandits.numerics.linalg import (
    factorisation_threads,
    factorise,
    inverse_and_log_determinant,
    times,
    times_transpose,
)

# Added to the unit diagonal of K_ZZ/v: it keeps the factor above rounding, and F a bound, a slightly smaller one.
JITTER = 1e-9


@dataclass(frozen=True)
class KernelLearning:
    """When and from what a kernel is learned.

    Args:
        first_round: how many observations there are when it is learned first.
        growth: refit each time the number of observations has grown by this factor. By default 2, doubling times, which
            keeps the cost of learning a fixed share of that of playing; where no kernel is given, a smaller factor as
            long as observations are few.
        sample_size: n, the most observations that a fit looks at, drawn at random, round t with weight 1/t.
        groups: a label from 0 on for each column of a joint point, context columns first: columns with the same label
            share a lengthscale, in units of their spread. None for one lengthscale per column.
        from_scratch: start from nothing: only the family of the kernel counts, not its lengthscale nor λ. Until the
            first fit, decisions go by standard deviations alone.
        warm_up: without a history, how many observations are kept for learning; then the kernel is frozen.
    """

    first_round: int = 4
    growth: float | None = None
    sample_size: int = 256
    groups: tuple[int, ...] | None = None
    warm_up: int = 512
    from_scratch: bool = False

    def __post_init__(self) -> None:
        for name in ("first_round", "sample_size", "warm_up"):
            if as_count(name, getattr(self, name)) < 2:
                raise InputError(f"{name}: expected at least 2, got {getattr(self, name)}.")
        if self.growth is not None and not as_positive("growth", self.growth) > 1.0:
            raise InputError(f"growth: expected more than 1, got {self.growth!r}.")
        if self.warm_up < self.first_round:
            raise InputError(
                f"warm_up: expected at least first_round={self.first_round}, got {self.warm_up}; without a history the "
                "kernel is learned from the first warm_up observations."
            )
        if self.groups is not None:
            object.__setattr__(self, "groups", _labels(self.groups))

    def after(self, round_index: int, growth: float = defaults.REFIT_GROWTH) -> int:
        """Return the round of the next learning, which has grown by the given factor unless the user chose another."""
        factor = growth if self.growth is None else self.growth
        return max(self.first_round, round_index + 1, math.ceil(factor * round_index))


def _labels(groups: Sequence[int]) -> tuple[int, ...]:
    try:
        labels = tuple(int(label) for label in groups)
    except (TypeError, ValueError):
        labels = ()
    if not labels or set(labels) != set(range(max(labels) + 1)):
        raise InputError(f"groups: expected labels 0, 1, … without a gap, one per column, got {groups!r}.")
    return labels


def descend(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    starts: Sequence[FloatArray],
    low: FloatArray,
    high: FloatArray,
    iterations: int,
    observations: int,
    tolerance: float,
) -> tuple[FloatArray, float]:
    """Return a local minimum, by L-BFGS-B from the best of some starts, and its value.

    Args:
        objective: returns a value and its gradient.
        starts: are moved into the bounds.
        low: lower bounds.
        high: upper bounds.
        iterations: the most steps.
        observations: how many there are; the objective is about a nat for each.
        tolerance: a step that gains fewer nats is the last.
    """
    tried = [(start, objective(start)) for start in (np.clip(start, low, high) for start in starts)]
    start, known = min(tried, key=lambda each: each[1][0])
    bounds = list(zip(low, high, strict=True))

    def continued(parameters: FloatArray) -> tuple[float, FloatArray]:
        # the optimiser begins with what is known
        return known if np.array_equal(parameters, start) else objective(parameters)

    # its tolerance is relative to the objective
    options = {"maxiter": iterations, "ftol": tolerance / observations}
    found = scipy.optimize.minimize(continued, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x, float(found.fun)


class Evidence(NamedTuple):
    """The bound and its derivatives.

    Attributes:
        value: F, in nats.
        lengthscales: ∂F/∂log ℓ_j for each column, shape (d,); that of a lengthscale that columns share is their sum.
        variance: ∂F/∂log v.
        noise: ∂F/∂log λ.
        mean: the c at which F is taken, in the units of the reward.
    """

    value: float
    lengthscales: FloatArray
    variance: float
    noise: float
    mean: float


class _Factors(NamedTuple):
    """J = L⁻¹ with LLᵀ = K_ZZ, A = J·K_ZS/√λ of shape (m, n), B = I + AAᵀ, N = M⁻¹ with MMᵀ = B, and log det B."""

    J: FloatArray
    A: FloatArray
    B: FloatArray
    N: FloatArray
    log_determinant: float


class _Fit(NamedTuple):
    """The mean c, α = Σ⁻¹(y − c) of shape (n,), (y − c)ᵀα, and the exponent of the prior of c."""

    mean: float
    weights: FloatArray
    misfit: float
    log_prior: float


def log_evidence(
    kernel: Stationary,
    variance: float,
    noise: float,
    points: FloatArray,
    rewards: FloatArray,
    inducing: FloatArray | None = None,
    *,
    mean_precision: float | None = None,
) -> Evidence:
    """Return the collapsed bound F on the log marginal likelihood of rewards, and its gradient, in O(n·m²).

    Args:
        kernel: k, with one lengthscale per column or one for all.
        variance: v, the output variance: the prior variance of the expected reward.
        noise: λ, the noise variance.
        points: S, shape (n, d).
        rewards: y, shape (n,).
        inducing: Z, shape (m, d). None for Z = S, where F is the log marginal likelihood itself, in O(n³).
        mean_precision: None for c = 0. Otherwise c is the value that maximises F under the prior c ~ N(0, 1/precision),
            whose exponent is part of F; 0 for a flat one.
    """
    if inducing is None:
        return _exact_evidence(kernel, variance, noise, kernel.scaled(points), rewards, mean_precision)
    count = len(points)
    scaled, anchors = kernel.scaled(points), kernel.scaled(inducing)
    cross, cross_slope = kernel.value_and_slope(scipy.spatial.distance.cdist(anchors, scaled, "sqeuclidean"))
    gram, gram_slope = kernel.value_and_slope(scipy.spatial.distance.cdist(anchors, anchors, "sqeuclidean"))
    J, A, B, N, log_determinant = _factorise(variance, noise, cross, gram)

    # Σ⁻¹b = (b − AᵀB⁻¹Ab)/λ with Σ = Q + λI
    inverse = N.T @ N
    sides = _sides(rewards)
    fit = _fit(rewards, (sides - A.T @ (inverse @ (A @ sides))) / noise, mean_precision)
    unexplained = count * variance - noise * float(np.vdot(A, A))
    normaliser = log_determinant + count * math.log(2.0 * math.pi * noise)
    value = fit.log_prior - 0.5 * (normaliser + fit.misfit + unexplained / noise)

    # ∂F/∂K_ZS = Wα αᵀ + Jᵀ(I − B⁻¹)A/√λ with W = K_ZZ⁻¹K_ZS = √λ·JᵀA
    # ∂F/∂K_ZZ = −½(Wα (Wα)ᵀ + Jᵀ(B − 2I + B⁻¹)J)
    identity = np.eye(len(inducing))
    pull = math.sqrt(noise) * (J.T @ (A @ fit.weights))
    by_cross = times(J.T @ (identity - inverse) / math.sqrt(noise), A)
    by_cross += np.outer(pull, fit.weights)
    by_gram = -0.5 * (np.outer(pull, pull) + J.T @ (B - 2.0 * identity + inverse) @ J)

    through_kernel = float(np.vdot(by_cross, cross)) + float(np.vdot(by_gram, gram)) + JITTER * float(np.trace(by_gram))
    by_variance = variance * (through_kernel - 0.5 * count / noise)
    # ∂q/∂log ℓ_j = −2·((s_j − z_j)/ℓ_j)²
    by_cross *= cross_slope
    by_gram *= gram_slope
    spread = _weighted_squares(by_cross, anchors, scaled) + _weighted_squares(by_gram, anchors, anchors)
    # ∂F/∂λ = ½(‖α‖² − trace Σ⁻¹ + trace(K − Q)/λ²) with λ·trace Σ⁻¹ = n − m + trace B⁻¹
    free = count - len(inducing) + float(np.trace(inverse))
    by_noise = 0.5 * (noise * float(fit.weights @ fit.weights) - free + unexplained / noise)
    return Evidence(value, -2.0 * variance * spread, by_variance, by_noise, fit.mean)


def _exact_evidence(
    kernel: Stationary,
    variance: float,
    noise: float,
    scaled: FloatArray,
    rewards: FloatArray,
    mean_precision: float | None,
) -> Evidence:
    """F with Z = S, by one factorisation of Σ = K + λI instead of two and products between them."""
    gram, slope = kernel.value_and_slope(scipy.spatial.distance.cdist(scaled, scaled, "sqeuclidean"))
    covariance = variance * gram
    covariance.flat[:: len(gram) + 1] += noise
    inverse, log_determinant = inverse_and_log_determinant(covariance)
    fit = _fit(rewards, inverse.dot(_sides(rewards)), mean_precision)
    value = fit.log_prior - 0.5 * (log_determinant + len(rewards) * math.log(2.0 * math.pi) + fit.misfit)
    # ∂F/∂Σ = ½(ααᵀ − Σ⁻¹)
    by_covariance = np.multiply.outer(fit.weights, fit.weights)
    by_covariance -= inverse
    by_covariance *= 0.5
    by_variance, by_noise = variance * float(np.vdot(by_covariance, gram)), noise * float(np.trace(by_covariance))
    by_covariance *= slope
    return Evidence(
        value, -2.0 * variance * _weighted_squares(by_covariance, scaled, scaled), by_variance, by_noise, fit.mean
    )


def log_marginal_likelihood(
    kernel: Stationary, variance: float, noise: float, points: FloatArray, rewards: FloatArray
) -> float:
    """Return the log marginal likelihood log N(y; 0, v·K + λI) by itself; arguments as for :func:`log_evidence`."""
    covariance = variance * kernel(points)
    covariance.flat[:: len(points) + 1] += noise
    log_determinant = factorise(covariance)
    whitened, _ = lapack.dtrtrs(covariance.T, rewards, lower=1)
    return -0.5 * (log_determinant + len(rewards) * math.log(2.0 * math.pi) + float(whitened @ whitened))


def _sides(rewards: FloatArray) -> FloatArray:
    """Columns y and 1, shape (n, 2)."""
    return np.stack([rewards, np.ones(len(rewards))], axis=1)


def _fit(rewards: FloatArray, solved: FloatArray, mean_precision: float | None) -> _Fit:
    """From Σ⁻¹y and Σ⁻¹1 as columns."""
    if mean_precision is None:
        return _Fit(0.0, solved[:, 0], float(rewards @ solved[:, 0]), 0.0)
    # c = 1ᵀΣ⁻¹y/(1ᵀΣ⁻¹1 + precision); F does not change with c there, so that its other derivatives ignore c
    mean = float(solved[:, 1] @ rewards) / (float(solved[:, 1].sum()) + mean_precision)
    weights = solved[:, 0] - mean * solved[:, 1]
    return _Fit(mean, weights, float((rewards - mean) @ weights), -0.5 * mean_precision * mean * mean)


def _factorise(variance: float, noise: float, cross: FloatArray, gram: FloatArray) -> _Factors:
    """From k(Z, S), shape (m, n), and k(Z, Z)."""
    covariance = variance * gram
    covariance.flat[:: len(gram) + 1] += variance * JITTER
    whitening, _ = _inverse_factor(covariance)
    features = times((variance / math.sqrt(noise)) * whitening, cross)
    capacitance = times_transpose(features, features)
    capacitance.flat[:: len(gram) + 1] += 1.0
    return _Factors(whitening, features, capacitance, *_inverse_factor(capacitance))


def _inverse_factor(symmetric: FloatArray) -> tuple[FloatArray, float]:
    """L⁻¹ with LLᵀ = S, and log det S."""
    factor = symmetric.copy()
    log_determinant = factorise(factor)
    with factorisation_threads(len(symmetric)):
        inverse, _ = lapack.dtrtri(factor.T, lower=1, overwrite_c=1)
    return np.tril(inverse), log_determinant


def _weighted_squares(weights: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Return Σ_ab weights_ab·(left_a − right_b)² column by column, shape (d,), by products of matrices.

    About the mean of the left points, so that little is lost where the columns lie far from the origin.
    """
    centre = left.mean(axis=0)
    left, right = left - centre, right - centre
    squares = weights.sum(axis=1) @ (left * left) + weights.sum(axis=0) @ (right * right)
    return squares - 2.0 * (left * times(weights, right)).sum(axis=0)


class Score(NamedTuple):
    """How well a model explains a sample.

    Attributes:
        evidence: the log marginal likelihood, in nats.
        objective: that plus the log prior; learning maximises a bound on it.
    """

    evidence: float
    objective: float


class EvidenceObjective:
    """F + log prior of parameters θ = (log ℓ of each group, log v, log λ), with gradients, on a sample in its units.

    Args:
        family: the kernel whose lengthscales are sought.
        points: shape (n, d), spread one.
        rewards: shape (n,), spread one.
        groups: the group of each column.
        weigh_prior: whether the prior counts.
    """

    def __init__(
        self,
        family: Stationary,
        points: FloatArray,
        rewards: FloatArray,
        groups: NDArray[np.intp],
        weigh_prior: bool = True,
    ) -> None:
        self.family, self.points, self.rewards, self.groups = family, points, rewards, groups
        # all points, until fewer are chosen
        self.inducing: FloatArray | None = None
        count = int(groups.max()) + 1
        self.centre, self.bounds = STATIONARY_PRIOR.centre(count, points.shape[1]), STATIONARY_PRIOR.bounds(count)
        self._precision = STATIONARY_PRIOR.precision(count) if weigh_prior else np.zeros((count + 2, count + 2))
        self._mean_precision = STATIONARY_PRIOR.mean_precision if weigh_prior else None

    def kernel(self, parameters: FloatArray) -> Stationary:
        """Return the kernel with the lengthscales of parameters."""
        return self.family.with_lengthscale(np.exp(parameters[:-2])[self.groups])

    def choose_inducing(self, parameters: FloatArray) -> None:
        """Choose as many points as it takes for the trace term of these parameters to be ``INDUCING_TRACE_NATS``.

        By pivoted Cholesky: each point is the one that those before it explain least. If it takes more than
        ``INDUCING_SHARE`` of them, all are taken, which is faster.
        """
        if len(self.points) <= defaults.START_SEARCH_SIZE:
            return
        variance, noise = np.exp(parameters[-2:])
        gram = self.kernel(parameters)(self.points)
        with factorisation_threads(len(gram)):
            tolerance = 2.0 * defaults.INDUCING_TRACE_NATS * noise / (variance * len(gram))
            _, pivots, rank, _ = lapack.dpstrf(gram, lower=1, tol=tolerance)
        self.inducing = self.points[pivots[:rank] - 1] if rank <= defaults.INDUCING_SHARE * len(gram) else None

    def score(self, parameters: FloatArray, mean: float) -> Score:
        """Log marginal likelihood, and that plus the log prior, at a given mean; −∞ where they cannot be computed."""
        variance, noise = np.exp(parameters[-2:]).tolist()
        offset = parameters - self.centre
        log_prior = -0.5 * float(offset @ self._precision @ offset) - 0.5 * (self._mean_precision or 0.0) * mean**2
        try:
            evidence = log_marginal_likelihood(
                self.kernel(parameters), variance, noise, self.points, self.rewards - mean
            )
        except KernelBanditsError:
            evidence = -math.inf
        return Score(evidence, evidence + log_prior) if math.isfinite(evidence) else Score(-math.inf, -math.inf)

    def negated(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return −(F + log prior) at the best mean and its gradient, for a minimiser; a large number where F fails."""
        try:
            evidence = self._evidence(parameters)
        except KernelBanditsError:
            evidence = None
        if evidence is None or not math.isfinite(evidence.value):
            return 1e12, np.zeros(len(parameters))
        offset = parameters - self.centre
        slope = self._precision @ offset
        lengthscales = np.bincount(self.groups, evidence.lengthscales)
        gradient = np.concatenate([lengthscales, [evidence.variance, evidence.noise]])
        return 0.5 * float(offset @ slope) - evidence.value, slope - gradient

    def cautious(self, parameters: FloatArray, mean: float) -> FloatArray:
        """Return where rewards are mostly noise, the shortest lengthscales that explain the sample nearly as well.

        Such rewards say little of the lengthscales, and long ones would pretend to know what lies between the points:
        the middle of a range, say, of which only the ends were ever played.
        """
        if parameters[-1] - parameters[-2] <= math.log(defaults.MOSTLY_NOISE):
            return parameters
        shorter = np.append(-np.ones(len(parameters) - 2), np.zeros(2))
        best = self.score(parameters, mean).objective
        for power in defaults.SHORTER_LENGTHSCALE_POWERS:
            candidate = self.within_bounds(parameters + power * shorter)
            if self.score(candidate, mean).objective >= best - defaults.PLAUSIBLE_NATS:
                return candidate
        return parameters

    def best_mean(self, parameters: FloatArray) -> float:
        """Return the mean at which F + log prior is largest."""
        return self._evidence(parameters).mean

    def _evidence(self, parameters: FloatArray) -> Evidence:
        variance, noise = np.exp(parameters[-2:]).tolist()
        return log_evidence(
            self.kernel(parameters),
            variance,
            noise,
            self.points,
            self.rewards,
            self.inducing,
            mean_precision=self._mean_precision,
        )

    def starts(self) -> list[FloatArray]:
        """Return where to look for the best parameters.

        Lengthscales from short to long, and rewards that are mostly noise.

        A very short lengthscale fits pure noise as well as a noise term does; without the last start a search that
        begins with little noise ends there.
        """
        groups = len(self.centre) - 2
        shorter_or_longer = np.append(np.ones(groups), np.zeros(2))
        mostly_noise = np.append(np.zeros(groups), defaults.START_NOISE_POWERS)
        powers = defaults.START_LENGTHSCALE_POWERS
        return [*[self.centre + power * shorter_or_longer for power in powers], self.centre + mostly_noise]

    def within_bounds(self, parameters: FloatArray) -> FloatArray:
        """Return the nearest parameters that the bounds allow."""
        low, high = np.array(self.bounds).T
        return np.clip(parameters, low, high)

    def maximise(
        self, start: FloatArray, iterations: int, tolerance: float = defaults.STATIONARY_STEP_NATS
    ) -> FloatArray:
        """Return the parameters of a local maximum within the bounds; a step that gains fewer nats is the last."""
        low, high = np.array(self.bounds).T
        return descend(self.negated, [start], low, high, iterations, len(self.points), tolerance)[0]


class Sample:
    """A sample of observations on which models are fitted and compared.

    Args:
        points: shape (n, d), in random order: the first ``START_SEARCH_SIZE`` serve the search for a start.
        rewards: shape (n,).
        groups: a label from 0 on for each column; columns with the same label share a lengthscale in units of their
            spread. None for one lengthscale per column.
        units: of an earlier sample of the same stream, if there was one.
    """

    def __init__(
        self,
        points: FloatArray,
        rewards: FloatArray,
        groups: Sequence[int] | None = None,
        units: Units | None = None,
    ) -> None:
        labels = np.arange(points.shape[1]) if groups is None else np.asarray(groups, dtype=np.intp)
        self.units = Units(points, rewards, labels, units)
        self._points = self.units.scaled(points)
        self._rewards = (rewards - self.units.reward_centre) / self.units.reward_spread

    def fit(self, family: Stationary, before: RewardModel | None) -> RewardModel:
        """Return the model that explains the sample best.

        Args:
            family: the kernel whose lengthscales are sought; its own do not matter.
            before: a model to start from too, besides a few starts of its own.
        """
        # a few points are enough to tell which start leads to the best place, and to come near it; the model before is
        # near it already, if it is the best start
        few = self._objective(family, defaults.START_SEARCH_SIZE)
        starts = few.starts()
        if before is not None:
            starts.append(few.within_bounds(self.units.parameters(before)))
        best = int(np.argmin([few.negated(start)[0] for start in starts]))
        parameters = starts[best]
        if before is None or best < len(starts) - 1 or len(self._points) <= defaults.START_SEARCH_SIZE:
            parameters = few.maximise(parameters, defaults.START_SEARCH_ITERATIONS)
        objective = few
        if len(self._points) > defaults.START_SEARCH_SIZE:
            objective = self._objective(family)
            objective.choose_inducing(parameters)
            parameters = _or_noise(objective, few, objective.maximise(parameters, defaults.REFINE_ITERATIONS))
            parameters = objective.cautious(parameters, objective.best_mean(parameters))
        return self.units.model(family, parameters, objective.best_mean(parameters))

    def score(self, model: RewardModel) -> Score:
        """Return how well a model explains the sample."""
        parameters, objective = self.units.parameters(model), self._objective(model.kernel)
        return objective.score(parameters, (model.mean - self.units.reward_centre) / self.units.reward_spread)

    def _objective(self, family: Stationary, size: int | None = None) -> EvidenceObjective:
        return EvidenceObjective(family, self._points[:size], self._rewards[:size], self.units.groups)


def _or_noise(objective: EvidenceObjective, few: EvidenceObjective, parameters: FloatArray) -> FloatArray:
    """Parameters, or others by which the rewards are mostly noise, if these explain them nearly as well.

    A very short lengthscale fits pure noise as well as a noise term does, and often better by a few nats, for it has a
    lengthscale per column to do so. But it makes every point an anchor and learns nothing.
    """
    if parameters[-1] > parameters[-2]:
        return parameters
    noise = few.maximise(few.starts()[-1], defaults.START_SEARCH_ITERATIONS)
    if noise[-1] <= noise[-2] or few.negated(noise)[0] > few.negated(parameters)[0] + 2.0 * defaults.ROUGHNESS_NATS:
        return parameters
    noise = objective.maximise(noise, defaults.REFINE_ITERATIONS)
    is_as_good = objective.negated(noise)[0] <= objective.negated(parameters)[0] + defaults.ROUGHNESS_NATS
    return noise if is_as_good else parameters
