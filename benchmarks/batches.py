"""Batched EK-UCB: regret against batch size, over paired seeds.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/batches.py
"""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from kernel_bandits_lab.tables import mean_interval

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.rng import stream

SEEDS, HORIZON, LARGEST_BATCH = 20, 2000, 250
ENVIRONMENTS = ("Bump", "Chessboard", "StepDiagonal")
LIMITS = (1.0, 3.0, 10.0, 30.0, 100.0)


def one_run(name: str, limit: float, seed: int) -> tuple[float, float, float]:
    """Regret, number of batches, and dictionary size of a run."""
    environment = getattr(kb.environments, name)()
    contexts, noise = stream(seed, "contexts"), stream(seed, "noise")
    offers = [environment.next_round(contexts) for _ in range(HORIZON)]
    errors = [environment.noise(noise) for _ in range(HORIZON)]
    policy = kb.ek_ucb(kb.Gaussian(environment.lengthscale), regularization=0.1, seed=seed)
    regret, batches, served = 0.0, 0, 0
    while served < HORIZON:
        # 1 + Σσ² of the decisions, with the variances at the start of the batch, std²/λ
        before, total, ids, rewards = policy.posterior, 1.0, list[int](), list[float]()
        for offer, error in zip(offers[served:], errors[served : served + LARGEST_BATCH], strict=False):
            decision = policy.ask(offer.context, offer.actions)
            assert decision.id is not None
            expected = environment.expected_rewards(offer.context, offer.actions)
            ids.append(decision.id)
            rewards.append(float(expected[decision.index]) + error)
            regret += float(expected.max() - expected[decision.index])
            point = np.concatenate((decision.context, decision.action))
            total += before.predict(point[None, :]).std.item(0) ** 2 / before.regularization
            if total > limit:
                break
        policy.tell_many(ids, rewards)
        served += len(ids)
        batches += 1
    return regret, float(batches), float(policy.dictionary_size)


def main() -> None:
    print("| environment | limit | batches | mean batch | regret | more than one by one, paired | m |")
    print("|---|---|---|---|---|---|---|")
    for name in ENVIRONMENTS:
        single: FloatArray | None = None
        for limit in LIMITS:
            runs = Parallel(n_jobs=-1)(delayed(one_run)(name, limit, seed) for seed in range(SEEDS))
            regret, batches, size = np.array(runs).T
            mean, half_width = mean_interval(regret)
            single = regret if single is None else single
            more, error = mean_interval(regret - single)
            print(
                f"| {name} | {limit:g} | {batches.mean():.0f} | {HORIZON / batches.mean():.1f} "
                f"| {mean:.1f} ± {half_width:.1f} | {float(more):+.2f} ± {float(error):.2f} | {size.mean():.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
