"""Pruning of large action sets: what it saves on posteriors of real runs, and what it costs where it does not help."""

from __future__ import annotations

import numpy as np
from measure import interleaved_medians

import kernel_bandits as kb
from kernel_bandits.posteriors import nystrom


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for label, environment, lengthscale, rounds in (
        ("MovingOptimum after 2,000 rounds", kb.environments.MovingOptimum(), 0.5, 2000),
        ("Chessboard after 2,000 rounds", kb.environments.Chessboard(), 0.1, 2000),
        ("Bump after 2,000 rounds", kb.environments.Bump(), 1.0, 2000),
        ("MovingOptimum after 50 rounds", kb.environments.MovingOptimum(), 0.5, 50),
    ):
        policy = kb.ek_ucb(kb.Gaussian(lengthscale), regularization=0.1, seed=0)
        kb.run(policy, environment, rounds, seed=0)
        offer = environment.next_round(np.random.default_rng(0))
        for count in (1000, 10_000):
            generator = np.random.default_rng(1)
            contexts = generator.random((16, len(offer.context)))
            actions = generator.random((count, offer.rows.shape[1]))

            def pruned(repeat: int, policy: kb.Policy = policy, contexts=contexts, actions=actions) -> None:  # type: ignore[no-untyped-def]
                policy.select(contexts[repeat % 16], actions)

            def plain(repeat: int, policy: kb.Policy = policy, contexts=contexts, actions=actions) -> None:  # type: ignore[no-untyped-def]
                minimum, nystrom.PRUNING_MINIMUM = nystrom.PRUNING_MINIMUM, 10**9
                try:
                    policy.select(contexts[repeat % 16], actions)
                finally:
                    nystrom.PRUNING_MINIMUM = minimum

            with_, without = interleaved_medians([pruned, plain], 64, blocks=4)
            rows.append(
                {
                    "posterior": label,
                    "m": policy.dictionary_size,
                    "actions": count,
                    "plain, ms": 1e3 * without,
                    "pruned, ms": 1e3 * with_,
                    "speed-up": without / with_,
                }
            )
    return rows
