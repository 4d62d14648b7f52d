"""Kernels that depend only on the inner product of two points."""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.errors import InputError
from kernel_bandits.kernels.stationary import Lengthscale, Scaled
from kernel_bandits.numerics.linalg import times


class _DotProduct(Scaled):
    """(⟨x/ℓ, y/ℓ⟩ + offset)^degree."""

    saved: ClassVar[tuple[str, ...]] = ("degree", "offset")

    def __init__(self, degree: int, lengthscale: Lengthscale, offset: float) -> None:
        super().__init__(lengthscale)
        self.degree: int = as_count("degree", degree)
        self.offset: float = float(offset)
        if not (math.isfinite(self.offset) and self.offset >= 0):
            raise InputError(f"offset: expected a finite number of at least 0, got {offset!r}.")

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        scaled = self.scaled(X)
        return np.asarray((scaled @ (scaled if Y is None else self.scaled(Y)).T + self.offset) ** self.degree)

    def diag(self, X: FloatArray) -> FloatArray:
        scaled = self.scaled(X)
        return np.asarray((np.einsum("ij,ij->i", scaled, scaled) + self.offset) ** self.degree)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        # degree·(⟨x/ℓ, y/ℓ⟩ + offset)^(degree − 1)·y/ℓ²
        other = self.scaled(Y)
        slopes = (self.scaled(X) @ other.T + self.offset) ** (self.degree - 1)
        return self.degree * times(weights * slopes, other) / self._values

    @abstractmethod
    def __repr__(self) -> str:
        """Return the code that builds it."""

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        scale = self._per_column(stop - start)
        return dot_node(start, stop, [0.0] * len(scale), scale, np.eye(len(scale)), self.offset, self.degree)


class Polynomial(_DotProduct):
    """(⟨x/ℓ, y/ℓ⟩ + offset)^degree.

    Args:
        degree: a whole number of at least 1.
        lengthscale: ℓ, one positive number or one per column.
        offset: at least 0; its square root is sigma_0 in scikit-learn's ``DotProduct``.
    """

    def __init__(self, degree: int = 2, lengthscale: Lengthscale = 1.0, offset: float = 1.0) -> None:
        super().__init__(degree, lengthscale, offset)

    def __repr__(self) -> str:
        return f"Polynomial(degree={self.degree}, lengthscale={self._words}, offset={self.offset:g})"


class Linear(_DotProduct):
    """⟨x/ℓ, y/ℓ⟩ + offset, the kernel of linear regression.

    Args:
        lengthscale: ℓ, one positive number or one per column.
        offset: at least 0, the prior variance of the intercept.
    """

    def __init__(self, lengthscale: Lengthscale = 1.0, offset: float = 0.0) -> None:
        super().__init__(1, lengthscale, offset)

    def __repr__(self) -> str:
        return f"Linear(lengthscale={self._words}, offset={self.offset:g})"


def dot_node(
    start: int, stop: int, centre: list[float], scale: list[float], metric: FloatArray, offset: float, degree: int
) -> dict[str, Any]:
    """Return the portable form of (⟨x, My⟩ + offset)^degree, of standardised x = (s − centre)/scale."""
    node = {"kind": "dot", "columns": [start, stop], "centre": centre, "scale": scale, "metric": metric.tolist()}
    return node | {"offset": offset, "degree": degree}
