"""A kernel whose function wanders with time."""

from typing import ClassVar

import numpy as np

from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.kernels.base import Kernel, KernelLike, as_kernel, weighted_gradient


class Timed(Kernel):
    """k(s, s')·2^(−|t − t'|/half_life), of points (s, t) whose last column is the time.

    A function that forgets itself at a constant rate, as in TV-GP-UCB (Bogunovic et al. 2016).

    Args:
        kernel: k, on all columns but the last.
        half_life: after which a value keeps half of its correlation, in the units of the last column.
    """

    saved: ClassVar[tuple[str, ...]] = ("kernel", "half_life")

    def __init__(self, kernel: KernelLike, half_life: float) -> None:
        self.kernel = as_kernel(kernel)
        self.half_life = as_positive("half_life", half_life)

    def _decay(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return np.exp2(-np.abs(X[:, -1:] - Y[:, -1]) / self.half_life)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        if Y is None:
            return self.kernel(X[:, :-1]) * self._decay(X, X)
        return self.kernel(X[:, :-1], Y[:, :-1]) * self._decay(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        return self.kernel.diag(X[:, :-1])

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        decayed = weights * self._decay(X, Y)
        by_point = weighted_gradient(self.kernel, X[:, :-1], Y[:, :-1], decayed)
        # d2^(−|u|/h)/dt = −ln 2/h·sign(u)·2^(−|u|/h) with u = t − t'
        slopes = -np.log(2.0) / self.half_life * np.sign(X[:, -1:] - Y[:, -1])
        by_time = (decayed * slopes * self.kernel(X[:, :-1], Y[:, :-1])).sum(axis=1)
        return np.hstack([by_point, by_time[:, None]])

    def __repr__(self) -> str:
        return f"Timed({self.kernel!r}, {self.half_life:g})"
