"""Noise whose variance depends on context and action, learned from what rewards miss their predictions by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.kernels import Gaussian
from kernel_bandits.learning.fit import log_marginal_likelihood
from kernel_bandits.posterior.base import Posterior
from kernel_bandits.posterior.exact import ExactPosterior

# log χ² of one degree of freedom has this mean and this variance.
LOG_SQUARE_MEAN, LOG_SQUARE_VARIANCE = -1.2704, 0.5 * math.pi**2
# Squared residuals below this share of their median count as that: zeros would be noise of nothing. The median counts
# as no less than this share of the mean: more than half of them may be zeros.
LEAST_SQUARE = 1e-4
# The share of a point in its own prediction counts as this at most.
MOST_LEVERAGE = 0.9
# What is tried: variances of log σ² about its mean, and lengthscales in standard deviations of columns times √d.
VARIANCES, LENGTHSCALES = (0.25, 1.0, 4.0), (0.5, 1.0, 2.0)
# A varying noise has to explain residuals better by this many nats, for its two parameters.
PRICE = 2.0


@dataclass(frozen=True)
class UnequalNoise:
    """Noise of a variance that depends on context and action: rewards are weighted by what it is where they came from.

    A second regression explains the logarithms of squared residuals, by a Gaussian kernel over contexts and actions. It
    is learned again, and all rewards weighted anew, each time their number has grown by a factor.

    Args:
        first: after how many rewards it is learned first.
        growth: the factor.
        most: residuals that it is learned from, at most, the latest.
    """

    first: int = 24
    growth: float = 1.5
    most: int = 400

    def __post_init__(self) -> None:
        as_count("first", self.first)
        as_count("most", self.most)

    def after(self, count: int) -> int:
        """Return after how many rewards it is learned next."""
        return max(self.first, math.ceil(self.growth * count))


@dataclass(frozen=True)
class NoiseModel:
    """The variance of the noise as a function of joint points.

    Attributes:
        level: log σ² where nothing is known.
        scale: of the columns, shape (d,).
        posterior: of log σ² less its level, at scaled points; None where it is the same everywhere.
    """

    level: float
    scale: FloatArray
    posterior: Posterior | None

    @classmethod
    def of(cls, model: Posterior, points: FloatArray, rewards: FloatArray, weights: FloatArray, most: int) -> Self:
        """Return the noise of rewards (n,) at points (n, d), which a model has learned with these weights."""
        points, rewards, weights = points[-most:], rewards[-most:], weights[-most:]
        prediction = model.evaluate_finite(points)
        noise = model.regularization / weights
        # left out, a point would be missed by e/(1 − h) with variance σ²/(1 − h), where h = std²/σ²
        leverage = np.minimum(prediction.std**2 / noise, MOST_LEVERAGE)
        squares = (rewards - prediction.mean) ** 2 / (1.0 - leverage)
        typical = max(np.median(squares), LEAST_SQUARE * squares.mean())
        squares = np.maximum(squares, LEAST_SQUARE * typical + np.finfo(float).tiny)
        logs = np.log(squares) - LOG_SQUARE_MEAN
        level, spread = float(logs.mean()), points.std(axis=0)
        scale = np.where(spread > 0.0, spread, 1.0) * math.sqrt(max(1, int((spread > 0.0).sum())))
        scaled, rest = points / scale, logs - level
        found = log_marginal_likelihood(Gaussian(1.0), 0.0, LOG_SQUARE_VARIANCE, scaled, rest) + PRICE
        posterior: Posterior | None = None
        for lengthscale in LENGTHSCALES:
            for variance in VARIANCES:
                kernel = Gaussian(lengthscale)
                evidence = log_marginal_likelihood(kernel, variance, LOG_SQUARE_VARIANCE, scaled, rest)
                if evidence > found:
                    found, posterior = evidence, ExactPosterior(variance * kernel, LOG_SQUARE_VARIANCE)
        return cls(level, scale, None if posterior is None else posterior.learned(scaled, rest))

    @classmethod
    def equal(cls) -> Self:
        """Return the noise of which nothing is known."""
        return cls(0.0, np.ones(1), None)

    def variances(self, points: FloatArray) -> FloatArray:
        """Return σ² at points (n, d), shape (n,)."""
        log = 0.0 if self.posterior is None else self.posterior.evaluate_finite(points / self.scale).mean
        return np.exp(self.level + log) * np.ones(len(points))
