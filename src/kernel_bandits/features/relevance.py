"""How much each variable matters to a prediction."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.features.layout import Layout

# Enough for two digits.
SAMPLE = 256


def relevance(
    points: FloatArray, layout: Layout, predict: Callable[[FloatArray], FloatArray], sample_size: int = SAMPLE
) -> dict[str, float]:
    """Return how much a prediction changes where one variable comes from another point, most relevant first.

    √(½·mean (f(s) − f(s′))²), where s′ is s with the columns of the variable from another point: the square root of the
    total index of Sobol's, as Jansen (1999) estimates it. The same points give the same numbers.

    Args:
        points: joint points, shape (n, d).
        layout: of the points.
        predict: points (n, d) to numbers (n,).
        sample_size: the number of points to look at, at most.
    """
    generator = np.random.default_rng(0)
    sample = points if len(points) <= sample_size else generator.choice(points, sample_size, replace=False)
    order = generator.permutation(len(sample))
    # each point takes the variable from the next one in a random order, so that none takes it from itself
    partners = np.empty_like(order)
    partners[order] = np.roll(order, 1)
    before = predict(sample)
    found: dict[str, float] = {}
    names = [name for _, name in layout.variables]
    for side, name in layout.variables:
        columns = layout.columns_of(side, name)
        mixed = sample.copy()
        mixed[:, columns] = sample[np.ix_(partners, columns)]
        # a variable that is constant in the sample changes nothing, so nothing is predicted for it
        changed = (mixed[:, columns] != sample[:, columns]).any()
        effect = math.sqrt(0.5 * float(np.mean((before - predict(mixed)) ** 2))) if changed else 0.0
        found[name if names.count(name) == 1 else f"{name} ({side})"] = effect
    return dict(sorted(found.items(), key=lambda item: -item[1]))
