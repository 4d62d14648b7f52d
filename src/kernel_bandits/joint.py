"""The joint points the kernel sees: a context beside each of the actions offered with it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.arrays import FloatArray, as_points, as_vector, is_finite, require_finite


def pair(
    context: ArrayLike,
    actions: ArrayLike,
    context_dimension: int | None = None,
    action_dimension: int | None = None,
) -> FloatArray:
    """Points s = (x, a), one row per action.

    Args:
        context: x, shape (d_x,); empty for a problem without contexts.
        actions: one action per row, shape (A, d_a).
        context_dimension: d_x if it is known already; another length is an error.
        action_dimension: d_a if it is known already.

    Returns:
        A fresh array of shape (A, d_x + d_a), finite in every entry.
    """
    return join(as_vector("context", context, context_dimension), as_points("actions", actions, action_dimension))


def join(context: FloatArray, actions: FloatArray) -> FloatArray:
    """:func:`pair` for arrays whose shapes are known to be right; the numbers are checked here."""
    split = len(context)
    points = np.empty((len(actions), split + actions.shape[1]))
    points[:, :split] = context
    points[:, split:] = actions
    if not is_finite(points):
        require_finite("context", context)
        require_finite("actions", actions)
    return points
