"""Regret with the noise of each reward known, learned, and ignored.

    python benchmarks/unequal_noise.py --seeds 20
    python benchmarks/unequal_noise.py --seeds 20 --of context setting

A product is tried on panels of 1 to 100 people, whose mean opinion is the reward: its noise variance is 4/size. The
expected reward is a bump over 16 settings that moves with the context. The size is either unknown unless it is told, or
a column of the context, or it grows with the setting. A policy that ignores it has one λ; several are tried, and the
best is the one to beat. One that learns it begins with the mean of the variances.
"""

from __future__ import annotations

import argparse

import numpy as np

import kernel_bandits as kb

ROUNDS, VARIANCE, MEAN = 500, 4.0, 0.9
SETTINGS = np.linspace(0.0, 1.0, 16)[:, None]
RIDGES = (0.4, 0.9, 2.0, 4.0, 8.0)


def regret(seed: int, of: str, noise: str, ridge: float) -> float:
    # a size in the context changes no expected reward
    kernel = kb.Gaussian([0.3, 100.0, 0.3] if of == "context" else 0.3)
    learned = kb.UnequalNoise() if noise == "learned" else None
    policy = kb.ek_ucb(kernel, regularization=ridge, noise=learned, seed=seed)
    generator, total = np.random.default_rng([seed, 3]), 0.0
    for _ in range(ROUNDS):
        context = generator.random(1)
        expected = np.exp(-((SETTINGS[:, 0] - 0.2 - 0.6 * context[0]) ** 2) / 0.08)
        # sizes are spread evenly over the powers of 10
        power = generator.uniform(0.0, 2.0)
        sensed = np.append(context, 0.5 * power) if of == "context" else context
        decision = policy.select(sensed, SETTINGS)
        power = 2.0 * decision.action[0] if of == "setting" else power
        total += float(expected.max() - expected[decision.index])
        variance = VARIANCE / 10.0**power
        reward = float(expected[decision.index] + np.sqrt(variance) * generator.standard_normal())
        policy.update(sensed, decision.action, reward, noise_variance=variance if noise == "known" else None)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--of", nargs="+", default=["nothing"], choices=["nothing", "context", "setting"])
    options = parser.parse_args()
    seeds = range(options.seeds)
    for of in options.of:
        ignored = {ridge: np.array([regret(seed, of, "ignored", ridge) for seed in seeds]) for ridge in RIDGES}
        for ridge, regrets in ignored.items():
            print(f"{of}: sizes ignored, λ = {ridge:g}: {regrets.mean():.1f}")
        best = min(ignored.values(), key=lambda each: float(each.mean()))
        for noise, ridge in (("known", 0.4), ("learned", MEAN))[: 1 if of == "nothing" else 2]:
            found = np.array([regret(seed, of, noise, ridge) for seed in seeds])
            error = 2.0 * (best - found).std(ddof=1) / np.sqrt(len(found))
            less = best.mean() - found.mean()
            print(
                f"{of}: {noise}: {found.mean():.1f}, less by {less:.1f} ± {error:.1f} than the best of them, "
                f"{100.0 * less / best.mean():.0f} %"
            )


if __name__ == "__main__":
    main()
