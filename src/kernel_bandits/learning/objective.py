"""What learning maximises: the collapsed bound on the evidence plus the log prior, with gradients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.kernels import Stationary
from kernel_bandits.learning.descent import descend
from kernel_bandits.learning.evidence import Evidence, log_evidence, log_marginal_likelihood
from kernel_bandits.learning.prior import PRIOR
from kernel_bandits.numerics.blas_threads import factorisation_threads

# Starts are tried at the prior median times these powers of e in all lengthscales, and in output variance and noise, on
# at most this many points, all of them inducing. A step of the optimiser that gains fewer nats than the tolerance is
# its last.
START_POWERS = (-2.0, -1.0, 0.0, 1.0)
NOISE_START = (-2.0, 1.6)
SEARCH_SIZE = 64
TOLERANCE = 0.1
# Lengthscales that explain rewards worse by no more than this many nats are plausible too. Where rewards are mostly
# noise (this many times the output variance), the shortest plausible ones are taken, all shorter by one of these powers
# of e.
MOSTLY_NOISE = 4.0
PLAUSIBLE_NATS = 2.0
SHORTER_POWERS = (0.8, 0.4, 0.2)
# Inducing points may leave this much of the evidence aside, in nats, at the parameters they are chosen for; a third of
# it is usual.
TRACE_NATS = 3.0
# Up to this share of the points the bound is faster than the log marginal likelihood itself.
INDUCING_SHARE = 0.4


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
        self.centre, self.bounds = PRIOR.centre(count, points.shape[1]), PRIOR.bounds(count)
        self._precision = PRIOR.precision(count) if weigh_prior else np.zeros((count + 2, count + 2))
        self._mean_precision = PRIOR.mean_precision if weigh_prior else None

    def kernel(self, parameters: FloatArray) -> Stationary:
        """Return the kernel with the lengthscales of parameters."""
        return self.family.with_lengthscale(np.exp(parameters[:-2])[self.groups])

    def choose_inducing(self, parameters: FloatArray) -> None:
        """Return as many points as it takes for the trace term of these parameters to be at most ``TRACE_NATS``.

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
        mostly_noise = np.append(np.zeros(groups), NOISE_START)
        return [*[self.centre + power * shorter_or_longer for power in START_POWERS], self.centre + mostly_noise]

    def within_bounds(self, parameters: FloatArray) -> FloatArray:
        """Return the nearest parameters that the bounds allow."""
        low, high = np.array(self.bounds).T
        return np.clip(parameters, low, high)

    def maximise(self, start: FloatArray, iterations: int, tolerance: float = TOLERANCE) -> FloatArray:
        """Return the parameters of a local maximum within the bounds; a step that gains fewer nats is the last."""
        low, high = np.array(self.bounds).T
        return descend(self.negated, [start], low, high, iterations, len(self.points), tolerance)[0]
