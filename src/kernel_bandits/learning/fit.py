"""Lengthscales, output variance and noise that explain a sample of rewards best.

Maximises the collapsed bound of :mod:`~kernel_bandits.learning.evidence` plus a weak prior, in units in which every
column of the points and the rewards have spread one, so that the result does not depend on the units of the data. The
prior ties the columns together while little is known: a handful of points cannot declare a column irrelevant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.kernels import Constant, KernelLike, Product, Stationary
from kernel_bandits.learning.evidence import Evidence, log_evidence, log_marginal_likelihood
from kernel_bandits.numerics.blas_threads import factorisation_threads

# The prior, on logarithms. Medians: lengthscales of 0.2·√d spreads (distances grow as √d), the variance of the rewards
# as output variance, a fifth of it as noise. Widths: lengthscales move together by a factor e, each apart from the
# others by another, output variance and noise by e² each, so that rewards may be nearly all noise; the mean of the
# rewards by one standard deviation of them.
MEDIAN_LENGTHSCALE, COMMON_WIDTH, COLUMN_WIDTH = 0.2, 1.0, 1.0
MEDIAN_VARIANCE, VARIANCE_WIDTH = 1.0, 2.0
MEDIAN_NOISE, NOISE_WIDTH = 0.2, 2.0
MEAN_PRECISION = 1.0
# What no data can leave: beyond these a lengthscale is as good as zero or infinite, and noise below 1 % of the spread
# of the rewards would let one surprising reward decide.
SHORTEST, LONGEST = 0.005, 500.0
LEAST_VARIANCE, LARGEST_VARIANCE = 1e-2, 1e2
LEAST_NOISE, LARGEST_NOISE = 1e-4, 4.0
# A column that varies by less than this share of its values is as good as constant: an action that is found again in a
# box comes back with such differences.
NEGLIGIBLE_SPREAD = 1e-7
# Starts are tried at the prior median times these powers of e in all lengthscales, and in output variance and noise, on
# at most so many points, all of them inducing. A step of the optimiser that gains fewer nats than the tolerance is its
# last.
START_POWERS = (-2.0, -1.0, 0.0, 1.0)
NOISE_START = (-2.0, 1.6)
SEARCH_SIZE = 64
SEARCH_ITERATIONS, REFINE_ITERATIONS = 20, 12
TOLERANCE = 0.1
# A model by which the rewards are mostly noise is preferred to one that explains them better by no more than so many
# nats, half a nat for each of several lengthscales.
ROUGHNESS_NATS = 4.0
# Lengthscales that explain rewards worse by no more than so many nats are plausible too. Where rewards are mostly noise
# (so many times the output variance), the shortest plausible ones are taken, all shorter by one of these powers of e.
MOSTLY_NOISE = 4.0
PLAUSIBLE_NATS = 2.0
SHORTER_POWERS = (0.8, 0.4, 0.2)
# Inducing points may leave so much of the evidence aside, in nats, at the parameters they are chosen for; a third of it
# is usual.
TRACE_NATS = 3.0
# Up to this share of the points the bound is faster than the log marginal likelihood itself.
INDUCING_SHARE = 0.4


@dataclass(frozen=True)
class RewardModel:
    """Rewards as mean + f(s) + noise, with f a Gaussian process of covariance variance·kernel.

    Attributes:
        kernel: k, 1 at distance 0.
        variance: the output variance v, in squared reward units.
        noise: the noise variance λ, in squared reward units.
        mean: c, the expected reward where nothing is known.
    """

    kernel: Stationary
    variance: float
    noise: float
    mean: float = 0.0

    @classmethod
    def of(cls, kernel: KernelLike, noise: float) -> RewardModel:
        """The model that a kernel given by the user stands for."""
        if isinstance(kernel, Stationary):
            return cls(kernel, 1.0, noise)
        if isinstance(kernel, Product):
            for factor, other in ((kernel.left, kernel.right), (kernel.right, kernel.left)):
                if isinstance(factor, Constant) and isinstance(other, Stationary):
                    return cls(other, factor.value, noise)
        raise InputError(
            f"learn_kernel: lengthscales are learned for Gaussian, Exponential and Matern and for multiples of them, "
            f"got {kernel!r}; pass one of these, or learn_kernel=False to keep the kernel as it is."
        )

    @property
    def covariance(self) -> KernelLike:
        """The kernel variance·k that a posterior takes."""
        return self.kernel if self.variance == 1.0 else self.variance * self.kernel


class Score(NamedTuple):
    """How well a model explains a sample.

    Attributes:
        evidence: the log marginal likelihood, in nats.
        objective: that plus the log prior; learning maximises a bound on it.
    """

    evidence: float
    objective: float


class Units:
    """Units in which a sample has spread one, and the way there and back.

    Args:
        points: shape (n, d).
        rewards: shape (n,).
        groups: the group of each column, shape (d,); columns of a group share a lengthscale in these units.
        before: units of an earlier sample, which these are at least as large as: a policy that plays what it knows to
            be good sees less and less of the columns, but they are as wide as they were.
    """

    def __init__(
        self, points: FloatArray, rewards: FloatArray, groups: NDArray[np.intp], before: Units | None = None
    ) -> None:
        self.groups = groups
        self.number_of_groups = int(groups.max()) + 1
        self.centres, self.reward_centre = points.mean(axis=0), float(rewards.mean())
        # √12 standard deviations are the length of an interval of uniform values; a column that never varies has none
        measured = math.sqrt(12.0) * _standard_deviations(points, self.centres)
        varies = measured > NEGLIGIBLE_SPREAD * np.abs(self.centres)
        self.measured = np.where(varies, measured, 0.0)
        deviation = float(rewards.std())
        self.reward_measured = deviation if deviation > 1e-12 * abs(self.reward_centre) else 0.0
        if before is not None:
            self.measured = np.maximum(self.measured, before.measured)
            self.reward_measured = max(self.reward_measured, before.reward_measured)
        self.spreads = np.where(self.measured > 0.0, self.measured, 1.0)
        self.reward_spread = self.reward_measured or abs(self.reward_centre) or 1.0

    def scaled(self, points: FloatArray) -> FloatArray:
        """Points in these units, about their centre."""
        return (points - self.centres) / self.spreads

    def relative(self, lengthscales: FloatArray | float) -> FloatArray:
        """Lengthscales over the spread of their columns, shape (d,); infinite where a column never varied."""
        with np.errstate(divide="ignore"):
            return lengthscales / self.measured

    def parameters(self, model: RewardModel) -> FloatArray:
        """θ = (log ℓ of each group, log v, log λ) in these units."""
        lengthscales = np.log(model.kernel.lengthscale / self.spreads)
        shared = np.bincount(self.groups, lengthscales) / np.bincount(self.groups)
        variances = np.log([model.variance, model.noise]) - 2.0 * math.log(self.reward_spread)
        return np.concatenate([shared, variances])

    def model(self, family: Stationary, parameters: FloatArray, mean: float) -> RewardModel:
        """The model of parameters and a mean in these units."""
        variance, noise = (np.exp(parameters[-2:]) * self.reward_spread**2).tolist()
        lengthscales = np.exp(parameters[:-2])[self.groups] * self.spreads
        return RewardModel(
            family.with_lengthscale(lengthscales), variance, noise, self.reward_centre + self.reward_spread * mean
        )


class Objective:
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
        self.centre = np.log(
            [*[MEDIAN_LENGTHSCALE * math.sqrt(points.shape[1])] * count, MEDIAN_VARIANCE, MEDIAN_NOISE]
        )
        covariance = np.diag([*[COLUMN_WIDTH**2] * count, VARIANCE_WIDTH**2, NOISE_WIDTH**2])
        covariance[:count, :count] += COMMON_WIDTH**2
        self._precision = np.linalg.inv(covariance) if weigh_prior else np.zeros(covariance.shape)
        self._mean_precision = MEAN_PRECISION if weigh_prior else None
        lengths = (math.log(SHORTEST), math.log(LONGEST))
        self.bounds = [
            *[lengths] * count,
            (math.log(LEAST_VARIANCE), math.log(LARGEST_VARIANCE)),
            (math.log(LEAST_NOISE), math.log(LARGEST_NOISE)),
        ]

    def kernel(self, parameters: FloatArray) -> Stationary:
        """The kernel with the lengthscales of parameters."""
        return self.family.with_lengthscale(np.exp(parameters[:-2])[self.groups])

    def choose_inducing(self, parameters: FloatArray) -> None:
        """As many points as it takes for the trace term of these parameters to be at most ``TRACE_NATS``.

        By pivoted Cholesky: each point is the one that those before it explain least. If it takes more than
        ``INDUCING_SHARE`` of them, all are taken, which is faster.
        """
        if len(self.points) <= SEARCH_SIZE:
            return
        variance, noise = np.exp(parameters[-2:])
        gram = self.kernel(parameters)(self.points)
        with factorisation_threads(len(gram)):
            tolerance = 2.0 * TRACE_NATS * noise / (variance * len(gram))
            _, pivots, rank, _ = lapack.dpstrf(gram, lower=1, tol=tolerance)
        self.inducing = self.points[pivots[:rank] - 1] if rank <= INDUCING_SHARE * len(gram) else None

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
        """−(F + log prior) at the best mean and its gradient, for a minimiser; a large number where F fails."""
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
        """Where rewards are mostly noise, the shortest lengthscales that explain the sample nearly as well.

        Such rewards say little of the lengthscales, and long ones would pretend to know what lies between the points:
        the middle of a range, say, of which only the ends were ever played.
        """
        if parameters[-1] - parameters[-2] <= math.log(MOSTLY_NOISE):
            return parameters
        shorter = np.append(-np.ones(len(parameters) - 2), np.zeros(2))
        best = self.score(parameters, mean).objective
        for power in SHORTER_POWERS:
            candidate = self.within_bounds(parameters + power * shorter)
            if self.score(candidate, mean).objective >= best - PLAUSIBLE_NATS:
                return candidate
        return parameters

    def best_mean(self, parameters: FloatArray) -> float:
        """The mean at which F + log prior is largest."""
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
        """Where to look for the best parameters: lengthscales from short to long, and rewards that are mostly noise.

        Noise can always be explained by a kernel so rough that no reward tells of another; without the last start a
        search that begins with little noise ends there.
        """
        groups = len(self.centre) - 2
        shorter_or_longer = np.append(np.ones(groups), np.zeros(2))
        mostly_noise = np.append(np.zeros(groups), NOISE_START)
        return [*[self.centre + power * shorter_or_longer for power in START_POWERS], self.centre + mostly_noise]

    def within_bounds(self, parameters: FloatArray) -> FloatArray:
        """The nearest parameters that the bounds allow."""
        low, high = np.array(self.bounds).T
        return np.clip(parameters, low, high)

    def maximise(self, start: FloatArray, iterations: int, tolerance: float = TOLERANCE) -> FloatArray:
        """Parameters of a local maximum within the bounds, by L-BFGS-B; a step that gains less nats is the last."""
        found = minimize(
            self.negated,
            self.within_bounds(start),
            jac=True,
            method="L-BFGS-B",
            bounds=self.bounds,
            # its tolerance is relative to the objective, which is about a nat per point
            options={"maxiter": iterations, "ftol": tolerance / len(self.points)},
        )
        return found.x


class Sample:
    """A sample of observations on which models are fitted and compared.

    Args:
        points: shape (n, d), in random order: the first ``SEARCH_SIZE`` of them serve the search for a start.
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
        """The model that explains the sample best.

        Args:
            family: the kernel whose lengthscales are sought; its own do not matter.
            before: a model to start from too, besides a few starts of its own.
        """
        # a few points are enough to tell which start leads to the best place, and to come near it; the model before is
        # near it already, if it is the best start
        few = self._objective(family, SEARCH_SIZE)
        starts = few.starts()
        if before is not None:
            starts.append(few.within_bounds(self.units.parameters(before)))
        best = int(np.argmin([few.negated(start)[0] for start in starts]))
        parameters = starts[best]
        if before is None or best < len(starts) - 1 or len(self._points) <= SEARCH_SIZE:
            parameters = few.maximise(parameters, SEARCH_ITERATIONS)
        objective = few
        if len(self._points) > SEARCH_SIZE:
            objective = self._objective(family)
            objective.choose_inducing(parameters)
            parameters = _or_noise(objective, few, objective.maximise(parameters, REFINE_ITERATIONS))
            parameters = objective.cautious(parameters, objective.best_mean(parameters))
        return self.units.model(family, parameters, objective.best_mean(parameters))

    def score(self, model: RewardModel) -> Score:
        """How well a model explains the sample."""
        parameters, objective = self.units.parameters(model), self._objective(model.kernel)
        return objective.score(parameters, (model.mean - self.units.reward_centre) / self.units.reward_spread)

    def _objective(self, family: Stationary, size: int | None = None) -> Objective:
        return Objective(family, self._points[:size], self._rewards[:size], self.units.groups)


def _or_noise(objective: Objective, few: Objective, parameters: FloatArray) -> FloatArray:
    """Parameters, or others by which the rewards are mostly noise, if these explain them nearly as well.

    A kernel so rough that no reward tells of another explains noise as well as noise does, and often better by a
    few nats, for it has a lengthscale per column to do so. But it makes every point an anchor and learns nothing.
    """
    if parameters[-1] > parameters[-2]:
        return parameters
    noise = few.maximise(few.starts()[-1], SEARCH_ITERATIONS)
    if noise[-1] <= noise[-2] or few.negated(noise)[0] > few.negated(parameters)[0] + 2.0 * ROUGHNESS_NATS:
        return parameters
    noise = objective.maximise(noise, REFINE_ITERATIONS)
    return noise if objective.negated(noise)[0] <= objective.negated(parameters)[0] + ROUGHNESS_NATS else parameters


def _standard_deviations(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Column by column, without squares that overflow."""
    offsets = points - centres
    largest = np.abs(offsets).max(axis=0)
    safe = np.where(largest > 0.0, largest, 1.0)
    return np.sqrt(((offsets / safe) ** 2).mean(axis=0)) * largest
