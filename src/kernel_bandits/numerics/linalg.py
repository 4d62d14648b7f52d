"""Linear algebra of the posteriors, one identity per function.

Matrices are C-contiguous and sized exactly, because SciPy's BLAS wrappers copy anything else. A C-contiguous matrix is
passed to Fortran routines as its transpose, without a copy. All products that BLAS may run on several threads go
through SciPy: NumPy has its own BLAS, and the threads of the two would wait for each other.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.numerics.blas_threads import factorisation_threads

# OpenBLAS computes products of up to this many multiplications, and matrix-vector products of up to this many entries,
# in the calling thread; for these NumPy is equally fast and has less overhead.
SINGLE_THREADED_PRODUCT = 2**18
SINGLE_THREADED_MATRIX = 2**13
# Up to this many multiplications, half of them by zero, an ordinary product is faster than a triangular one.
TRIANGULAR_PRODUCT = 700_000
# A triangle is mirrored in blocks of this many rows, which fit the cache.
MIRROR_ROWS = 128
_BELOW_DIAGONAL = np.tri(MIRROR_ROWS, k=-1, dtype=bool)
# An array, since NumPy converts a Python 0.0 at every call.
_ZERO = np.zeros(())


def appended_to(vector: FloatArray, value: float) -> FloatArray:
    """Return a vector with one more entry, in a fifth of the time of ``np.append``."""
    longer = np.empty(len(vector) + 1)
    longer[:-1], longer[-1] = vector, value
    return longer


def not_negative(values: FloatArray) -> FloatArray:
    """Return max(v, 0), for values that rounding may have made negative."""
    return np.maximum(values, _ZERO)


def safe_sqrt(variance: FloatArray) -> FloatArray:
    """Return √max(v, 0): the one place that guards against variances made negative by rounding."""
    return np.sqrt(np.maximum(variance, _ZERO))


def half_inverse(root: FloatArray) -> FloatArray:
    """Return ½/√v, the derivative of √v, given √v; 0 where √v = 0."""
    return np.divide(0.5, root, out=np.zeros_like(root), where=root > 0.0)


def times_upper(rows: FloatArray, upper: FloatArray) -> FloatArray:
    """Return rows·upper for an upper-triangular matrix; may overwrite ``rows``."""
    # lengths, and not sizes and shapes, which take three times as long to look up
    product = len(rows) * len(upper) ** 2
    if product <= SINGLE_THREADED_PRODUCT:
        return rows.dot(upper)
    if len(rows) == 1:
        return blas.dtrmv(upper.T, rows[0], lower=1)[None, :]
    if product <= TRIANGULAR_PRODUCT:
        return times(rows, upper)
    # (upperᵀ·rowsᵀ)ᵀ, seen by Fortran as lower times a matrix stored by columns
    return blas.dtrmm(1.0, upper.T, rows.T, lower=1, overwrite_b=1).T


def times_upper_transpose(rows: FloatArray, upper: FloatArray) -> FloatArray:
    """Return rows·upperᵀ for an upper-triangular matrix; may overwrite ``rows``."""
    # (upper·rowsᵀ)ᵀ, seen by Fortran as lowerᵀ times a matrix stored by columns
    return blas.dtrmm(1.0, upper.T, rows.T, lower=1, trans_a=1, overwrite_b=1).T if rows.size else rows


def times(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return rows·matrix."""
    if rows.size * matrix.shape[1] <= SINGLE_THREADED_PRODUCT:
        return rows.dot(matrix)
    return blas.dgemm(1.0, matrix.T, rows.T).T


