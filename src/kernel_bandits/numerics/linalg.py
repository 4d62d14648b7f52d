"""Linear algebra of the posteriors, one identity per function; two matrices that grow; threads of BLAS.

Matrices are C-contiguous and sized exactly, because SciPy's BLAS wrappers copy anything else. A C-contiguous matrix is
passed to Fortran routines as its transpose, without a copy. All products that BLAS may run on several threads go
through SciPy: NumPy has its own BLAS, and the threads of the two would wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from ctypes import CDLL
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.values import copied

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
ZERO = np.zeros(())


def appended_to(vector: FloatArray, value: float) -> FloatArray:
    """Return a vector with one more entry, in a fifth of the time of ``np.append``."""
    longer = np.empty(len(vector) + 1)
    longer[:-1], longer[-1] = vector, value
    return longer


def safe_sqrt(variance: FloatArray) -> FloatArray:
    """Return √max(v, 0): the one place that guards against variances made negative by rounding."""
    return np.sqrt(np.maximum(variance, ZERO))


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
        return blas.dgemm(1.0, upper.T, rows.T).T
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
    """Return the largest eigenvalue of a positive semi-definite matrix, at least 0; that of an empty one is 0."""
    return float(np.linalg.eigvalsh(symmetric).max(initial=0.0))


# Matrices that gain a row and a column now and then, as values: what is new waits beside the matrix in a narrow block
# of columns and joins it once there are so many, so that the matrix is copied once for tens of further rows. With a
# sixteenth of its size products cost about as much as the copies that they save.
FEWEST_WAITING, WAITING_SHARE = 16, 16


class Symmetric:
    """S = [[M, 0], [0, c·I]] + Σ ± vvᵀ: a matrix M as it was, coordinates that it did not have, and terms that wait.

    While nothing waits, a term enters M at once: one pass over M, in a new array.

    Attributes:
        size: n.
    """

    __slots__ = ("_corner", "_matrix", "_signs", "_terms", "size")

    def __init__(self, matrix: FloatArray, corner: float) -> None:
        self._matrix, self._corner = matrix, corner
        self.size: int = len(matrix)
        # the vectors v, shape (k, r) with k ≤ n and zeros behind, and their signs (r,)
        self._terms, self._signs = np.empty((0, 0)), np.empty(0)

    @property
    def matrix(self) -> FloatArray:
        """S itself, shape (n, n); a fresh array where something waits. Not to be changed."""
        return self.settled()._matrix

    @property
    def trace(self) -> float:
        """The trace of S."""
        known = float(np.trace(self._matrix)) + self._corner * (self.size - len(self._matrix))
        return known + float(np.square(self._terms).sum(axis=0) @ self._signs)

    def bordered(self) -> Self:
        """Return [[S, 0], [0, c]]."""
        after = copied(self)
        after.size += 1
        return after

    def plus(self, vector: FloatArray, sign: float) -> Self:
        """Return S ± vvᵀ for a sign of ±1."""
        after, terms, size = copied(self), self._terms, self.size
        reach, count = terms.shape
        if not count and len(self._matrix) == size and sign < 0.0:
            after._matrix = minus_outer(self._matrix, vector)
            return after
        after._terms, after._signs = np.zeros((size, count + 1)), np.append(self._signs, sign)
        after._terms[:reach, :count], after._terms[:, count] = terms, vector
        return after if count < FEWEST_WAITING + size // WAITING_SHARE else after.settled()

    def settled(self) -> Self:
        """Return the same with nothing that waits."""
        size, known, terms = self.size, len(self._matrix), self._terms
        if known == size and not len(self._signs):
            return self
        matrix = np.zeros((size, size))
        matrix[:known, :known] = self._matrix
        matrix.flat[known * (size + 1) :: size + 1] = self._corner
        for sign in (-1.0, 1.0):
            rows = np.zeros((int((self._signs == sign).sum()), size))
            rows[:, : len(terms)] = terms[:, self._signs == sign].T
            add_gram(matrix, rows, sign)
        return type(self)(matrix, self._corner)

    def times(self, rows: FloatArray) -> FloatArray:
        """Return rows·S."""
        known, terms = len(self._matrix), self._terms
        if known == self.size:
            product = times(rows, self._matrix)
        else:
            product = self._corner * rows
            product[:, :known] = times(rows[:, :known].copy(), self._matrix)
        if len(self._signs):
            reach = len(terms)
            inner = times(np.ascontiguousarray(rows[:, :reach]), terms)
            inner *= self._signs
            product[:, :reach] += times_transpose(inner, terms)
        return product

    def times_vector(self, vector: FloatArray) -> FloatArray:
        """Return S·v."""
        known, terms = len(self._matrix), self._terms
        if known == self.size:
            product = symmetric_times_vector(self._matrix, vector)
        else:
            product = self._corner * vector
            product[:known] = symmetric_times_vector(self._matrix, vector[:known])
        if len(self._signs):
            reach = len(terms)
            inner = transpose_times_vector(terms, vector[:reach])
            product[:reach] += times_vector(terms, self._signs * inner)
        return product

    def quadratic_forms(self, rows: FloatArray) -> FloatArray:
        """Return vᵀSv for each row v."""
        known, terms = len(self._matrix), self._terms
        if known == self.size:
            forms = quadratic_forms(rows, self._matrix)
        else:
            behind = rows[:, known:]
            forms = quadratic_forms(rows[:, :known].copy(), self._matrix)
            forms += self._corner * np.vecdot(behind, behind)
        if len(self._signs):
            inner = times(np.ascontiguousarray(rows[:, : len(terms)]), terms)
            forms += np.square(inner, out=inner).dot(self._signs)
        return forms


class InverseFactor:
    """J = L⁻¹ for a lower-triangular L that gains rows.

    The older rows of J are one triangle, for triangular products; the newer ones wait beside it.

    Attributes:
        size: n.
    """

    __slots__ = ("_newer", "_older", "size")

    def __init__(self, upper: FloatArray | None = None) -> None:
        # the first columns of Jᵀ, square, and the others (n, r)
        self._older = np.empty((0, 0)) if upper is None else upper
        self._newer = np.empty((0, 0))
        self.size: int = len(self._older)

    @property
    def upper(self) -> FloatArray:
        """Jᵀ, shape (n, n); a fresh array where something waits. Not to be changed."""
        return self.settled()._older

    def settled(self) -> Self:
        """Return the same with nothing that waits."""
        known, size = len(self._older), self.size
        if known == size:
            return self
        upper = np.zeros((size, size))
        upper[:known, :known], upper[:, known:] = self._older, self._newer
        return type(self)(upper)

    def with_row(self, row: FloatArray) -> Self:
        """Return J with a further row (n + 1,)."""
        after, known, size = copied(self), len(self._older), self.size
        after._newer, after.size = np.zeros((size + 1, size + 1 - known)), size + 1
        if size > known:
            after._newer[:-1, :-1] = self._newer
        after._newer[:, -1] = row
        return after if size - known < FEWEST_WAITING + size // WAITING_SHARE else after.settled()

    def last_rows(self, count: int) -> FloatArray:
        """Return the last rows of J, shape (count, n)."""
        columns = self._newer if count <= self.size - len(self._older) else self.upper
        return np.ascontiguousarray(columns[:, columns.shape[1] - count :].T)

    def times(self, rows: FloatArray) -> FloatArray:
        """Return rows·Jᵀ; may overwrite ``rows``."""
        known = len(self._older)
        if known == self.size:
            return times_upper(rows, self._older)
        product = np.empty_like(rows)
        product[:, known:] = times(rows, self._newer)
        product[:, :known] = times_upper(rows[:, :known].copy(), self._older)
        return product

    def times_transpose(self, rows: FloatArray) -> FloatArray:
        """Return rows·J; may overwrite ``rows``."""
        known = len(self._older)
        if known == self.size:
            return times_upper_transpose(rows, self._older)
        product = times_transpose(rows[:, known:].copy(), self._newer)
        product[:, :known] += times_upper_transpose(rows[:, :known].copy(), self._older)
        return product

    def transpose_times_vector(self, vector: FloatArray) -> FloatArray:
        """Return Jᵀv."""
        known = len(self._older)
        if known == self.size:
            return upper_times_vector(self._older, vector)
        product = times_vector(self._newer, vector[known:])
        product[:known] += upper_times_vector(self._older, vector[:known])
        return product


# Threads: a round with a few hundred anchors makes tens of matrix products of a few microseconds each, and distributing
# them over threads costs more than it saves, many times more where other programs run too. threadpoolctl finds every
# BLAS; without it the OpenBLAS of NumPy's and SciPy's wheels are found, and others use their own settings.

# OpenBLAS uses several threads for matrix-vector products from this many rows on, and for other products from this many
# multiplications.
SHARED_SIZE, SHARED_PRODUCT = 200, 2**18
# Multiplications (and rows of a factorisation) from which several threads beat one: about half a millisecond of work.
WORTH_SHARING = 16_000_000
WORTH_FACTORISING_TOGETHER = 500


class _OneThread:
    """A re-entrant context that limits BLAS libraries to one thread and restores their settings at the end.

    It limits all libraries, or only SciPy's: this library gives NumPy's BLAS only products that it computes in one
    thread.
    """

    def __init__(self, everywhere: bool = False) -> None:
        self._everywhere = everywhere
        self._lock, self._depth = Lock(), 0
        self._before: list[int] = []

    @cached_property
    def libraries(self) -> list[tuple[Callable[[], int], Callable[[int], None]]]:
        """The getter and setter of the thread count, for each library that had several threads at first access."""
        found = _blas_libraries()
        of_scipy = [accessors for path, accessors in found if "scipy.libs" in path]
        chosen = of_scipy if of_scipy and not self._everywhere else [accessors for _, accessors in found]
        return [(ask, set_threads) for ask, set_threads in chosen if ask() > 1]

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._before = [ask() for ask, _ in self.libraries]
                for _, set_threads in self.libraries:
                    set_threads(1)

    def __exit__(self, *reason: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                for (_, set_threads), threads in zip(self.libraries, self._before, strict=True):
                    set_threads(threads)


def _blas_libraries() -> list[tuple[str, tuple[Callable[[], int], Callable[[int], None]]]]:
    """Return where each BLAS library lies, and the getter and setter of its thread count."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        homes = [Path(str(package.__file__)).parent for package in (np, scipy)]
        folders = [folder for home in homes for folder in (home.with_name(f"{home.name}.libs"), home / ".dylibs")]
        paths = [str(path) for folder in folders for path in folder.glob("*openblas*")]
        # they are loaded already: opening one again returns the same library
        found = [(path, _accessors(CDLL(path))) for path in paths]
        return [(path, accessors) for path, accessors in found if accessors]
    return [
        (library.filepath, _accessors(library.dynlib) or (library.get_num_threads, library.set_num_threads))
        for library in ThreadpoolController().select(user_api="blas").lib_controllers
    ]


