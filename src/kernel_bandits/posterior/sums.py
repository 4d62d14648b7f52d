"""A log as sums over its parts: Σφφᵀ and Σrφ in the coordinates of fixed anchors, computed wherever the parts are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import UnavailableError
from kernel_bandits.numerics import linalg
from kernel_bandits.posterior.basis import AnchorBasis
from kernel_bandits.posterior.history import History
from kernel_bandits.posterior.nystrom import ANCHORS_PER_DIMENSION, UNEXPLAINED_SHARE, NystromPosterior, with_enough
from kernel_bandits.values import evolve

# Rows that enter the sums by one matrix product.
ROWS_AT_ONCE = 2048
# The rows of a part that its anchors explain least, to choose further anchors from.
MISSED_ROWS = 64


@dataclass(frozen=True)
class Sums:
    """What a part of a log adds to the posterior.

    Attributes:
        second_moment: Σφφᵀ, shape (m, m).
        moment: Σrφ, shape (m,).
        residual_trace: Σ k(s, s) − ‖φ‖².
        count: the number of rows.
        missed: the points that the anchors explain least, shape (k, d), least first.
        left: what is left of each of them, shape (k,).
    """

    second_moment: FloatArray
    moment: FloatArray
    residual_trace: float
    count: int
    missed: FloatArray
    left: FloatArray

    def __add__(self, other: Sums) -> Sums:
        left = np.concatenate([self.left, other.left])
        order = np.argsort(-left, kind="stable")[: 16 * MISSED_ROWS]
        return Sums(
            self.second_moment + other.second_moment,
            self.moment + other.moment,
            self.residual_trace + other.residual_trace,
            self.count + other.count,
            np.concatenate([self.missed, other.missed])[order],
            left[order],
        )


def sums_of(basis: AnchorBasis, points: FloatArray, rewards: FloatArray) -> Sums:
    """Return the sums of points (n, d) and rewards (n,), by matrix products of bounded size."""
    starts, ones = range(0, len(points), ROWS_AT_ONCE), np.ones(ROWS_AT_ONCE)
    blocks = ((points[i : i + ROWS_AT_ONCE], rewards[i : i + ROWS_AT_ONCE]) for i in starts)
    with np.errstate(invalid="ignore", over="ignore"):
        second_moment, moment, left, _ = basis.sums((some, ones[: len(some)], own) for some, own in blocks)
    order = np.argsort(-left, kind="stable")[:MISSED_ROWS]
    return Sums(second_moment, moment, float(left.sum()), len(points), points[order], left[order])


def sample_basis(posterior: NystromPosterior, candidates: FloatArray, rows: int) -> AnchorBasis:
    """Choose anchors for a log from candidates (n, d) that stand for its rows, as ``NystromPosterior.of_history`` does.

    They are the fewest that leave little of the candidates, at the effective dimension that the whole log would have if
    all of it were like them.
    """
    # each stands for as many rows
    weights = np.full(len(candidates), rows / len(candidates))
    seen = History().extended(candidates, np.zeros(len(candidates)), weights)
    return with_enough(posterior, candidates, rows, seen, candidates, _level(posterior))[0].basis


def is_enough(posterior: NystromPosterior, sums: Sums) -> bool:
    """Return whether anchors leave as little of a log as ``of_history`` asks for, or are as many as it takes."""
    level = _level(posterior)
    dimension = _dimension(sums.second_moment, level)
    # twice as much as the sample promised is still the sample's word
    allowed = 2.0 * UNEXPLAINED_SHARE * level * dimension
    return sums.residual_trace <= allowed or _are_many(posterior, len(sums.moment), dimension)


def _level(posterior: NystromPosterior) -> float:
    return posterior.dictionary.leverage_regularization or posterior.regularization


def _dimension(second_moment: FloatArray, level: float) -> float:
    """Return trace K(K + μI)⁻¹ = m − μ·trace (μI + Σφφᵀ)⁻¹ of the projected Gram matrix."""
    inverse, _ = linalg.inverse_and_log_determinant(second_moment + level * np.eye(len(second_moment)))
    return len(second_moment) - level * float(np.trace(inverse))


def _are_many(posterior: NystromPosterior, size: int, dimension: float) -> bool:
    return size >= math.ceil(ANCHORS_PER_DIMENSION * dimension) or posterior.dictionary.is_full(size)


def of_sums(posterior: NystromPosterior, basis: AnchorBasis, sums: Sums) -> NystromPosterior:
    """Return a posterior that has learned nothing with the sums of a log in it."""
    if posterior.round_index or posterior.awaited:
        raise UnavailableError("learn: the policy has learned or asked already; start from a fresh one.")
    level = _level(posterior)
    inverse, _ = linalg.inverse_and_log_determinant(sums.second_moment + level * np.eye(len(basis)))
    regression = posterior.regression.loaded(sums.second_moment, sums.moment)
    return evolve(
        posterior,
        # its anchors were chosen by points that came after rewards: neither projected nor known round by round
        approximation="a sum over a log",
        basis=basis,
        regression=regression,
        with_pending=regression,
        residual_trace=sums.residual_trace,
        round_index=sums.count,
        dimension=basis.anchors.shape[1],
        dictionary=posterior.dictionary.adopting(inverse),
    )
