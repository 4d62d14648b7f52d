"""The default on the paper's environments, against fixed lengthscales: regret and processor time, over paired seeds.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/default/environments.py [--seeds 4] [--horizon 1000]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from joblib import Parallel, delayed
from kernel_bandits_lab.tables import mean_interval

import kernel_bandits as kb

ENVIRONMENTS = ("Bump", "Chessboard", "StepDiagonal", "MovingOptimum")
LENGTHSCALES = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
# What is fixed with a lengthscale: λ, and at most this many anchors.
REGULARIZATION, ANCHORS = 0.1, 400


def one_run(name: str, lengthscale: float | None, horizon: int, seed: int) -> tuple[float, float]:
    """Return regret and seconds of the default, or of a fixed lengthscale."""
    policy = kb.ek_ucb(seed=seed)
    if lengthscale is not None:
        rule = kb.Kors(max_size=ANCHORS)
        policy = kb.ek_ucb(kb.Gaussian(lengthscale), regularization=REGULARIZATION, dictionary=rule, seed=seed)
    started = time.process_time()
    result = kb.run(policy, getattr(kb.environments, name)(), horizon, seed)
    return float(result.regret[-1]), time.process_time() - started


def main() -> None:
    """Print a row for every environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--horizon", type=int, default=1000)
    options = parser.parse_args()
    print("| environment | nothing set | best fixed lengthscale | ratio | seconds |\n|---|---|---|---|---|")
    for name in ENVIRONMENTS:
        choices = (None, *LENGTHSCALES)
        runs = Parallel(n_jobs=2)(
            delayed(one_run)(name, choice, options.horizon, seed) for choice in choices for seed in range(options.seeds)
        )
        regrets, seconds = np.array(runs).reshape(len(choices), options.seeds, 2).transpose(2, 0, 1)
        best = 1 + int(regrets[1:].mean(axis=1).argmin())
        (mean, width), (other, other_width) = mean_interval(regrets[0]), mean_interval(regrets[best])
        print(
            f"| {name} | {mean:.1f} ± {width:.1f} | {other:.1f} ± {other_width:.1f} (ℓ = {choices[best]}) "
            f"| {mean / other:.2f} | {seconds[0].mean():.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