def plus_times(addend: FloatArray, rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return addend + rows·matrix in a new array."""
    return blas.dgemm(1.0, matrix.T, rows.T, beta=1.0, c=addend.T).T if rows.size else addend.copy()


def lower_solve(factor: FloatArray, rows: FloatArray) -> FloatArray:
    """Return L⁻¹·rows for a lower-triangular matrix L that is stored by columns."""
    # (rowsᵀ·L⁻ᵀ)ᵀ, with rowsᵀ as Fortran sees rows: no copy in another order
    return blas.dtrsm(1.0, factor, rows.T, side=1, lower=1, trans_a=1).T if rows.size else rows


def times_transpose(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return rows·matrixᵀ."""
    if rows.size * len(matrix) <= SINGLE_THREADED_PRODUCT:
        return rows.dot(matrix.T)
    return blas.dgemm(1.0, matrix.T, rows.T, trans_a=1).T


def transpose_times(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return leftᵀ·right."""
    if left.size * right.shape[1] <= SINGLE_THREADED_PRODUCT:
        return left.T.dot(right)
    return blas.dgemm(1.0, right.T, left.T, trans_b=1).T


def quadratic_forms(rows: FloatArray, symmetric: FloatArray) -> FloatArray:
    """Return vᵀSv for each row v; for many rows at the cost of a triangular product."""
    if rows.size * len(symmetric) <= SINGLE_THREADED_PRODUCT:
        return np.vecdot(rows.dot(symmetric), rows)
    # vᵀSv = 2·vᵀUv − Σ S_jj v_j² with the upper triangle U of S
    product = blas.dtrmm(1.0, symmetric.T, rows.T, lower=1).T
    return 2.0 * np.vecdot(product, rows) - times_vector(rows * rows, np.diagonal(symmetric).copy())


def times_vector(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Return matrix·vector."""
    if len(matrix) * len(vector) <= SINGLE_THREADED_MATRIX:
        return matrix.dot(vector)
    return blas.dgemv(1.0, matrix.T, vector, trans=1)


def transpose_times_vector(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Return matrixᵀ·vector."""
    if matrix.size <= SINGLE_THREADED_MATRIX:
        return vector.dot(matrix)
    return blas.dgemv(1.0, matrix.T, vector)


def inner(left: FloatArray, right: FloatArray) -> float:
    """Return ⟨l, r⟩ of two vectors."""
    return float(left.dot(right) if len(left) <= SINGLE_THREADED_MATRIX else blas.ddot(left, right))


def symmetric_times_vector(symmetric: FloatArray, vector: FloatArray) -> FloatArray:
    """Return symmetric·vector; for a large matrix, only one triangle is read."""
    if len(vector) ** 2 <= SINGLE_THREADED_MATRIX:
        return symmetric.dot(vector)
    return blas.dsymv(1.0, symmetric.T, vector, lower=1)


def upper_times_vector(upper: FloatArray, vector: FloatArray) -> FloatArray:
    """Return upper·vector for an upper-triangular matrix."""
    if upper.size <= SINGLE_THREADED_MATRIX:
        return upper.dot(vector)
    return blas.dtrmv(upper.T, vector, lower=1, trans=1)


def minus_outer(symmetric: FloatArray, vector: FloatArray) -> FloatArray:
    """Return S − v vᵀ in a new array; unscaled products commute, so it is exactly symmetric if S is."""
    if not len(vector):
        return symmetric
    # Not dger: on some processors it rounds the two triangles differently for some lengths.
    column = vector[:, None]
    return blas.dgemm(-1.0, column, column, beta=1.0, c=symmetric.T, trans_b=1).T


def add_gram(symmetric: FloatArray, rows: FloatArray, sign: float) -> None:
    """Compute S ← S ± Σ v vᵀ over rows v in place; one triangle is computed and mirrored."""
    if rows.size:
        if rows.flags.f_contiguous and not rows.flags.c_contiguous:
            # stored by columns, as Fortran returns them: no copy
            blas.dsyrk(sign, rows, beta=1.0, c=symmetric.T, trans=1, lower=1, overwrite_c=1)
        else:
            blas.dsyrk(sign, np.ascontiguousarray(rows).T, beta=1.0, c=symmetric.T, lower=1, overwrite_c=1)
        mirror_upper(symmetric)


def add_products(upper: FloatArray, rows: FloatArray, factor: float, keep: float = 1.0) -> None:
    """Compute S ← keep·S + factor·rows·rowsᵀ in place, in the upper triangle only."""
    if rows.size:
        blas.dsyrk(factor, rows.T, beta=keep, c=upper.T, trans=1, lower=1, overwrite_c=1)
    else:
        upper *= keep


def add_symmetric_outer(upper: FloatArray, left: FloatArray, right: FloatArray, factor: float) -> None:
    """Compute S ← S + factor·(l rᵀ + r lᵀ) in place, in the upper triangle only."""
    blas.dsyr2(factor, left, right, lower=1, a=upper.T, overwrite_a=1)


def mirror_upper(matrix: FloatArray) -> None:
    """Copy the upper triangle, which is Fortran's lower one, to the lower triangle, in place."""
    size = len(matrix)
    for start in range(0, size, MIRROR_ROWS):
        stop = min(start + MIRROR_ROWS, size)
        matrix[stop:, start:stop] = matrix[start:stop, stop:].T
        corner = matrix[start:stop, start:stop]
        np.copyto(corner, corner.T, where=_BELOW_DIAGONAL[: stop - start, : stop - start])


def independent_rows(
    gram: FloatArray, tolerance: float, mean_residual: float = 0.0, limit: int | None = None
) -> tuple[NDArray[np.intp], FloatArray, FloatArray]:
    """Select independent rows of a Gram matrix; return their indices, and Jᵀ = L⁻ᵀ and L with LLᵀ their block.

    This is pivoted Cholesky of the Gram matrix scaled to unit diagonal: each selected row is the one that the previous
    ones explain least. It stops when the largest residual is at most the tolerance, when the mean residual is at most
    ``mean_residual`` unless that is 0, or at ``limit`` rows.
    """
    scale = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    alive = np.flatnonzero(scale > 0)
    if not len(alive):
        return alive, np.empty((0, 0)), np.empty((0, 0))
    scale = scale[alive]
    correlation = gram[np.ix_(alive, alive)] / np.outer(scale, scale)
    with factorisation_threads(len(correlation)):
        factor, pivots, rank, _ = lapack.dpstrf(correlation, lower=1, tol=tolerance)
        if mean_residual:
            # the sum of residuals after k columns is n − Σ_{j ≤ k} ‖L_j‖²
            lower = np.tril(factor[:, :rank])
            unexplained = len(alive) - np.cumsum(np.einsum("ij,ij->j", lower, lower))
            rank = min(rank, 1 + int(np.count_nonzero(unexplained > mean_residual * len(alive))))
        if limit is not None:
            rank = min(rank, limit)
        pivots = pivots[:rank] - 1
        factor = np.tril(factor[:rank, :rank])
        inverse, _ = lapack.dtrtri(factor, lower=1)
    # K = D·C·D with the correlation C = FFᵀ, so L = DF and J = F⁻¹D⁻¹
    scale = scale[pivots]
    return alive[pivots], np.ascontiguousarray((np.tril(inverse) / scale).T), scale[:, None] * factor


def factorise(symmetric: FloatArray) -> float:
    """Put Lᵀ with LLᵀ = S into the upper triangle of a positive-definite S, in place; return log det S."""
    with factorisation_threads(len(symmetric)):
        _, info = lapack.dpotrf(symmetric.T, lower=1, overwrite_a=1, clean=0)
    if info != 0:
        raise KernelBanditsError("A matrix that must be positive definite is not; check the kernel.")
    return 2.0 * float(np.log(np.diagonal(symmetric)).sum())


def inverse_and_log_determinant(symmetric: FloatArray) -> tuple[FloatArray, float]:
    """Return the inverse and log-determinant of a positive-definite matrix, through its Cholesky factor."""
    if not symmetric.size:
        return np.empty((0, 0)), 0.0
    # the factor and the inverse are computed in one copy
    inverse = symmetric.copy()
    log_determinant = factorise(inverse)
    with factorisation_threads(len(symmetric)):
        lapack.dpotri(inverse.T, lower=1, overwrite_c=1)
    mirror_upper(inverse)
    return inverse, log_determinant


def correlate(normals: FloatArray, covariance: FloatArray) -> FloatArray:
    """Transform rows of independent standard normals (n, A) to the given covariance, which may be singular."""
    with factorisation_threads(len(covariance)):
        factor, info = lapack.dpotrf(covariance, lower=1, clean=1)
    if info:
        # S = UΛUᵀ; rounding may have left eigenvalues below zero
        values, vectors = np.linalg.eigh(covariance)
        factor = vectors * safe_sqrt(values)
    return times_transpose(normals, np.ascontiguousarray(factor))


def largest_eigenvalue(symmetric: FloatArray) -> float:
    """Return the largest eigenvalue of a positive semi-definite matrix, at least 0."""
    return max(float(np.linalg.eigvalsh(symmetric)[-1]), 0.0)
