"""How sharp is the exact tightened radius? The share of runs in which θ* leaves its set, in the worst case found.

One observation after the other along d orthogonal directions, Gaussian noise of variance R² = 1, θ* = 0. With small
steps (large λ) the mixture martingale hardly jumps over 1/δ, and in many directions it falls back to 0 fast, so that
nearly all of δ is used within the horizon: Ville's inequality is an equality for a continuous martingale that vanishes.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/sharpness.py
"""

from __future__ import annotations

import math

import numpy as np

FAILURE = 0.1


def left(directions: int, ridge: float, cycles: int, runs: int, seed: int = 0) -> float:
    """Return the share of runs in which θ* was outside the set of Tightened at some round."""
    generator = np.random.default_rng(seed)
    sums, outside = np.zeros((runs, directions)), np.zeros(runs, dtype=bool)
    misfit, log_determinant = np.zeros(runs), 0.0
    for cycle in range(1, cycles + 1):
        # ‖θ̂ − θ*‖²_V = Σ S²/(n + λ) over directions, and log det(I + K/λ) = Σ log(1 + n/λ)
        for direction in range(directions):
            before = sums[:, direction] ** 2 / (cycle - 1 + ridge)
            sums[:, direction] += generator.standard_normal(runs)
            misfit += sums[:, direction] ** 2 / (cycle + ridge) - before
            log_determinant += math.log((cycle + ridge) / (cycle - 1 + ridge))
            outside |= misfit > 2.0 * math.log(1.0 / FAILURE) + log_determinant
    return float(outside.mean())


def main() -> None:
    print("| directions | λ/R² | rounds | runs | θ* left the set (δ = 10 %) |")
    print("|---|---|---|---|---|")
    for directions, ridge, cycles, runs in [(1, 1.0, 2000, 4000), (1, 30.0, 4000, 4000), (20, 30.0, 400, 4000)]:
        share = left(directions, ridge, cycles, runs)
        error = math.sqrt(share * (1 - share) / runs)
        print(
            f"| {directions} | {ridge:g} | {directions * cycles} | {runs} | {share:.1%} ± {1.96 * error:.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
