"""Compare the decisions of two versions of the code bit for bit: forty short runs, a digest of each.

Four environments, five policies (exact, drawn, learned, resampled, and with rewards that come late), two seeds:

    python benchmarks/decisions.py > before.txt
    python benchmarks/decisions.py > after.txt; diff before.txt after.txt
"""

from __future__ import annotations

import hashlib
import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import numpy as np

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray

HORIZON = 800
DELAY = 7
LENGTHSCALES = {"Bump": 1.0, "Chessboard": 0.1, "StepDiagonal": 0.1, "MovingOptimum": 0.3}


def delayed_rewards(policy: kb.Policy, environment: kb.environments.Environment, seed: int) -> FloatArray:
    """Play with every reward told ``DELAY`` rounds late, and every tenth never."""
    contexts, noise = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    waiting, earned = [], []
    for step in range(HORIZON):
        shown = environment.next_round(contexts)
        decision = policy.ask(shown.context, shown.actions)
        expected = float(environment.expected_rewards(shown.context, decision.action[None, :])[0])
        earned.append(expected)
        waiting.append((int(decision.id or 0), expected + environment.noise(noise)))
        if step >= DELAY:
            identifier, reward = waiting.pop(0)
            if step % 10:
                policy.tell(identifier, reward)
            else:
                policy.expire(identifier)
    return np.cumsum(earned)


def main() -> None:
    for name, lengthscale in LENGTHSCALES.items():
        kernel = kb.Gaussian(lengthscale)
        for seed in (0, 1):
            policies = {
                "k_ucb": kb.k_ucb(kernel, seed=seed),
                "ek_ucb": kb.ek_ucb(kernel, seed=seed),
                "learned": kb.ek_ucb(seed=seed),
                "cbbkb": kb.cbbkb(kernel, seed=seed),
                "pending": kb.ek_ucb(kernel, regularization=0.01, seed=seed),
            }
            for label, policy in policies.items():
                environment = getattr(kb.environments, name)()
                if label == "pending":
                    regret = delayed_rewards(policy, environment, seed)
                else:
                    regret = kb.run(policy, environment, horizon=HORIZON, seed=seed).regret
                digest = hashlib.sha256(np.ascontiguousarray(regret).tobytes()).hexdigest()[:16]
                print(f"{name:13s} {label:8s} seed {seed}  {regret[-1]:.15g}  {digest}")


if __name__ == "__main__":
    main()
