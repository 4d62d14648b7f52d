"""Many contexts with the same actions on offer: what the actions have in common is computed once for all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.numerics import linalg
from kernel_bandits.posteriors.anchored import AnchoredRegression
from kernel_bandits.posteriors.base import Evaluation
from kernel_bandits.posteriors.basis import AnchorBasis

# Multiplications that have to be saved, as a share of all: products of few rows are slower than they look.
LEAST_SAVED = 0.6


class Kinship(NamedTuple):
    """Which anchors are of the kind of one of the actions: of its arm, where the others are equally far from all.

    Attributes:
        common: the kernel of actions and anchors, shape (m,), but for an anchor and the action of its kind.
        anchors: those of the kind of an action, by action.
        extra: what the kernel of an anchor and its action is above ``common``, shape of ``anchors``.
        starts: where in these the anchors of each action begin, and the end, A + 1 of them.
    """

    common: FloatArray
    anchors: NDArray[np.intp]
    extra: FloatArray
    starts: list[int]

    @classmethod
    def of(cls, beside: FloatArray) -> Kinship | None:
        """Return the kinship in a kernel (A, m) of actions and anchors; None where an anchor is of several kinds."""
        common = beside.min(axis=0)
        extra = beside - common
        own = extra.argmax(axis=0)
        largest = extra.max(axis=0)
        (anchors,) = largest.nonzero()
        if np.count_nonzero(extra) > len(anchors):
            return None
        anchors = anchors[np.argsort(own[anchors], kind="stable")]
        starts = np.searchsorted(own[anchors], np.arange(len(beside) + 1)).tolist()
        return cls(common, anchors, largest[anchors], starts)


class Forms(NamedTuple):
    """Of n contexts with each of A actions, context by context: φᵀw, ‖φ‖² and φᵀPφ, shape (n·A,)."""

    mean: FloatArray
    norm: FloatArray
    explained: FloatArray


def _is_worth_it(contexts: int, actions: int, anchors: int) -> bool:
    """Return whether :func:`forms` multiplies so much less than Φ = KJᵀ and ΦP that it is faster."""
    # in units of m²: a triangular product and a full one of every row, against those of every context and of JᵀP
    return 3.5 * contexts + 0.5 * anchors < (1.0 - LEAST_SAVED) * 1.5 * contexts * actions


def evaluate(model: AnchoredRegression, points: FloatArray, split: int) -> Evaluation | None:
    """Evaluate n rounds (n, A, d) that offer the same actions, n·A rows; None where nothing is gained by that."""
    basis, facts, pending, (contexts, actions, columns) = model.basis, model.facts, model.pending, points.shape
    factors = basis.factors_of_rounds(points, split) if _is_worth_it(contexts, actions, len(basis)) else None
    kin = None if factors is None else Kinship.of(factors[1])
    if factors is None or kin is None:
        return None
    mean, norm, explained = forms(basis, factors[0], kin, pending.ahead.covariance, pending.settled.weights)
    # std² = residual + λ·φᵀPφ with residual = k(s, s) − ‖φ‖²
    residual = linalg.not_negative(basis.kernel.diag(points.reshape(-1, columns)) - norm)
    return Evaluation(facts.round_index, mean, linalg.safe_sqrt(residual + facts.regularization * explained))


def forms(basis: AnchorBasis, near: FloatArray, kin: Kinship, covariance: FloatArray, weights: FloatArray) -> Forms:
    """Return what predictions are made of, for P and w in the coordinates of a basis.

    Args:
        basis: of the coordinates φ = J k_Z.
        near: the kernel of contexts and anchors, shape (n, m); that of joint points is its product with the actions'.
        kin: of actions and anchors.
        covariance: P, shape (m, m).
        weights: w, shape (m,).
    """
    size, actions = len(weights), len(kin.starts) - 1
    # k_Z(x, a) = near∘common + near∘extra at the anchors of a alone, so that J and JP meet m columns once, not A times
    shared = basis.projected(near * kin.common)
    both = np.hstack([shared, linalg.times(shared, covariance)])
    # JᵀP as (PJ)ᵀ, since P is symmetric
    solved_factor = linalg.times_upper_transpose(covariance.copy(), basis.factor).T
    wide = np.hstack([basis.factor[kin.anchors], solved_factor[kin.anchors]])
    rows = near[:, kin.anchors] * kin.extra
    slopes, level = basis.weights(weights)[kin.anchors], linalg.times_vector(shared, weights)
    found = np.empty((3, len(near), actions))
    for action, (start, stop) in enumerate(zip(kin.starts, kin.starts[1:], strict=False)):
        own = np.ascontiguousarray(rows[:, start:stop])
        pair = linalg.plus_times(both, own, wide[start:stop])
        features, solved = pair[:, :size], pair[:, size:]
        found[0, :, action] = level + own.dot(slopes[start:stop])
        found[1, :, action] = np.vecdot(features, features)
        found[2, :, action] = np.vecdot(features, solved)
    return Forms(*found.reshape(3, -1))
