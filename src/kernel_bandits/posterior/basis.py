"""What turns points into coordinates: φ(s), and what they leave of k(s, s).

Everything beyond needs no more of a basis than its coordinates, the gradient through them and its size: a regression on
φ, the radii and the dictionary rules stay as they are for any other basis.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import blas

from kernel_bandits import kernels
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, require_gram
from kernel_bandits.kernels.base import Sections, with_defaults
from kernel_bandits.numerics import linalg
from kernel_bandits.posterior.history import Outside
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


class InverseFactor:
    """J = L⁻¹ for a lower-triangular L that gains rows: products with J, and solutions with L.

    The older rows of J are one triangle, for triangular products; the newer ones follow in a narrow block and join it
    now and then. A row of J is solved for with L and not computed from the rows before it: what rounding leaves of
    JL − I then grows with the condition of L, and not with its square from row to row.

    Attributes:
        size: n.
    """

    __slots__ = ("_lower", "_newer", "_older", "size")

    def __init__(self, upper: FloatArray | None = None, lower: FloatArray | None = None) -> None:
        # Jᵀ; L is packed, row by row
        self._older = np.empty((0, 0)) if upper is None else upper
        self.size: int = len(self._older)
        packed = [] if lower is None else [lower[row, : row + 1] for row in range(self.size)]
        self._lower = Rows.of(np.concatenate([np.empty(0), *packed]), max(1, self.size * (self.size + 1) // 2))
        self._newer = Rows(linalg.FEWEST_WAITING)

    @property
    def upper(self) -> FloatArray:
        """Jᵀ, shape (n, n); a fresh array where something waits. Not to be changed."""
        return self.settled()._older

    def settled(self) -> Self:
        """Return the same with nothing that waits."""
        if not self._newer.size:
            return self
        known = len(self._older)
        upper = np.zeros((self.size, self.size))
        upper[:known, :known] = self._older
        upper[:, known:] = self._newer.tail[:, : self.size].T
        return evolve(self, _older=upper, _newer=Rows(linalg.FEWEST_WAITING))

    def last_rows(self, count: int) -> FloatArray:
        """Return the last rows of J, shape (count, n)."""
        if count <= self._newer.size:
            return self._newer.tail[self._newer.size - count :, : self.size]
        return self.upper[:, self.size - count :].T

    def times(self, rows: FloatArray) -> FloatArray:
        """Return rows·Jᵀ; may overwrite ``rows``."""
        if not self._newer.size:
            return linalg.times_upper(rows, self._older)
        known, newer = len(self._older), self._newer.tail
        product = np.empty_like(rows)
        product[:, known:] = linalg.times_transpose(linalg.padded(rows, newer.shape[1]), newer)
        product[:, :known] = linalg.times_upper(rows[:, :known].copy(), self._older)
        return product

    def times_transpose(self, rows: FloatArray) -> FloatArray:
        """Return rows·J; may overwrite ``rows``."""
        if not self._newer.size:
            return linalg.times_upper_transpose(rows, self._older)
        known, newer = len(self._older), self._newer.tail
        product = linalg.times(rows[:, known:].copy(), newer)[:, : self.size]
        product[:, :known] += linalg.times_upper_transpose(rows[:, :known].copy(), self._older)
        return product

    def transpose_times_vector(self, vector: FloatArray) -> FloatArray:
        """Return Jᵀv."""
        if not self._newer.size:
            return linalg.upper_times_vector(self._older, vector)
        known, newer = len(self._older), self._newer.tail
        product = linalg.transpose_times_vector(newer, vector[known:])[: self.size]
        product[:known] += linalg.upper_times_vector(self._older, vector[:known])
        return product

    def solve(self, column: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return φ = L⁻¹k and r = −L⁻ᵀφ."""
        # the rows of L are the columns of the upper triangle that Fortran sees
        features = blas.dtpsv(self.size, self._lower.tail, column, trans=1)
        return features, blas.dtpsv(self.size, self._lower.tail, -features)

    def bordered(self, features: FloatArray, coefficients: FloatArray, pivot: float) -> Self:
        """Return J for [[L, 0], [φᵀ, l]], given r = −L⁻ᵀφ: its further row is [rᵀ, 1]/l."""
        size, newer, lower = self.size, self._newer, self._lower
        if lower.size + size + 1 > lower.length:
            lower = Rows.of(lower.array, int(ROOM * (lower.size + size + 1)))
        if not newer.size:
            length = linalg.waiting_rows(size)
            newer = Rows(length, width=size + length)
        after = evolve(
            self,
            size=size + 1,
            _newer=newer.appended(linalg.appended_to(coefficients / pivot, 1.0 / pivot)),
            _lower=lower.extended(linalg.appended_to(features, pivot)),
        )
        return after.settled() if after._newer.size == newer.length else after


