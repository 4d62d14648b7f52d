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
    tried = [(start, objective(start)) for start in (np.clip(start, low, high) for start in starts)]
    start, known = min(tried, key=lambda each: each[1][0])
    bounds = list(zip(low, high, strict=True))

    def continued(parameters: FloatArray) -> tuple[float, FloatArray]:
        # the optimiser begins with what is known
        return known if np.array_equal(parameters, start) else objective(parameters)

    # its tolerance is relative to the objective
    options = {"maxiter": iterations, "ftol": tolerance / observations}
    found = minimize(continued, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x, float(found.fun)