def _accessors(library: Any) -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Return OpenBLAS's own getter and setter, if their names are known: threadpoolctl's take longer than the call."""
    for prefix in ("scipy_", ""):
        for suffix in ("", "64_", "_64"):
            ask = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
            set_threads = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
            if ask is not None and set_threads is not None:
                return ask, set_threads
    return None


one_thread = _OneThread()
_NOTHING_TO_CHANGE = nullcontext()
_one_thread_everywhere = _OneThread(everywhere=True)


def threads_for(size: int, count: int = 1) -> AbstractContextManager[None]:
    """Return a context with the best number of threads for products of ``count`` rows and a matrix (size, size)."""
    product = count * size * size
    if (size < SHARED_SIZE and product <= SHARED_PRODUCT) or product >= WORTH_SHARING or not one_thread.libraries:
        return _NOTHING_TO_CHANGE
    return one_thread


def factorisation_threads(size: int) -> AbstractContextManager[None]:
    """Return a context for factorising a ``size``×``size`` matrix; LAPACK uses threads even for the smallest."""
    return one_thread if size < WORTH_FACTORISING_TOGETHER and one_thread.libraries else _NOTHING_TO_CHANGE


def in_one_thread() -> AbstractContextManager[None]:
    """Return a context with one thread in SciPy's BLAS, for many calls of a millisecond or so each.

    Threads that wait for each other between them take many times as long wherever the cores have something else to do.
    """
    return one_thread if one_thread.libraries else _NOTHING_TO_CHANGE


def single_threaded() -> AbstractContextManager[None]:
    """Return a context with one thread in every BLAS library.

    It serves runs in parallel processes, and runs that must not depend on the number of threads: with several threads a
    product sums in a different order.
    """
    # First access must be outside the context, where the libraries still have their threads.
    assert isinstance(one_thread.libraries, list)
    return _one_thread_everywhere
