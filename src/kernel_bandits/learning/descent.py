"""Descent to a local minimum of −log evidence within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize

from kernel_bandits.arrays import FloatArray

# Models are told apart by whole nats.
TOLERANCE = 1e-3


def descend(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    starts: Sequence[FloatArray],
    low: FloatArray,
    high: FloatArray,
    iterations: int,
    observations: int,
    tolerance: float = TOLERANCE,
) -> tuple[FloatArray, float]:
    """Return a local minimum, by L-BFGS-B from the best of some starts, and its value.

    Args:
        objective: returns a value and its gradient.
        starts: are moved into the bounds.
        low: lower bounds.
        high: upper bounds.
        iterations: the most steps.
        observations: how many there are; the objective is about a nat for each.
        tolerance: a step that gains fewer nats is the last.
    """
    clipped = [np.clip(start, low, high) for start in starts]
    start = min(clipped, key=lambda each: objective(each)[0]) if len(clipped) > 1 else clipped[0]
    bounds = list(zip(low, high, strict=True))
    # its tolerance is relative to the objective
    options = {"maxiter": iterations, "ftol": tolerance / observations}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x, float(found.fun)
