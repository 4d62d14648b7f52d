"""EK-UCB against scikit-learn's regressor refitted each round, and against our own K-UCB."""

from __future__ import annotations

from time import process_time

import numpy as np
from measure import interleaved_medians
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import kernel_bandits as kb


def against_scikit_learn() -> list[dict[str, object]]:
    """Per round at t = 2000 on Chessboard: fit and predict of GPR, select and update of EK-UCB."""
    policy = kb.ek_ucb(kb.Gaussian(0.1), regularization=0.01, seed=0)
    environment = kb.environments.Chessboard()
    result = kb.run(policy, environment, 2000, seed=0)
    points, rewards = policy.observed_points, result.rewards
    offer = environment.next_round(np.random.default_rng(0))
    joint = np.column_stack([np.repeat(offer.context[None, :], 10, axis=0), offer.rows])

    def refitted(_: int) -> None:
        regressor = GaussianProcessRegressor(RBF(0.1), alpha=0.01, optimizer=None).fit(points, rewards)
        regressor.predict(joint, return_std=True)

    def ours(_: int) -> None:
        decision = policy.select(offer.context, offer.actions)
        policy.update(offer.context, decision.action, 0.5)

    slow, _ = interleaved_medians([refitted, ours], 4, blocks=4)
    fast = interleaved_medians([ours], 400)[0]
    return [{"": "GPR refitted / EK-UCB, t = 2000", "ratio": slow / fast, "target": "≥ 100"}]


def against_k_ucb() -> list[dict[str, object]]:
    """Time of all rounds on Chessboard, and of whole runs with the environment's share, which both pay alike."""
    rows: list[dict[str, object]] = []
    for horizon, seeds, target in ((2000, 5, "≥ 10"), (5000, 3, "≥ 50")):
        rounds, runs = [], []
        for seed in range(seeds):
            seconds = []
            for preset in (kb.k_ucb, kb.ek_ucb):
                policy = preset(kb.Gaussian(0.1), regularization=0.01, seed=seed)
                started = process_time()
                result = kb.run(policy, kb.environments.Chessboard(), horizon, seed=seed)
                seconds.append((result.seconds[-1], process_time() - started))
            (k_rounds, k_run), (ek_rounds, ek_run) = seconds
            rounds.append(k_rounds / ek_rounds)
            runs.append(k_run / ek_run)
        rows.append(
            {
                "": f"K-UCB / EK-UCB, T = {horizon}",
                "select and update": float(np.median(rounds)),
                "from … to": f"{min(rounds):.3g} … {max(rounds):.3g}",
                "whole run": float(np.median(runs)),
                "target": target,
            }
        )
    return rows
