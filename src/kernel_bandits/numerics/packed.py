"""Symmetric matrices of which one triangle is stored, in LAPACK's rectangular full packed format.

The n(n + 1)/2 entries stand in one row. What is computed entry by entry takes half the time and memory, and LAPACK
factorises and inverts them as fast as a full matrix (Gustavson et al. 2010).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.numerics.linalg import factorisation_threads, mirror_upper


def pack(symmetric: FloatArray) -> FloatArray:
    """Return a matrix in packed form; only its upper triangle is read."""
    # the upper triangle is the lower one of the transpose that Fortran sees
    packed: FloatArray = lapack.dtrttf(symmetric.T, uplo="L")[0]
    return packed


def unpack(packed: FloatArray, size: int) -> FloatArray:
    """Return the full matrix."""
    full: FloatArray = lapack.dtfttr(size, packed, uplo="L")[0].T
    mirror_upper(full)
    return full


@lru_cache(maxsize=256)
def diagonal(size: int) -> NDArray[np.intp]:
    """Return where the diagonal of a packed matrix of this many rows stands, shape (n,); not to be changed."""
    rows = pack(np.diag(np.arange(1.0, size + 1.0)))
    positions = np.flatnonzero(rows)
    positions = positions[np.argsort(rows[positions])]
    positions.flags.writeable = False
    return positions


def inverse_and_log_determinant(packed: FloatArray, size: int) -> tuple[FloatArray, float]:
    """Return the full inverse and the log-determinant of a positive-definite packed matrix, which is overwritten."""
    with factorisation_threads(size):
        factor, info = lapack.dpftrf(size, packed, uplo="L", overwrite_a=1)
        if info:
            raise KernelBanditsError("A matrix that must be positive definite is not; check the kernel.")
        log_determinant = 2.0 * float(np.log(factor[diagonal(size)]).sum())
        inverse, _ = lapack.dpftri(size, factor, uplo="L", overwrite_a=1)
    return unpack(inverse, size), log_determinant


def log_determinant_and_solution(packed: FloatArray, sides: FloatArray) -> tuple[float, FloatArray]:
    """Return log det S and S⁻¹b for the rows b (k, n) of a positive-definite packed matrix, which is overwritten."""
    size = sides.shape[1]
    with factorisation_threads(size):
        factor, info = lapack.dpftrf(size, packed, uplo="L", overwrite_a=1)
        if info:
            raise KernelBanditsError("A matrix that must be positive definite is not; check the kernel.")
        solution, _ = lapack.dpftrs(size, factor, sides.T, uplo="L")
    return 2.0 * float(np.log(factor[diagonal(size)]).sum()), solution.T
