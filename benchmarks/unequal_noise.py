"""Regret with the noise of each reward known, and with one λ for all.

    python benchmarks/unequal_noise.py --seeds 20

A product is tried on panels of 1 to 100 people, whose mean opinion is the reward: its noise variance is 4/size. The
expected reward is a bump over 16 settings that moves with the context. A policy that ignores sizes has one λ; several
are tried, and the best is the one to beat.
"""

from __future__ import annotations

import argparse

import numpy as np

import kernel_bandits as kb

ROUNDS, VARIANCE = 500, 4.0
SETTINGS = np.linspace(0.0, 1.0, 16)[:, None]
KERNEL = kb.Gaussian(0.3)


def regret(seed: int, ridge: float, known: bool) -> float:
    policy = kb.ek_ucb(KERNEL, regularization=ridge, seed=seed)
    generator, total = np.random.default_rng([seed, 3]), 0.0
    for _ in range(ROUNDS):
        context = generator.random(1)
        expected = np.exp(-((SETTINGS[:, 0] - 0.2 - 0.6 * context[0]) ** 2) / 0.08)
        decision = policy.select(context, SETTINGS)
        total += float(expected.max() - expected[decision.index])
        # sizes are spread evenly over the powers of 10
        variance = VARIANCE / 10.0 ** generator.uniform(0.0, 2.0)
        reward = float(expected[decision.index] + np.sqrt(variance) * generator.standard_normal())
        policy.update(context, decision.action, reward, noise_variance=variance if known else None)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    ignored = {ridge: np.array([regret(seed, ridge, False) for seed in seeds]) for ridge in (0.4, 0.9, 2.0, 4.0, 8.0)}
    known = np.array([regret(seed, 0.4, True) for seed in seeds])
    for ridge, regrets in ignored.items():
        print(f"sizes ignored, λ = {ridge:g}: {regrets.mean():.1f}")
    best = min(ignored.values(), key=lambda each: float(each.mean()))
    error = 2.0 * (best - known).std(ddof=1) / np.sqrt(len(known))
    print(
        f"sizes known: {known.mean():.1f}, less by {best.mean() - known.mean():.1f} ± {error:.1f} than the best of them"
    )
    print(f"that is {100.0 * (1.0 - known.mean() / best.mean()):.0f} % less")


if __name__ == "__main__":
    main()
