"""Lengthscales, one for all columns or one per column, and the median heuristic."""

import math
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist, pdist

from kernel_bandits.arrays import FloatArray, as_count, as_floats, as_points, require_finite
from kernel_bandits.errors import InputError

Lengthscale: TypeAlias = float | Sequence[float] | FloatArray

# What cdist calls once it has looked its arguments over, which costs as much as a short round's distances.
try:
    from scipy.spatial._distance_pybind import cdist_euclidean, cdist_sqeuclidean
except ImportError:
    cdist_euclidean, cdist_sqeuclidean = cdist, partial(cdist, metric="sqeuclidean")
euclidean_distances, squared_distances = cdist_euclidean, cdist_sqeuclidean


class Scales:
    """A scalar lengthscale, or one per column."""

    __slots__ = ("scalar", "values")

    def __init__(self, lengthscale: Lengthscale) -> None:
        self.values = as_floats("lengthscale", lengthscale).copy()
        if self.values.ndim > 1 or self.values.size == 0 or not (self.values > 0).all():
            raise InputError(f"lengthscale: expected a positive number, or one per column, got {lengthscale!r}.")
        require_finite("lengthscale", self.values)
        self.scalar = float(self.values) if self.values.ndim == 0 else None

    def check(self, X: FloatArray) -> None:
        if self.scalar is None and X.shape[1] != self.values.shape[0]:
            raise InputError(
                f"lengthscale: {self.values.shape[0]} lengthscales were given for points with {X.shape[1]} columns "
                "(context columns first, then action columns); give one number, or one per column."
            )

    def squared_distances(self, X: FloatArray, Y: FloatArray, factor: float) -> FloatArray:
        """Return factor·‖(x − y)/ℓ‖², from differences and not from norms, which lose digits far from the origin."""
        scalar = self.scalar
        if scalar is None:
            self.check(X)
            X, Y = X / self.values, Y / self.values
        else:
            factor = factor / scalar / scalar
        squared: FloatArray = squared_distances(X, Y)
        squared *= factor
        return squared

    def squared_distances_of_parts(
        self, contexts: FloatArray, actions: FloatArray, Y: FloatArray, factor: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the shares of contexts (n, m) and of actions (A, m) in factor·‖(x − y)/ℓ‖² of one with the other."""
        split = contexts.shape[1]
        if self.scalar is None:
            contexts, actions = contexts / self.values[:split], actions / self.values[split:]
            Y = Y / self.values
        else:
            factor = factor / self.scalar / self.scalar
        near = factor * squared_distances(contexts, Y[:, :split].copy())
        return near, factor * squared_distances(actions, Y[:, split:].copy())

    def __repr__(self) -> str:
        if self.scalar is not None:
            return f"{self.scalar:g}"
        return f"[{', '.join(f'{value:g}' for value in self.values.tolist())}]"


def median_lengthscale(
    points: ArrayLike, *, per_dimension: bool = False, sample_size: int = 1000, seed: int = 0
) -> float | FloatArray:
    """Return the median distance between two joint points of a sample, the usual first choice of a lengthscale.

    A lengthscale ten times too short leaves all points nearly uncorrelated; one ten times too long makes the rewards
    look flat. Pairs of equal points do not count.

    Args:
        points: typical joint points, context columns first, shape (n, d) with n ≥ 2.
        per_dimension: return an array with one lengthscale per column, the median distance in that column times √d, so
            that the columns together contribute about one lengthscale at typical distances. Constant columns get 1.
        sample_size: the largest number of points to compare, drawn without replacement.
        seed: the seed of that draw.
    """
    sample = as_points("points", points)
    require_finite("points", sample)
    if len(sample) < 2:
        raise InputError("points: expected at least two, got one; distances need pairs.")
    if len(sample) > as_count("sample_size", sample_size):
        sample = np.random.default_rng(seed).choice(sample, size=sample_size, replace=False)

    def median_distance(columns: FloatArray) -> float:
        distances = pdist(columns)
        distances = distances[distances > 0]
        return float(np.median(distances)) if distances.size else 1.0

    if not per_dimension:
        return median_distance(sample)
    dimension = sample.shape[1]
    medians = [median_distance(sample[:, [j]]) for j in range(dimension)]
    varies = np.ptp(sample, axis=0) > 0
    return np.where(varies, np.array(medians) * math.sqrt(dimension), 1.0)
