"""One whole EK-UCB round against the BLAS calls it cannot do without, and one K-UCB round against its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from measure import interleaved_medians, policy_with_anchors
from scipy.linalg import blas

import kernel_bandits as kb

SHAPES = {
    (64, 10): 4.0,
    (256, 10): 1.75,
    (512, 10): 1.35,
    (1024, 10): 1.35,
    (256, 100): 1.4,
    (1024, 100): 1.25,
    (256, 1000): 1.4,
}


INSTANCES = 5
EXACT_REPEATS = 80


def efficient_floor(size: int, actions: int) -> Callable[[int], object]:
    """The products of a round, one after the other on arrays of its shapes, so that they evict each other alike."""
    generator = np.random.default_rng(1)
    # stored as Fortran likes it best, which is as the posteriors store it
    lower = np.asfortranarray(np.tril(generator.normal(size=(size, size))))
    covariance = generator.normal(size=(size, size))
    kors_factor = np.tril(generator.normal(size=(size, size))) + size * np.eye(size)
    exponents, rows = -generator.random((actions, size)), generator.normal(size=(actions, size))
    vector = 1e-3 * generator.normal(size=size)

    def call(_: int) -> None:
        np.exp(exponents)
        features = blas.dtrmm(1.0, lower, rows.T, lower=1).T
        np.dot(features, covariance)
        blas.dtrsv(kors_factor.T, vector, trans=1)
        blas.dger(-1e-12, vector, vector, a=covariance.T, overwrite_a=1)

    return call


def one_round(policy: kb.Policy, actions: int, dimension: int = 6) -> Callable[[int], object]:
    generator = np.random.default_rng(2)
    contexts, offers = generator.random((64, dimension - 1)), generator.random((64, actions, 1))

    def call(repeat: int) -> None:
        context = contexts[repeat % 64]
        decision = policy.select(context, offers[repeat % 64])
        policy.update(context, decision.action, 0.3)

    return call


def efficient_rounds() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for (size, actions), limit in SHAPES.items():
        repeats = 800 if size * size * actions < 10**6 else 80
        # where arrays happen to lie in memory decides what shares a cache: several of each
        times = [
            interleaved_medians(
                [one_round(policy_with_anchors(size), actions), efficient_floor(size, actions)], repeats
            )
            for _ in range(INSTANCES)
        ]
        ratios = sorted(round_ / floor for round_, floor in times)
        round_, floor = np.median(times, axis=0)
        rows.append(
            {
                "m, actions": f"{size}, {actions}",
                "floor, µs": 1e6 * floor,
                "round, µs": 1e6 * round_,
                "× floor": float(np.median(ratios)),
                "from … to": f"{ratios[0]:.2f} … {ratios[-1]:.2f}",
                "target": limit,
            }
        )
    return rows


def exact_floor(size: int, actions: int) -> Callable[[int], object]:
    """Triangular product, triangular row for the border, and the exponentials of one kernel block."""
    generator = np.random.default_rng(1)
    lower = np.asfortranarray(np.tril(generator.normal(size=(size, size))))
    exponents, rows = -generator.random((actions, size)), generator.normal(size=(actions, size))
    vector = generator.normal(size=size)

    def call(_: int) -> None:
        np.exp(exponents)
        blas.dtrmm(1.0, lower, rows.T, lower=1)
        blas.dtrmv(lower, vector, lower=1, trans=1)

    return call


def exact_rounds() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for size in (500, 1000, 2000):
        policy = kb.k_ucb(kb.Gaussian(0.15), seed=0)
        generator = np.random.default_rng(0)
        # it grows by a point per round: t is that of the rounds in the middle
        start = size - EXACT_REPEATS // 2
        policy.update_many(generator.random((start, 5)), generator.random((start, 1)), generator.random(start))
        round_, floor = interleaved_medians([one_round(policy, 10), exact_floor(size, 10)], EXACT_REPEATS)
        rows.append(
            {"t": size, "floor, µs": 1e6 * floor, "round, µs": 1e6 * round_, "× floor": round_ / floor, "target": 2.0}
        )
    return rows
