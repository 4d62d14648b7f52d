"""Pruning of large action sets: which actions may have the largest upper bound, at O(m) an action."""

import math

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import KernelLike
from kernel_bandits.numerics.linalg import safe_sqrt

# It pays from this many actions, anchors and kernel entries between them on.
MINIMUM_ACTIONS, MINIMUM_ANCHORS, MINIMUM_ENTRIES = 500, 80, 200_000
# One action per this many actions and anchors is evaluated exactly first, and this many likely winners.
ACTIONS_PER_PIVOT, ANCHORS_PER_PIVOT = 64, 16
LIKELY_WINNERS = 16
# Unless a third is spared all are evaluated together.
WORTH = 2 / 3


def is_worth_a_look(actions: int, anchors: int) -> bool:
    """Return whether bounds for these actions are cheap beside their standard deviations."""
    return actions >= MINIMUM_ACTIONS and anchors >= MINIMUM_ANCHORS and actions * anchors >= MINIMUM_ENTRIES


def pivots(actions: int, anchors: int) -> NDArray[np.intp]:
    """Return the actions to evaluate first, evenly spread."""
    number = 1 + min(anchors // ANCHORS_PER_PIVOT, actions // ACTIONS_PER_PIVOT)
    return np.arange(0, actions, -(-actions // number))


def std_bounds(
    kernel: KernelLike, points: FloatArray, prior: FloatArray, known: NDArray[np.intp], stds: FloatArray
) -> FloatArray:
    """Upper bounds of the posterior std at points (A, d), prior variances (A,), from its values at some of them, p.

    With a = k(s, p)/k(p, p) the difference f(s) − a·f(p) has prior variance k(s, s) − a·k(s, p), and observations
    only lower the variance of any combination: std(s) ≤ |a|·std(p) + √(k(s, s) − a·k(s, p)).
    """
    cross = kernel(points[known], points)
    shares = cross / np.maximum(prior[known], np.finfo(float).tiny)[:, None]
    bounds = np.abs(shares) * stds[:, None] + safe_sqrt(prior - shares * cross)
    return np.minimum(bounds.min(axis=0), safe_sqrt(prior))


def slack(bounds: FloatArray, bonus: float, prior: FloatArray, coefficients: FloatArray, anchors: FloatArray) -> float:
    """Return by how much rounding may lower a bound: J amplifies it in the mean, and a root near zero in the std.

    Args:
        bounds: upper bounds of the actions, shape (A,).
        bonus: how many standard deviations they count.
        prior: k(s, s) of the actions, shape (A,).
        coefficients: Jᵀw, shape (m,).
        anchors: k(z, z), shape (m,).
    """
    scale = math.sqrt(float(prior.max()))
    rounding = np.finfo(float).eps * len(anchors) * float(np.abs(coefficients).sum())
    of_mean = 4.0 * rounding * scale * math.sqrt(float(anchors.max()))
    return of_mean + (1e-12 * float(np.abs(bounds).max()) + 1e-6 * bonus * scale)


def likely_winners(bounds: FloatArray) -> NDArray[np.intp]:
    """Return the actions with the largest bounds."""
    return np.argpartition(bounds, -LIKELY_WINNERS)[-LIKELY_WINNERS:]


def survivors(bounds: FloatArray, best: float) -> NDArray[np.intp] | None:
    """Return the actions whose bound is not below the best exact value, or None where they are too many."""
    # not below, so that a bound that is not a number stays in and is noticed
    chosen = np.flatnonzero(~(bounds < best))
    return chosen if len(chosen) <= WORTH * len(bounds) else None
