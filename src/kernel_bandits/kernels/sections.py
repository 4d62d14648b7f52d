"""Kernels between any points and fixed ones, of which everything that can be is computed in advance."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from kernel_bandits.arrays import FloatArray

# Maps weights (n, m) and own weights (n,) to ∂/∂x_i of Σ_j weights_ij·k(x_i, z_j) + own_weights_i·k(x_i, x_i), (n, d).
Pullback: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]


class Sections(ABC):
    """The functions k(·, z) of fixed points z (m, d), and k(x, x).

    Whoever calls may overwrite the arrays that come back; a gradient that is taken later does not rest on them.
    """

    @abstractmethod
    def __call__(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return k(x, z), shape (n, m), and k(x, x), shape (n,), at points x (n, d)."""

    @abstractmethod
    def with_pullback(self, X: FloatArray) -> tuple[FloatArray, FloatArray, Pullback]:
        """Return the same, and the gradient as a function of weights, which shares their work."""
