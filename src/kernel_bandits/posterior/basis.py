"""What turns points into coordinates: φ(s), and what they leave of k(s, s).

Everything beyond needs no more of a basis than its coordinates, the gradient through them and its size: a regression on
φ, the radii and the dictionary rules stay as they are for any other basis.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import blas

from kernel_bandits import kernels
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, require_gram
from kernel_bandits.kernels.base import Sections, with_defaults
from kernel_bandits.numerics import linalg
from kernel_bandits.posterior.history import Block
from kernel_bandits.posterior.ridge import Mass
from kernel_bandits.values import Rows, evolve

# The kernels of this library return a fresh array, which may be overwritten.
KERNELS = f"{kernels.__name__}."
# A point adds no direction if its residual is below this share of k(s, s), and of λ too: a large constant in the kernel
# makes k(s, s) large, and what is then a small share of it may be all there is to learn.
DIRECTION_TOLERANCE, NOISE_TOLERANCE = 1e-6, 1e-3
# Below this share of k(s, s) a residual is rounding, and would add a row of noise to J.
ROUNDING_TOLERANCE = 1e-12
EPSILON = float(np.finfo(float).eps)
# One cross-Gram block of at most this many bytes is held at a time, and never a t×m matrix.
BLOCK_BYTES = 2 * 2**20
# The room for rows of a triangle grows by this factor.
ROOM = 1.25


def least_direction(prior_variance: FloatArray | float, regularization: float) -> FloatArray:
    """Return the squared length that a direction must exceed at points with this k(s, s)."""
    small = np.minimum(DIRECTION_TOLERANCE * prior_variance, NOISE_TOLERANCE * regularization)
    return np.maximum(small, ROUNDING_TOLERANCE * prior_variance)


def require_resolution(kernel: KernelLike, prior_variance: float, regularization: float) -> None:
    """Raise if k(s, s) is so large that its rounding is larger than λ: nothing could be learned beside it."""
    if prior_variance * EPSILON > regularization:
        raise InputError(
            f"kernel: {kernel!r} reaches {prior_variance:.3g} at the given points, and rounding of that is more than "
            f"λ = {regularization:g}; scale the columns to about 1, or give a larger λ."
        )


def require_finite_between_points(kernel: KernelLike, *sums: FloatArray | float) -> None:
    """Raise unless sums over the kernel between observed points are finite."""
    if not all(np.isfinite(value).all() for value in sums):
        raise InputError(f"kernel: {kernel!r} returned values that are not finite between observed points.")


class Coordinates(NamedTuple):
    """Points in a basis: φ (A, m), the residual k(s, s) − ‖φ‖² and k(s, s), both (A,)."""

    features: FloatArray
    residual: FloatArray
    prior_variance: FloatArray


_EMPTY = np.empty((0, 0))


class AnchorBasis:
    """φ(s) = J k_Z(s) with J = L⁻¹ and LLᵀ = K_ZZ: orthonormal coordinates in the span of the anchors.

    Never changed in place: whoever keeps one keeps the coordinates of its moment.

    Attributes:
        anchors: Z, shape (m, d).
        whitening: J. A row of it is solved for with L and not computed from the rows before it: what rounding leaves of
            JL − I then grows with the condition of L, and not with its square.
    """

    __slots__ = ("_lower", "_owns_gram", "anchors", "kernel", "regularization", "whitening")

    def __init__(
        self,
        kernel: KernelLike,
        regularization: float,
        anchors: FloatArray = _EMPTY,
        upper: FloatArray = _EMPTY,
        lower: FloatArray = _EMPTY,
    ) -> None:
        self.kernel: KernelLike = kernel
        self.regularization: float = regularization
        self.anchors: FloatArray = anchors
        self.whitening: linalg.InverseFactor = linalg.InverseFactor(upper)
        # L, packed row by row
        packed = [np.empty(0), *(lower[row, : row + 1] for row in range(len(lower)))]
        self._lower = Rows.of(np.concatenate(packed), max(1, sum(map(len, packed))))
        self._owns_gram = type(kernel).__module__.startswith(KERNELS)

    @classmethod
    def chosen(
        cls,
        kernel: KernelLike,
        regularization: float,
        candidates: FloatArray,
        mean_residual: float = 0.0,
        limit: int | None = None,
    ) -> Self:
        """Choose anchors by pivoted Cholesky: each is the candidate (n, d) that those before it explain least.

        They are the fewest, ``limit`` at most, that leave no more than ``mean_residual`` of all on average, in units of
        k(z, z); 0 for as many as there are directions.
        """
        gram = kernel(candidates, candidates.copy()) if len(candidates) else np.empty((0, 0))
        if not np.isfinite(gram).all():
            raise InputError(f"kernel: {kernel!r} returned values that are not finite between anchors.")
        largest = float(np.diagonal(gram).max(initial=0.0))
        share = mean_residual / largest if largest > 0.0 else 0.0
        least = float(least_direction(largest, regularization)) / largest if largest > 0.0 else 0.0
        kept, upper, lower = linalg.independent_rows(gram, least, share, limit)
        return cls(kernel, regularization, candidates[kept], upper, lower)

    def __len__(self) -> int:
        return len(self.anchors)

    def sections_in(self, context: FloatArray) -> Sections | None:
        """Return the kernel between actions in one context (d_x,) and the anchors; None where nothing is gained."""
        return with_defaults(self.kernel).sections_in(context, self.anchors) if len(self.anchors) else None

    def gram(self, points: FloatArray) -> FloatArray:
        """Return k(points, anchors) in an array that may be overwritten; a foreign kernel may keep what it returns."""
        anchors = self.anchors
        if self._owns_gram and len(anchors):
            return self.kernel(points, anchors)
        if not len(anchors):
            return np.empty((len(points), 0))
        return self._checked(self.kernel(points, anchors), len(points))

    def _checked(self, gram: FloatArray, rows: int) -> FloatArray:
        """Return a copy of what a foreign kernel returned for so many points, or an error if it is no such matrix."""
        require_gram(self.kernel, gram, (rows, len(self.anchors)))
        return np.array(gram, order="C")

    def __call__(self, points: FloatArray) -> Coordinates:
        """Return the coordinates of points (A, d)."""
        prior = self.kernel.diag(points)
        features = self.whitening.times(self.gram(points))
        # the squared distance of k(s, ·) to the span of the anchors
        return Coordinates(features, np.maximum(prior - np.vecdot(features, features), linalg.ZERO), prior)

    def with_anchor(self, point: FloatArray, features: FloatArray) -> tuple[Self, float] | None:
        """Return the basis with one more anchor z, given φ(z), and l²; None if z adds nothing to their span.

        It adds the direction k(z, ·) + Σ r_j k(z_j, ·) of length l, where r = −Jᵀφ(z). k(z, z) is that of two copies of
        the point: white noise, which scikit-learn's ``WhiteKernel`` puts on ``diag`` alone, is no direction that
        another could share.
        """
        extended = np.concatenate([self.anchors.reshape(len(self.anchors), len(point)), point[None, :]])
        grown = evolve(self, anchors=extended)
        # k_Z(z) and k(z, z)
        (column,) = grown.gram(point[None, :])
        prior = column.item(-1)
        square, least = prior - float(features.dot(features)), least_direction(prior, self.regularization)
        coefficients = features
        if len(features) and not square <= least:
            # a step of Cholesky: φ = L⁻¹k_Z(z), l² = k(z, z) − ‖φ‖² and r = −L⁻ᵀφ
            # the rows of L are the columns of the upper triangle that Fortran sees
            features = blas.dtpsv(len(features), self._lower.tail, column[:-1], trans=1)
            coefficients = blas.dtpsv(len(features), self._lower.tail, -features)
            square = prior - float(features.dot(features))
            require_finite_between_points(self.kernel, square)
        if not square > least:
            return None
        # the further row of J is [rᵀ, 1]/l, and that of L is [φᵀ, l]
        pivot, lower = math.sqrt(square), self._lower
        if lower.size + len(extended) > lower.length:
            lower = Rows.of(lower.array, int(ROOM * (lower.size + len(extended))))
        grown._lower = lower.extended(linalg.appended_to(features, pivot))
        grown.whitening = self.whitening.with_row(linalg.appended_to(coefficients / pivot, 1.0 / pivot))
        return grown, square

    def sums(self, blocks: Iterable[Block]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return Σ φφᵀ (m, m) and Σ rφ (m,) of t observations, what is left of each, and how much it counts, (t,)."""
        second_moment, moment = np.zeros((len(self), len(self))), np.zeros(len(self))
        left, counted = [np.empty(0)], [np.empty(0)]
        for points, counts, rewards in blocks:
            features, residual, _ = self(points)
            linalg.add_gram(second_moment, np.sqrt(counts)[:, None] * features, 1.0)
            moment += linalg.transpose_times_vector(features, rewards)
            left.append(residual)
            counted.append(counts)
        residuals = np.concatenate(left)
        require_finite_between_points(self.kernel, residuals, second_moment, moment)
        return second_moment, moment, residuals, np.concatenate(counted)

    def project(self, blocks: Iterable[Block], further: int = 1) -> Mass | None:
        """Return observations in the coordinates of the last q anchors, to which they were added; None for none.

        Φ(s_i) = J k_Z(s_i), O(t·m), kernel recomputed block by block.
        """
        size, newest = len(self.anchors), self.whitening.last_rows(further)
        gram_sum, square, moment = np.zeros((size, further)), np.zeros((further, further)), np.zeros(further)
        rows, is_empty = max(1, BLOCK_BYTES // (8 * size)), True
        for points, counts, rewards in blocks:
            is_empty = False
            for start in range(0, len(points), rows):
                some = slice(start, start + rows)
                gram = self.kernel(points[some], self.anchors)
                coordinates = linalg.times_transpose(gram, newest)
                weighted = counts[some, None] * coordinates
                gram_sum += linalg.transpose_times(gram, weighted)
                square += linalg.transpose_times(coordinates, weighted)
                moment += rewards[some] @ coordinates
        if is_empty:
            return None
        require_finite_between_points(self.kernel, square, moment)
        # Σ φcᵀ = J Σ k_Z cᵀ
        return Mass(self.whitening.times(np.ascontiguousarray(gram_sum.T)).T, square, moment)
