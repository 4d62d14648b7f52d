"""Products with kernel values that are recomputed block by block, above all the pass over the history."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import KernelLike
from kernel_bandits.numerics.linalg import times, times_upper, transpose_times
from kernel_bandits.posteriors.history import Block

# One cross-Gram block of at most this many bytes is held at a time, and never a t×m matrix.
BLOCK_BYTES = 2 * 2**20
# Extended precision is wider than double on most machines, but not on all.
EXTENDED = np.longdouble
EXTENDED_IS_WIDER = bool(np.finfo(EXTENDED).eps < np.finfo(np.float64).eps)


class Mass(NamedTuple):
    """The past in q further coordinates c, which are the last of φ."""

    cross: FloatArray  # Σ φcᵀ, shape (m, q)
    square: FloatArray  # Σ ccᵀ, shape (q, q)
    moment: FloatArray  # Σ rc, shape (q,)


def extended_gram_times(
    cross_gram: Callable[[FloatArray], FloatArray], anchors: FloatArray, vector: FloatArray
) -> NDArray[np.longdouble]:
    """K_ZZ·v in extended precision, where ``cross_gram`` returns k(points, anchors)."""
    rows, wide = max(1, BLOCK_BYTES // (16 * len(anchors))), vector.astype(EXTENDED)
    blocks = (cross_gram(anchors[start : start + rows]) for start in range(0, len(anchors), rows))
    return np.concatenate([gram.astype(EXTENDED) @ wide for gram in blocks])


def project(
    kernel: KernelLike, blocks: Iterable[Block], anchors: FloatArray, factor: FloatArray, since: Sequence[int]
) -> Mass:
    """Return the past in the coordinates of the last q anchors.

    Φ(s_i) = J k_Z(s_i), O(t·m), kernel recomputed block by block.

    The factor is Jᵀ. ``since`` is how many observations came before each of the last q anchors; later ones count in its
    coordinate already. Where repeats are merged, every anchor must be newer than all observations.
    """
    size, further = len(anchors), len(since)
    added = np.asarray(since)
    gram_sum, square, moment = np.zeros((size, further)), np.zeros((further, further)), np.zeros(further)
    rows, first = max(1, BLOCK_BYTES // (8 * size)), 0
    for block_points, block_counts, block_rewards in blocks:
        for start in range(0, len(block_points), rows):
            points, rewards = block_points[start : start + rows], block_rewards[start : start + rows]
            counts = block_counts[start : start + rows]
            # anchors that were there before the first of these points know them all
            known = int(np.searchsorted(added, first, side="right"))
            if known == further:
                break
            gram = kernel(points, anchors)
            coordinates = times(gram, np.ascontiguousarray(factor[:, size - further + known :]))
            coordinates *= np.arange(first, first + len(points))[:, None] < added[known:]
            weighted = coordinates if (counts == 1.0).all() else counts[:, None] * coordinates
            gram_sum[:, known:] += transpose_times(gram, weighted)
            square[known:, known:] += transpose_times(coordinates, weighted)
            moment[known:] += rewards @ coordinates
            first += len(points)
    # Σ φcᵀ = J Σ k_Z cᵀ
    return Mass(times_upper(np.ascontiguousarray(gram_sum.T), factor).T, square, moment)
