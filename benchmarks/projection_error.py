"""How often, and how far, is μ_t = ‖(I − P_t)F_t^{1/2}‖² above μ? Proposition 4.1 for points that depend on coins.

Directions are orthogonal, so that each is a problem of its own: the first draw of a direction explains all of it. A
point of k(s, s) = 1 is drawn with p = min(1, c/(1 + μ)), c = γ(1 + ε), and μ_t is the longest run of a direction before
its first draw.

- fixed: every direction is played ⌊μ⌋ + 1 times, whatever the coins show, as often as fits into T;
- adaptive: a direction is played until it is drawn, then the next one: the points depend on the coins.

    OPENBLAS_NUM_THREADS=1 python benchmarks/projection_error.py          the share of games, simulated
    python benchmarks/projection_error.py least                           the smallest c that is enough, exactly
"""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy.optimize import brentq

import kernel_bandits as kb
from kernel_bandits import theory

HORIZON, RUNS, ACCURACY, FAILURE = 2000, 2000, 0.5, 0.1


def runs_before_draw(probability: float, adaptive: bool, level: float, generator: np.random.Generator) -> np.ndarray:
    """Return the longest run of each of RUNS games, in points."""
    block = math.floor(level) + 1
    tries = math.ceil(HORIZON * (probability if adaptive else 1.0 / block)) + 1
    lengths = generator.geometric(probability, (RUNS, 3 * tries if adaptive else tries)) - 1
    if not adaptive:
        lengths = np.minimum(lengths, block)
        return lengths[:, : HORIZON // block].max(axis=1)
    # a direction takes its run and the draw itself; the game ends with the horizon, perhaps in the middle of a run
    starts = np.cumsum(lengths + 1, axis=1) - lengths - 1
    return np.clip(np.minimum(lengths, HORIZON - starts), 0, None).max(axis=1)


def played(ridge: float, oversampling: float, seed: int, horizon: int = 200) -> float:
    """Return the largest μ_t/μ of a run of EK-UCB on Chessboard, at ten rounds."""
    kernel = kb.Gaussian(0.1)
    rule = kb.Kors(oversampling=oversampling)
    policy = kb.ek_ucb(kernel, regularization=ridge, dictionary=rule, seed=seed)
    worst = 0.0
    for part in range(10):
        kb.run(policy, kb.environments.Chessboard(), horizon // 10, seed=100 * seed + part)
        points, anchors = policy.observed_points, policy.dictionary_points
        if len(anchors):
            error = theory.projection_error(kernel(points), kernel(points, anchors), kernel(anchors))
            worst = max(worst, error / ridge)
    return worst


def exceeding(rate: float, level: float, adaptive: bool) -> float:
    """Return the probability that μ_t exceeds μ in a game, c being the rate."""
    drawn, block = min(1.0, rate / (1.0 + level)), math.floor(level) + 1
    missed = (1.0 - drawn) ** block
    if not adaptive:
        return 1.0 - (1.0 - missed) ** (HORIZON // block)
    # P(no run of L misses in n) = P(none in n − 1) − P(none in n − L − 1, a draw, then L misses)
    without = np.ones(HORIZON + 1)
    without[block] = 1.0 - missed
    for rounds in range(block + 1, HORIZON + 1):
        without[rounds] = without[rounds - 1] - drawn * missed * without[rounds - block - 1]
    return float(1.0 - without[-1])


def least_rate(level: float, adaptive: bool) -> float:
    """Return the smallest c with which μ_t exceeds μ with probability δ at most."""
    found: float = brentq(lambda rate: exceeding(rate, level, adaptive) - FAILURE, 1e-3, 1.0 + level - 1e-9)
    return found


def main() -> None:
    if sys.argv[1:] == ["least"]:
        for level in (1.0, 10.0, 100.0, 1000.0):
            # the larger of the two solutions
            rule = math.log(HORIZON / FAILURE)
            for _ in range(100):
                rule = math.log(HORIZON * rule / ((1.0 + level) * FAILURE))
            cells = [f"{least_rate(level, adaptive):.1f}" for adaptive in (False, True)]
            print(f"| {level:g} | {' | '.join(cells)} | {min(rule, 1.0 + level):.1f} |")
        return
    generator = np.random.default_rng(0)
    print(f"Orthogonal directions, T = {HORIZON}, {RUNS} games: share with μ_t > μ, and the largest μ_t/μ")
    print("| μ | γ | fixed | adaptive |")
    print("|---|---|---|---|")
    budget = theory.kors_budget(HORIZON, FAILURE)
    for level in (1.0, 10.0, 100.0):
        for oversampling in (1.0, 2.0, 5.0, 8.0, budget / 12, budget):
            probability = min(1.0, oversampling * (1 + ACCURACY) / (1 + level))
            cells = []
            for adaptive in (False, True):
                longest = runs_before_draw(probability, adaptive, level, generator)
                cells.append(f"{(longest > level).mean():.1%}, {longest.max() / level:.1f}")
            print(f"| {level:g} | {oversampling:.3g} | " + " | ".join(cells) + " |")
    print("\nEK-UCB on Chessboard, 200 rounds, 5 runs: runs with μ_t > μ, and the largest μ_t/μ")
    print("| λ = μ | γ = 0.5 | γ = 1 | γ = 2 | γ = 5 |")
    print("|---|---|---|---|---|")
    for ridge in (0.1, 1.0, 10.0):
        cells = []
        for oversampling in (0.5, 1.0, 2.0, 5.0):
            found = np.array([played(ridge, oversampling, seed) for seed in range(5)])
            cells.append(f"{(found > 1).sum()} of 5, {found.max():.1f}")
        print(f"| {ridge:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
