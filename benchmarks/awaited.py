"""Four ways to bound rewards while others are awaited: regret, and how often the bounds fail.

Exact kernel ridge regression on a grid of contexts and actions, 40 functions of norm 1 at once, noise ±0.1, λ = 0.01
and the exact radius of Tightened at δ = 0.1. The mean is that of the observed rewards.

- none: β of the observed points with standard deviations that count awaited ones too;
- eigenvalue: that, times the root of the largest eigenvalue of V₊ against V, as radii with a guarantee do;
- determinant: that, times the root of det V₊/det V (Desautels, Krause and Burdick 2014);
- observed: β and standard deviations of the observed points alone.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/awaited.py
"""

from __future__ import annotations

import math

import numpy as np

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray

SIDE, RUNS, HORIZON = 15, 40, 300
NORM, NOISE, FAILURE, RIDGE = 1.0, 0.1, 0.1, 0.01
WAYS = ("none", "eigenvalue", "determinant", "observed")


def features() -> FloatArray:
    """Return φ of every place of the grid, one context after the other; ⟨φ, φ'⟩ is the kernel."""
    line = (np.arange(SIDE) + 0.5) / SIDE
    places = np.column_stack([line.repeat(SIDE), np.tile(line, SIDE)])
    values, vectors = np.linalg.eigh(kb.Gaussian(0.3)(places))
    kept = values > 1e-10 * values[-1]
    found: FloatArray = vectors[:, kept] * np.sqrt(values[kept])
    return found


class Regression:
    """P = (λI + Σφφᵀ)⁻¹ of each run, Σ rφ and log det(V/λ)."""

    def __init__(self, size: int) -> None:
        self.covariance = np.tile(np.eye(size) / RIDGE, (RUNS, 1, 1))
        self.moment = np.zeros((RUNS, size))
        self.log_determinant = np.zeros(RUNS)

    def learn(self, points: FloatArray, rewards: FloatArray) -> None:
        # P ← P − hhᵀ/c with c = 1 + φᵀh, h = Pφ
        solved = np.einsum("rij,rj->ri", self.covariance, points)
        scale = 1.0 + np.vecdot(points, solved)
        self.covariance -= solved[:, :, None] * solved[:, None] / scale[:, None, None]
        self.log_determinant += np.log(scale)
        self.moment += rewards[:, None] * points

    def std(self, points: FloatArray) -> FloatArray:
        found: FloatArray = np.sqrt(np.einsum("raj,rjk,rak->ra", points, self.covariance, points))
        return found


def played(late: int, way: str) -> tuple[FloatArray, int]:
    """Return the regret of each run with rewards that come this many decisions late, and in how many a bound failed."""
    generator, phi = np.random.default_rng(0), features()
    centres = generator.integers(len(phi), size=(RUNS, 20))
    functions = np.einsum("rc,rcj->rj", generator.standard_normal((RUNS, 20)), phi[centres])
    functions *= NORM / np.linalg.norm(functions, axis=1)[:, None]
    observed, ahead = Regression(phi.shape[1]), Regression(phi.shape[1])
    waiting: list[tuple[FloatArray, FloatArray]] = []
    regret, failed, every = np.zeros(RUNS), np.zeros(RUNS, dtype=bool), np.arange(RUNS)
    for _ in range(HORIZON):
        offered = phi[generator.integers(SIDE, size=RUNS)[:, None] * SIDE + np.arange(SIDE)]
        expected = np.einsum("raj,rj->ra", offered, functions)
        mean = np.einsum("raj,rjk,rk->ra", offered, observed.covariance, observed.moment)
        beta = np.sqrt(RIDGE * NORM**2 + NOISE**2 * (2 * math.log(1 / FAILURE) + observed.log_determinant))
        if way == "eigenvalue" and waiting:
            awaited = np.stack([points for points, _ in waiting], axis=1)
            gram = np.einsum("rni,rij,rkj->rnk", awaited, observed.covariance, awaited)
            beta *= np.sqrt(1.0 + np.linalg.eigvalsh(gram)[:, -1])
        if way == "determinant":
            beta *= np.exp(0.5 * (ahead.log_determinant - observed.log_determinant))
        width = beta[:, None] * (observed if way == "observed" else ahead).std(offered)
        failed |= (np.abs(expected - mean) > width + 1e-9).any(axis=1)
        rows = (mean + width).argmax(axis=1)
        values, points = expected[every, rows], offered[every, rows]
        regret += expected.max(axis=1) - values
        ahead.learn(points, np.zeros(RUNS))
        waiting.append((points, values + NOISE * generator.choice([-1.0, 1.0], RUNS)))
        if len(waiting) > late:
            observed.learn(*waiting.pop(0))
    return regret, int(failed.sum())


def main() -> None:
    print(f"| rewards late by | {' | '.join(WAYS)} |\n|---|{'---|' * len(WAYS)}")
    for late in (1, 5, 20):
        cells = []
        for way in WAYS:
            regret, failed = played(late, way)
            error = regret.std(ddof=1) / math.sqrt(RUNS)
            cells.append(f"{regret.mean():.1f} ± {error:.1f}, {failed} of {RUNS}")
        print(f"| {late} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
