"""Kernels that depend only on the scaled distance of two points, and the lengthscales that scale it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike

from kernel_bandits.arrays import FloatArray, as_count, as_floats, as_points, require_finite
from kernel_bandits.errors import InputError
from kernel_bandits.kernels.base import Kernel
from kernel_bandits.numerics.linalg import times

Lengthscale: TypeAlias = float | Sequence[float] | FloatArray

# Entries processed at once in a sequence of steps, so that they stay in the cache.
PIECE = 2**14


class Scaled(Kernel):
    """A function of x/ℓ and y/ℓ, where ℓ is one number, or one per column."""

    saved: ClassVar[tuple[str, ...]] = ("_values", "_scalar")

    def __init__(self, lengthscale: Lengthscale) -> None:
        self._values = as_floats("lengthscale", lengthscale).copy()
        if self._values.ndim > 1 or self._values.size == 0 or not (self._values > 0).all():
            raise InputError(f"lengthscale: expected a positive number, or one per column, got {lengthscale!r}.")
        require_finite("lengthscale", self._values)
        self._scalar = float(self._values) if self._values.ndim == 0 else None

    @property
    def lengthscale(self) -> float | FloatArray:
        """ℓ, one number or one per column."""
        return self._values.copy() if self._scalar is None else self._scalar

    def scaled(self, X: FloatArray) -> FloatArray:
        """Return X/ℓ, in which the kernel has unit lengthscale."""
        self._check(X)
        return X / self._values

    def _check(self, X: FloatArray) -> None:
        if self._scalar is None and X.shape[1] != self._values.shape[0]:
            raise InputError(
                f"lengthscale: {self._values.shape[0]} lengthscales were given for points with {X.shape[1]} columns "
                "(context columns first, then action columns); give one number, or one per column."
            )

    def _per_column(self, count: int) -> list[float]:
        """Return one lengthscale for each of so many columns."""
        return np.broadcast_to(self._values, (count,)).tolist()

    @property
    def _words(self) -> str:
        if self._scalar is not None:
            return f"{self._scalar:g}"
        return f"[{', '.join(f'{value:g}' for value in self._values.tolist())}]"


class Stationary(Scaled):
    """A function of the distance ‖(x − y)/ℓ‖ alone that is 1 at distance 0."""

    # the c in c·‖(x − y)/ℓ‖², the argument of the kernel as a function
    factor: float = 1.0

    def __init__(self, lengthscale: Lengthscale = 1.0) -> None:
        super().__init__(lengthscale)

    def _squared_distances(self, X: FloatArray, Y: FloatArray, factor: float) -> FloatArray:
        """Return factor·‖(x − y)/ℓ‖², from differences and not from norms, which lose digits far from the origin."""
        if self._scalar is None:
            X, Y = self.scaled(X), Y / self._values
        else:
            factor = factor / self._scalar / self._scalar
        squared: FloatArray = scipy.spatial.distance.cdist(X, Y, "sqeuclidean")
        squared *= factor
        return squared

    @abstractmethod
    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        """Return the kernel, given ``factor``·‖(x − y)/ℓ‖², which it may overwrite."""

    @abstractmethod
    def value_and_slope(self, squared: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return k and dk/dq, 0 where it diverges, at squared scaled distances q, which may be overwritten."""

    @abstractmethod
    def with_lengthscale(self, lengthscale: Lengthscale) -> Stationary:
        """Return the same kernel with another lengthscale."""

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return self._of_squared_distance(self._squared_distances(X, X if Y is None else Y, self.factor))

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        # ∂k/∂x = 2·(dk/dq)·(x − y)/ℓ², and Σ_j v_ij(x_i − y_j) = x_i·Σ_j v_ij − (vY)_i: a matrix product, with a
        # point of X as origin, so that points far from 0 keep their digits
        slopes = weights * self.value_and_slope(self._squared_distances(X, Y, 1.0))[1]
        origin = X[0]
        differences = (X - origin) * slopes.sum(axis=1)[:, None] - times(slopes, Y - origin)
        return differences * (2.0 / self._values**2)

    def diag_gradient(self, X: FloatArray) -> FloatArray:
        return np.zeros(X.shape)

    def diag(self, X: FloatArray) -> FloatArray:
        self._check(X)
        ones = np.empty(len(X))
        ones.fill(1.0)
        return ones

    @property
    def form(self) -> str:
        """What exported files call the function of the distance; the classes of a user's own have no name there."""
        return ""

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        if not self.form:
            return super().portable(start, stop)
        return {"kind": self.form, "columns": [start, stop], "scale": self._per_column(stop - start)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lengthscale={self._words})"


