"""The loop: environment, policy, reward, record."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from kernel_bandits.arrays import InputError, as_count
from kernel_bandits.environments.base import Environment
from kernel_bandits.experiments.records import RunResult
from kernel_bandits.policies.base import Policy
from kernel_bandits.randomness import Seed, stream


def run(
    policy: Policy,
    environment: Environment,
    horizon: int,
    seed: Seed = None,
    progress: Callable[[int], None] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> RunResult:
    """Play a policy in an environment.

    Args:
        policy: learns as it goes; afterwards it holds what it has learned.
        environment: draws contexts, offers actions, answers rewards.
        horizon: T, the number of rounds.
        seed: of the contexts and the noise. Policies run with one seed meet the same contexts and the same noise.
        progress: called with the number of finished rounds after each one.
        clock: what ``select`` and ``update`` are timed with, in seconds. ``time.process_time`` counts what this process
            computes, and so is not disturbed by other work on the machine.
    """
    horizon = as_count("horizon", horizon)
    if not isinstance(environment, Environment):
        raise InputError(
            f"environment: expected an Environment instance, got {environment!r}; run(policy, environment, …)."
        )
    contexts, noise = stream(seed, "contexts"), stream(seed, "noise")
    regrets, rewards = np.empty(horizon), np.empty(horizon)
    select_seconds, update_seconds = np.empty(horizon), np.empty(horizon)
    indices, sizes = np.empty(horizon, dtype=np.int64), np.empty(horizon, dtype=np.int64)
    chosen, seen = [], []
    for t in range(horizon):
        offer = environment.next_round(contexts)
        started = clock()
        decision = policy.select(offer.context, offer.actions)
        select_seconds[t] = clock() - started

        expected = environment.expected_rewards(offer.context, offer.actions)
        if np.shape(expected) != (len(offer.actions),):
            raise InputError(
                f"expected_rewards: expected one number per action, shape ({len(offer.actions)},), "
                f"got shape {np.shape(expected)}."
            )
        rewards[t] = expected[decision.index] + environment.noise(noise)
        regrets[t] = expected.max() - expected[decision.index]

        started = clock()
        policy.update(offer.context, decision.action, rewards[t])
        update_seconds[t] = clock() - started
        indices[t], sizes[t] = decision.index, policy.dictionary_size
        chosen.append(decision.action)
        seen.append(offer.context)
        if progress is not None:
            progress(t + 1)
    return RunResult(
        regret=np.cumsum(regrets),
        rewards=rewards,
        action_indices=indices,
        actions=np.array(chosen),
        contexts=np.array(seen),
        dictionary_size=sizes,
        select_seconds=select_seconds,
        update_seconds=update_seconds,
    )
