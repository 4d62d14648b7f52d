"""KORS against the posterior variance as leverage score: regret, dictionary size and time, over paired seeds.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/dictionary_rules.py
"""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from kernel_bandits_lab import mean_interval

import kernel_bandits as kb

SEEDS, HORIZON = 20, 2000
ENVIRONMENTS = ("Bump", "Chessboard", "StepDiagonal", "MovingOptimum")
RULES = (kb.Kors(history="none"), kb.PosteriorVariance(history="none"))


def one_run(name: str, rule: kb.DictionaryRule, regularization: float, seed: int) -> tuple[float, float, float]:
    environment = getattr(kb.environments, name)()
    kernel = kb.Gaussian(environment.lengthscale)
    policy = kb.ek_ucb(kernel, regularization=regularization, dictionary=rule, seed=seed)
    result = kb.run(policy, environment, HORIZON, seed)
    round_microseconds = 1e6 * np.median(result.select_seconds + result.update_seconds)
    return float(result.regret[-1]), float(result.dictionary_size[-1]), float(round_microseconds)


def main() -> None:
    print("| environment | λ | rule | regret | m | µs per round |\n|---|---|---|---|---|---|")
    for name in ENVIRONMENTS:
        for regularization in (0.01, 1.0):
            regrets = []
            for rule in RULES:
                runs = Parallel(n_jobs=-1)(delayed(one_run)(name, rule, regularization, seed) for seed in range(SEEDS))
                regret, size, microseconds = np.array(runs).T
                regrets.append(regret)
                mean, half_width = mean_interval(regret)
                print(
                    f"| {name} | {regularization:g} | `{type(rule).__name__}` | {mean:.1f} ± {half_width:.1f} "
                    f"| {size.mean():.0f} | {np.median(microseconds):.0f} |",
                    flush=True,
                )
            # both rules meet the same contexts and noise, seed by seed
            mean, half_width = mean_interval(regrets[1] - regrets[0])
            print(
                f"| {name} | {regularization:g} | second less first | {mean:+.2f} ± {half_width:.2f} | | |", flush=True
            )


if __name__ == "__main__":
    main()