class Gaussian(Stationary):
    """exp(−‖(x − y)/ℓ‖²/2), scikit-learn's ``RBF``.

    Args:
        lengthscale: ℓ, one positive number or one per column of the joint point (context columns first), in the units
            of the data. :func:`median_lengthscale` estimates one from a sample.
    """

    factor: float = -0.5
    form = "gaussian"

    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        return np.exp(squared, squared)

    def value_and_slope(self, squared: FloatArray) -> tuple[FloatArray, FloatArray]:
        squared *= -0.5
        value = np.exp(squared, out=squared)
        return value, -0.5 * value

    def with_lengthscale(self, lengthscale: Lengthscale) -> Gaussian:
        return Gaussian(lengthscale)


class Exponential(Stationary):
    """exp(−‖(x − y)/ℓ‖), the Laplace kernel in the Euclidean norm (Matérn 1/2); ℓ is one number or one per column."""

    form = "exponential"

    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        distance = np.sqrt(squared, out=squared)
        return np.exp(np.negative(distance, out=distance), out=distance)

    def value_and_slope(self, squared: FloatArray) -> tuple[FloatArray, FloatArray]:
        distance = np.sqrt(squared)
        value = np.exp(-distance)
        # d exp(−√q)/dq = −exp(−√q)/(2√q)
        return value, np.divide(-0.5 * value, distance, out=np.zeros_like(value), where=distance > 0)

    def with_lengthscale(self, lengthscale: Lengthscale) -> Exponential:
        return Exponential(lengthscale)


class Matern(Stationary):
    """The Matérn kernel of smoothness 3/2 or 5/2.

    With r = √(2ν)·‖(x − y)/ℓ‖ it is (1 + r)·exp(−r) for ν = 3/2 and (1 + r + r²/3)·exp(−r) for ν = 5/2.

    Args:
        lengthscale: ℓ, one positive number or one per column.
        smoothness: ν, 1.5 or 2.5; :class:`Exponential` is ν = 1/2 and :class:`Gaussian` the limit of large ν.
    """

    saved: ClassVar[tuple[str, ...]] = ("smoothness", "factor")

    def __init__(self, lengthscale: Lengthscale = 1.0, smoothness: float = 2.5) -> None:
        if smoothness not in (1.5, 2.5):
            raise InputError(
                f"smoothness: expected 1.5 or 2.5, got {smoothness!r}; 0.5 is Exponential, and for other values pass "
                "scikit-learn's Matern, which works here too."
            )
        super().__init__(lengthscale)
        self.smoothness: float = float(smoothness)
        self.factor: float = 2 * self.smoothness

    @property
    def form(self) -> str:
        return "matern 3/2" if self.smoothness == 1.5 else "matern 5/2"

    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        # 1 + r or 1 + r + r²/3 in the place of r², piece by piece: a whole array for r would be new memory every time
        flat = squared.reshape(-1)
        room = np.empty(min(flat.size, PIECE))
        for start in range(0, flat.size, PIECE):
            piece = flat[start : start + PIECE]
            r = np.sqrt(piece, out=room[: len(piece)])
            piece *= 0.0 if self.smoothness == 1.5 else 1.0 / 3.0
            piece += r
            piece += 1.0
            piece *= np.exp(np.negative(r, out=r), out=r)
        return flat.reshape(squared.shape)

    def value_and_slope(self, squared: FloatArray) -> tuple[FloatArray, FloatArray]:
        squared *= 2.0 * self.smoothness
        r = np.sqrt(squared)
        decay = np.negative(r)
        np.exp(decay, out=decay)
        r += 1.0
        r *= decay
        # r = √(2νq): d(1 + r)e⁻ʳ/dq = −³⁄₂·e⁻ʳ, d(1 + r + r²/3)e⁻ʳ/dq = −⁵⁄₆·(1 + r)e⁻ʳ
        if self.smoothness == 1.5:
            decay *= -1.5
            return r, decay
        squared *= decay
        squared /= 3.0
        squared += r
        r *= -5.0 / 6.0
        return squared, r

    def with_lengthscale(self, lengthscale: Lengthscale) -> Matern:
        return Matern(lengthscale, self.smoothness)

    def __repr__(self) -> str:
        return f"Matern(lengthscale={self._words}, smoothness={self.smoothness:g})"


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
        distances = scipy.spatial.distance.pdist(columns)
        distances = distances[distances > 0]
        return float(np.median(distances)) if distances.size else 1.0

    if not per_dimension:
        return median_distance(sample)
    dimension = sample.shape[1]
    medians = [median_distance(sample[:, [j]]) for j in range(dimension)]
    varies = np.ptp(sample, axis=0) > 0
    return np.where(varies, np.array(medians) * math.sqrt(dimension), 1.0)
