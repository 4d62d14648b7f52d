"""Pruning of large action sets: what it saves on posteriors of real runs, and what it costs where it does not help."""

from __future__ import annotations

import numpy as np
from measure import interleaved_medians

import kernel_bandits as kb
from kernel_bandits.posterior import nystrom as looking


def after_rounds(
    environment: kb.environments.Environment, lengthscale: float, rounds: int
) -> tuple[kb.Policy, int, int]:
    """EK-UCB after this many rounds, and the columns of contexts and actions."""
    policy = kb.ek_ucb(kb.Gaussian(lengthscale), regularization=0.1, seed=0)
    kb.run(policy, environment, rounds, seed=0)
    offer = environment.next_round(np.random.default_rng(0))
    return policy, len(offer.context), offer.rows.shape[1]


def after_nothing(rows: int, columns: int) -> tuple[kb.Policy, int, int]:
    """EK-UCB that has seen rewards of zero far apart: every action may be the best one."""
    generator = np.random.default_rng(0)
    policy = kb.ek_ucb(kb.Gaussian(0.3), regularization=0.1, seed=0)
    policy.update_many(generator.random((rows, 1)), generator.random((rows, columns)), np.zeros(rows))
    return policy, 1, columns


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for label, (policy, context_columns, action_columns) in {
        "MovingOptimum after 2,000 rounds": after_rounds(kb.environments.MovingOptimum(), 0.5, 2000),
        "Chessboard after 2,000 rounds": after_rounds(kb.environments.Chessboard(), 0.1, 2000),
        "Bump after 2,000 rounds": after_rounds(kb.environments.Bump(), 1.0, 2000),
        "MovingOptimum after 50 rounds": after_rounds(kb.environments.MovingOptimum(), 0.5, 50),
        "100 rewards of zero": after_nothing(100, 8),
        "600 rewards of zero": after_nothing(600, 8),
    }.items():
        for count in (1000, 10_000):
            generator = np.random.default_rng(1)
            contexts = generator.random((16, context_columns))
            actions = generator.random((count, action_columns))

            def pruned(repeat: int, policy: kb.Policy = policy, contexts=contexts, actions=actions) -> None:  # type: ignore[no-untyped-def]
                policy.select(contexts[repeat % 16], actions)

            def plain(repeat: int, policy: kb.Policy = policy, contexts=contexts, actions=actions) -> None:  # type: ignore[no-untyped-def]
                minimum, looking.MINIMUM_ACTIONS = looking.MINIMUM_ACTIONS, 10**9
                try:
                    policy.select(contexts[repeat % 16], actions)
                finally:
                    looking.MINIMUM_ACTIONS = minimum

            with_, without = interleaved_medians([pruned, plain], 64)
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
