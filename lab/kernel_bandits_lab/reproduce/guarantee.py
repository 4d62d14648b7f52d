"""What the paper's theorem promises at each λ: numbers of a formula, on the points of an environment."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

import kernel_bandits as kb
from kernel_bandits import environments, theory
from kernel_bandits.arrays import FloatArray
from kernel_bandits_lab.reproduce.claims import Finding
from kernel_bandits_lab.reproduce.settings import PAPER

ENVIRONMENTS: dict[str, Callable[[], environments.Environment]] = {
    "Chessboard": environments.Chessboard,
    "Step Diagonal": environments.StepDiagonal,
    "Bump": environments.Bump,
}
# Effective dimensions are taken on this many points at most, with λ scaled so that T/λ is that of the horizon.
POINTS = 500


@cache
def bounds(environment: str, settings: str, horizon: int) -> dict[str, float]:
    """Return the corrected bound of Theorem 3.1 with B = R = 1, by λ."""
    count = min(horizon, POINTS)
    lengthscale = 1.0 if environment == "Bump" and settings != PAPER else 0.1
    points = _points(environment, count)
    gram = kb.Gaussian(lengthscale)(points, points)
    root = math.sqrt(horizon)
    values = {"1": 1.0, "10": 10.0, "√T": root, "100": 100.0}
    return {
        name: theory.k_ucb_regret_bound(
            horizon=horizon,
            regularization=value,
            norm_bound=1.0,
            effective_dimension=theory.effective_dimension(gram, value * count / horizon),
        )
        for name, value in values.items()
    }


def _points(environment: str, count: int) -> FloatArray:
    """Return joint points of uniform play."""
    generator = np.random.default_rng(0)
    problem = ENVIRONMENTS[environment]()
    rows = []
    for _ in range(count):
        offer = problem.next_round(generator)
        rows.append(np.concatenate([offer.context, offer.rows[int(generator.integers(len(offer.rows)))]]))
    return np.array(rows)


def guarantees(environment: str, settings: str, horizon: int) -> list[Finding]:
    """Compare the bound at λ = √T with those at the λ of the grid."""
    if horizon < 2:
        return []
    found = bounds(environment, settings, horizon)
    return [
        Finding(
            f"λ = √T against {name}", f"bound {found['√T']:.0f} against {found[name]:.0f}", found["√T"] < found[name]
        )
        for name in ("1", "10", "100")
    ]
