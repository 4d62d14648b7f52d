"""Intervals of a mean of n terms, for one look at the end."""

import math

import numpy as np
import scipy

from kernel_bandits.arrays import FloatArray, as_probability

RESAMPLES = 1000
# More terms than this are resampled in groups; terms are independent, so sums of groups are too.
GROUPS = 2048


def studentised(
    terms: FloatArray, weights: FloatArray, level: float, effective: float
) -> tuple[float, float, float, float]:
    """Return the weighted mean Q = Σhx/Σh, both ends of its interval and its error √(Σh²(x − Q)²)/Σh.

    On the log of a policy that learns, the plain mean of unbiased terms need not be normal; with weights that even out
    their variances it is (Hadad et al. 2021, Theorem 2). The quantile is Student's for the effective number of rounds,
    which carry the error: up to 2.2 points of coverage (python benchmarks/off_policy_watched.py 1000 fixed).
    """
    total = float(weights.sum())
    value = float(weights @ terms) / total
    error = float(np.sqrt(np.sum((weights * (terms - value)) ** 2))) / total
    half = float(scipy.special.stdtrit(max(effective - 1.0, 1.0), 0.5 * (1.0 + level))) * error
    return value, value - half, value + half, error


def bootstrap(terms: FloatArray, level: float, generator: np.random.Generator) -> tuple[float, float]:
    """Return percentiles of ``RESAMPLES`` resampled means, in O(n) memory.

    Importance weights make terms skewed, and the interval of a skewed mean is not symmetric: the percentiles are those
    of the bias-corrected, accelerated bootstrap (Efron 1987), with Student's quantiles for small n.
    """
    as_probability("level", level)
    count = len(terms)
    order = generator.permutation(count) if count > GROUPS else np.arange(count)
    edges = np.linspace(0, count, min(count, GROUPS) + 1).astype(int)[:-1]
    sums, sizes = np.add.reduceat(terms[order], edges), np.diff(np.append(edges, count))
    # exponential weights (Rubin 1981) in place of counts: the same to first order, and faster to draw
    drawn = generator.standard_exponential((RESAMPLES, len(sums)))
    means = (drawn @ sums) / (drawn @ sizes)
    low, high = np.quantile(means, _percentiles(terms, level))
    return float(low), float(high)


def _percentiles(terms: FloatArray, level: float) -> FloatArray:
    """Return which percentiles of the resampled means are the ends of the interval."""
    count, deviations = len(terms), terms - terms.mean()
    largest = float(np.abs(deviations).max())
    tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    if count < 2 or largest == 0.0:
        return tails
    # in a unit whose cube is a number
    deviations = deviations / largest
    square = float(deviations @ deviations)
    # a = z₀ = Σd³/(6(Σd²)^{3/2}), the skewness of a mean over six, which is 1/6 at most
    acceleration = float(np.sum(deviations**3)) / (6.0 * square**1.5)
    shifted = acceleration + scipy.special.stdtrit(count - 1, tails) * math.sqrt(count / (count - 1))
    # Φ(z₀ + (z₀ + z)/(1 − a(z₀ + z))); very few terms have no such quantiles
    shifted = np.clip(shifted, -5.0, 5.0)
    return scipy.special.ndtr(acceleration + shifted / (1.0 - acceleration * shifted))