class AnchorBasis:
    """φ(s) = J k_Z(s) with J = L⁻¹ and LLᵀ = K_ZZ: orthonormal coordinates in the span of the anchors.

    Never changed in place: whoever keeps one keeps the coordinates of its moment. The anchors Z have shape (m, d).
    """

    __slots__ = ("_owns_gram", "anchors", "kernel", "regularization", "whitening")
    anchors: FloatArray
    kernel: KernelLike
    regularization: float
    whitening: InverseFactor

    def __init__(
        self,
        kernel: KernelLike,
        regularization: float,
        anchors: FloatArray | None = None,
        whitening: InverseFactor | None = None,
    ) -> None:
        self.kernel, self.regularization = kernel, regularization
        self.anchors = np.empty((0, 0)) if anchors is None else anchors
        self.whitening = InverseFactor() if whitening is None else whitening
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
        return cls(kernel, regularization, candidates[kept], InverseFactor(upper, lower))

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def factor(self) -> FloatArray:
        """Jᵀ, shape (m, m): products with it from the right run along rows of memory."""
        return self.whitening.upper

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
        return Coordinates(*self.coordinates(self.gram(points), prior), prior)

    def coordinates(self, gram: FloatArray, prior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return φ and the residual of points from their :meth:`gram`, which is overwritten, and k(s, s)."""
        # φ = J k_Z(s), one row each
        features = self.whitening.times(gram)
        # residual = k(s, s) − ‖φ‖², the squared distance of k(s, ·) to the span of the anchors
        return features, np.maximum(prior - np.vecdot(features, features), linalg.ZERO)

    def weights(self, vector: FloatArray) -> FloatArray:
        """Jᵀv: the function vᵀφ is Σ_j [Jᵀv]_j·k(·, z_j)."""
        return self.whitening.transpose_times_vector(vector)

    def pulled_back(self, by_features: FloatArray) -> FloatArray:
        """Return the slopes by k_Z(s) of what has these slopes (A, m) by φ(s), which are overwritten."""
        # dφ = J dk_Z
        return self.whitening.times_transpose(by_features)

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
            features, coefficients = self.whitening.solve(column[:-1])
            square = prior - float(features.dot(features))
            require_finite_between_points(self.kernel, square)
        if not square > least:
            return None
        return evolve(grown, whitening=self.whitening.bordered(features, coefficients, math.sqrt(square))), square

    def settled(self) -> Self:
        """Return the same basis, whose coordinates are computed fastest where no anchor comes any more."""
        return evolve(self, whitening=self.whitening.settled())

    def project(self, blocks: Iterable[Outside], since: Sequence[int]) -> Mass | None:
        """Return the past in the coordinates of the last q anchors; None if there are no blocks.

        Φ(s_i) = J k_Z(s_i), O(t·m), kernel recomputed block by block.

        ``since`` is how many observations came before each of the last q anchors; later ones count in its coordinate
        already.
        """
        size, further = len(self.anchors), len(since)
        added, newest = np.asarray(since), self.whitening.last_rows(further)
        gram_sum, square, moment = np.zeros((size, further)), np.zeros((further, further)), np.zeros(further)
        rows, is_empty = max(1, BLOCK_BYTES // (8 * size)), True
        for block in blocks:
            for start in range(0, len(block.points), rows):
                some = slice(start, start + rows)
                points, counts, order = block.points[some], block.counts[some], block.order[some]
                # anchors that were there before the first of these points know them all
                known = int(np.searchsorted(added, order[0], side="right"))
                if known == further:
                    break
                is_empty = False
                gram = self.kernel(points, self.anchors)
                coordinates = linalg.times_transpose(gram, np.ascontiguousarray(newest[known:]))
                if order[-1] >= added[known]:
                    coordinates *= order[:, None] < added[known:]
                weighted = counts[:, None] * coordinates
                gram_sum[:, known:] += linalg.transpose_times(gram, weighted)
                square[known:, known:] += linalg.transpose_times(coordinates, weighted)
                moment[known:] += block.rewards[some] @ coordinates
        if is_empty:
            return None
        require_finite_between_points(self.kernel, square, moment)
        # Σ φcᵀ = J Σ k_Z cᵀ
        return Mass(self.whitening.times(np.ascontiguousarray(gram_sum.T)).T, square, moment)
