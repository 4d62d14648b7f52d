"""Draws from a posterior, jointly at several points."""

from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.numerics.linalg import correlate
from kernel_bandits.posteriors.base import Posterior
from kernel_bandits.posteriors.facts import Evaluation

# Up to this many points are drawn jointly: a factorisation of that order takes about 20 ms.
JOINT_POINTS = 1000


def draw_deviations(
    posterior: Posterior[Any], points: FloatArray, evaluation: Evaluation, count: int, generator: np.random.Generator
) -> FloatArray:
    """Draw (expected reward − mean) at evaluated points (A, d), shape (count, A).

    Joint up to ``JOINT_POINTS`` points; more are drawn in blocks of that many, independent of each other.
    """
    normals = posterior.unit * generator.standard_normal((count, len(points)))
    if len(points) <= JOINT_POINTS:
        return correlate(normals, posterior.covariance(points, evaluation))
    for start in range(0, len(points), JOINT_POINTS):
        block = slice(start, start + JOINT_POINTS)
        covariance = posterior.covariance(points[block], posterior.evaluate(points[block]))
        normals[:, block] = correlate(normals[:, block], covariance)
    return normals
