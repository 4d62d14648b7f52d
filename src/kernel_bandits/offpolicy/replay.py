"""Replay: what a policy that learns would have earned, from the rounds in which it agrees with the log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log
from kernel_bandits.offpolicy.intervals import interval
from kernel_bandits.policy.policy import Policy


@dataclass(frozen=True)
class Replay:
    """The result of a replay.

    Attributes:
        rewards: of the rounds that were played, in order, shape (k,).
        rounds: how many rounds of the log were offered: n.
        value: the mean reward; NaN if no round was played.
        low: the lower end of the interval.
        high: its upper end.
    """

    rewards: FloatArray
    rounds: int
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g}) over {len(self.rewards)} of {self.rounds} rounds"


def replay(policy: Policy, log: Log, *, level: float = 0.95, seed: int = 0) -> Replay:
    """Let a policy play the rounds of a log, and learn from those in which it chooses what was played.

    A round in which both agree is kept with probability c/p, where p is the propensity and c the smallest one in the
    log, so that what is kept is as if the log had been uniform (Li et al. 2011, with rejection). The rewards that
    remain are those that the policy would have met.

    Args:
        policy: learns in place.
        log: with a propensity in every round.
        level: of the interval of the mean reward.
        seed: of the rejection and the bootstrap.
    """
    if not isinstance(policy, Policy):
        raise InputError(f"policy: expected a policy, got {type(policy).__name__}.")
    generator = np.random.default_rng(seed)
    least = float(log.propensities.min())
    coins = generator.random(len(log))
    kept = []
    for row, context in enumerate(log.contexts):
        decision = policy.select(context, log.catalogue)
        if decision.index == log.played[row] and coins[row] * log.propensities[row] < least:
            policy.update(context, decision.action, float(log.rewards[row]))
            kept.append(float(log.rewards[row]))
    rewards = np.array(kept)
    if not kept:
        return Replay(rewards, len(log), np.nan, -np.inf, np.inf)
    low, high = interval(rewards, level, "bootstrap", generator)
    return Replay(rewards, len(log), float(rewards.mean()), low, high)
