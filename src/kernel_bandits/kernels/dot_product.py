"""Kernels that depend only on the inner product of two points."""

import math
from typing import Any, ClassVar

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.errors import InputError
from kernel_bandits.kernels.base import Kernel
from kernel_bandits.kernels.stationary import Lengthscale, Scales
from kernel_bandits.numerics.linalg import times


class Polynomial(Kernel):
    """(⟨x/ℓ, y/ℓ⟩ + offset)^degree.

    Args:
        degree: a whole number of at least 1.
        lengthscale: ℓ, one positive number or one per column.
        offset: at least 0; its square root is sigma_0 in scikit-learn's ``DotProduct``.
    """

    saved: ClassVar[tuple[str, ...]] = ("degree", "_scales", "offset")

    def __init__(self, degree: int = 2, lengthscale: Lengthscale = 1.0, offset: float = 1.0) -> None:
        self.degree = as_count("degree", degree)
        self._scales = Scales(lengthscale)
        self.offset = float(offset)
        if not (math.isfinite(self.offset) and self.offset >= 0):
            raise InputError(f"offset: expected a finite number of at least 0, got {offset!r}.")

    @property
    def lengthscale(self) -> float | FloatArray:
        """What columns are divided by, one number or one per column."""
        return self._scales.values.copy() if self._scales.scalar is None else self._scales.scalar

    def _powers(self, products: FloatArray) -> FloatArray:
        powers = (products + self.offset) ** self.degree
        return np.asarray(powers, dtype=np.float64)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        self._scales.check(X)
        scaled = X / self._scales.values
        return self._powers(scaled @ (scaled if Y is None else Y / self._scales.values).T)

    def diag(self, X: FloatArray) -> FloatArray:
        self._scales.check(X)
        scaled = X / self._scales.values
        return self._powers(np.einsum("ij,ij->i", scaled, scaled))

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        self._scales.check(X)
        # degree·(⟨x/ℓ, y/ℓ⟩ + offset)^(degree − 1)·y/ℓ²
        other = Y / self._scales.values
        slopes = ((X / self._scales.values) @ other.T + self.offset) ** (self.degree - 1)
        return self.degree * times(weights * slopes, other) / self._scales.values

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        scale = self._scales.per_column(stop - start)
        return dot_node(start, stop, [0.0] * len(scale), scale, np.eye(len(scale)), self.offset, self.degree)

    def __repr__(self) -> str:
        return f"Polynomial(degree={self.degree}, lengthscale={self._scales!r}, offset={self.offset:g})"


def dot_node(
    start: int, stop: int, centre: list[float], scale: list[float], metric: FloatArray, offset: float, degree: int
) -> dict[str, Any]:
    """Return the portable form of (⟨x, My⟩ + offset)^degree, of standardised x = (s − centre)/scale."""
    node = {"kind": "dot", "columns": [start, stop], "centre": centre, "scale": scale, "metric": metric.tolist()}
    return node | {"offset": offset, "degree": degree}


class Linear(Kernel):
    """⟨x/ℓ, y/ℓ⟩ + offset, the kernel of linear regression.

    Args:
        lengthscale: ℓ, one positive number or one per column.
        offset: at least 0, the prior variance of the intercept.
    """

    saved: ClassVar[tuple[str, ...]] = ("_polynomial",)

    def __init__(self, lengthscale: Lengthscale = 1.0, offset: float = 0.0) -> None:
        self._polynomial = Polynomial(1, lengthscale, offset)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return self._polynomial(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        return self._polynomial.diag(X)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        return self._polynomial.gradient(X, Y, weights)

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        return self._polynomial.portable(start, stop)

    def __repr__(self) -> str:
        return f"Linear(lengthscale={self._polynomial._scales!r}, offset={self._polynomial.offset:g})"
