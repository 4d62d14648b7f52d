"""Replay: what a policy that learns would have earned, from the rounds in which it agrees with the log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log, some_of
from kernel_bandits.offpolicy.intervals import bootstrap
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


def replay(
    policy: Policy, log: Log, *, least_propensity: float | None = None, level: float = 0.95, seed: int = 0
) -> Replay:
    """Let a policy play the rounds of a log, and learn from those in which it chooses what was played.

    A round in which both agree is kept with probability c/p, where p is the propensity and c a lower bound of the
    propensity of every action in every round, so that what is kept is as if the log had been uniform (Li et al. 2011,
    with rejection). The rewards that remain are those that the policy would have met.

    Args:
        policy: learns in place.
        log: with a propensity in every round.
        least_propensity: c; by default the least of the logged probabilities of all actions. The least propensity of
            what was *played* is larger where an action is rare, and keeps too much of it.
        level: of the interval of the mean reward.
        seed: of the rejection and the bootstrap.
    """
    if not isinstance(policy, Policy):
        raise InputError(
            f"policy: expected a policy that learns in place, got {type(policy).__name__}; build one, such as "
            "kb.ek_ucb(features=log.features) for a table."
        )
    least = _least(log, least_propensity)
    generator = np.random.default_rng(seed)
    coins = generator.random(len(log))
    kept = []
    for row in range(len(log)):
        contexts, actions = log.seen_by(policy, slice(row, row + 1))
        allowed = np.arange(len(log.names)) if log.offered is None else np.flatnonzero(log.offered[row])
        decision = policy.select(contexts[0], some_of(actions, allowed))
        if allowed[decision.index] == log.played[row] and coins[row] * log.propensities[row] < least:
            policy.update(contexts[0], decision.action, float(log.rewards[row]))
            kept.append(float(log.rewards[row]))
    rewards = np.array(kept)
    if not kept:
        return Replay(rewards, len(log), np.nan, -np.inf, np.inf)
    low, high = bootstrap(rewards, level, generator)
    return Replay(rewards, len(log), float(rewards.mean()), low, high)


def _least(log: Log, given: float | None) -> float:
    """Return a lower bound of all propensities, given or logged."""
    if given is None:
        table = log.known_probabilities
        if table is None:
            raise InputError(
                "least_propensity: expected a lower bound of the propensity of every action, such as ε/A for a floor "
                "ε, since the log has only those of what was played."
            )
        given = float(np.min(table, where=True if log.offered is None else log.offered, initial=1.0))
        if not given > 0.0:
            raise InputError(
                "log: some actions had the probability 0, so what a policy would have met there is unknown."
            )
    if not 0.0 < given <= float(log.propensities.min()) * (1.0 + 1e-9):
        raise InputError(
            f"least_propensity: expected above 0 and at most {log.propensities.min():.4g}, the least of what was "
            f"played, got {given!r}."
        )
    return given
