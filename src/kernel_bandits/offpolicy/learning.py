"""Start a policy from a log, and say what it would earn before it decides anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_bandits.confidence import GuaranteedRadius
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log
from kernel_bandits.offpolicy.candidates import Play, fresh_policy, preset_of
from kernel_bandits.offpolicy.reward_model import RewardModel, Written
from kernel_bandits.offpolicy.valuation import Valuation, evaluate, fitted_model
from kernel_bandits.policy.policy import Policy
from kernel_bandits.tables.policy import TablePolicy


@dataclass(frozen=True)
class LearnedFrom:
    """A policy that has learned a log.

    Attributes:
        policy: a copy of the one that was given, which has learned all rounds and may go on.
        valuation: what policies like it earn on the rounds that they have not learned.
        weighted: whether rounds were weighted by their propensities.
    """

    policy: Policy
    valuation: Valuation
    weighted: bool

    def __str__(self) -> str:
        how = "weighted by propensities" if self.weighted else "all alike"
        return f"learned {self.policy.round_index:,} rounds, {how}\n{self.valuation}\n{self.valuation.verdict}"


def learn_from(
    log: Log,
    policy: Policy | str | Callable[..., Policy],
    *,
    weighted: bool | None = None,
    model: RewardModel | None = RewardModel(),  # noqa: B008 (frozen)
    written_by: Written = "fixed",
    level: float = 0.95,
    seed: int = 0,
) -> LearnedFrom:
    """Teach a policy a log, and estimate what it would earn by cross-fitting.

    A policy is a regression of rewards on context and action. How likely an action was does not bias it where the
    policy sees all that the log's choices depended on, and weights only add variance there. Where the choices depended
    on a column that the policy does not see, the plain regression takes the effect of that column for the action's.
    Rounds are then weighted by the share of their action over its propensity, which makes actions independent of that
    column.

    The value is that of policies that learn one part of the rounds each and decide in the others, so the policy that
    has learned all of them should be no worse.

    Args:
        log: in memory.
        policy: a fresh one, which stays as it is, or a preset or its name, such as ``"ek_ucb"``.
        weighted: whether to weight rounds by share/propensity. By default if the log is a table with columns that the
            policy does not read. No radius with a guarantee covers such weights, whose rounds keep their noise.
        model: of the rewards, for the value.
        written_by: as for :func:`evaluate`.
        level: of the intervals.
        seed: of folds and intervals.
    """
    if not isinstance(log, Log):
        raise InputError("log: expected a Log in memory, as kb.logs.read returns; teach larger ones by kb.logs.learn.")
    preset = None if isinstance(policy, Policy) else preset_of(policy)
    if preset is not None:
        policy = fresh_policy(log, preset, seed)
    if not isinstance(policy, Policy):
        raise InputError(f"policy: expected a policy, or a preset such as 'ek_ucb', got {policy!r}.")
    if policy.round_index or policy.pending:
        raise InputError("policy: expected one that has learned nothing yet.")
    if weighted is None:
        weighted = _reads_less(policy, log)
    weights = None
    if weighted:
        _refuse_guarantee(policy)
        # share(a)/p, whose mean is about 1
        shares = np.bincount(log.played, minlength=len(log.names)) / len(log)
        weights = shares[log.played] / log.propensities
    fitted = fitted_model(log, model, written_by)
    play = Play.learned(log, policy, fitted, seed, written_by, weights)
    valuation = evaluate(log, play, model=fitted, written_by=written_by, level=level, seed=seed)
    return LearnedFrom(log.taught(policy, weights), valuation, weighted)


def _refuse_guarantee(policy: Policy) -> None:
    """Raise if the policy has a radius with a guarantee."""
    radius = getattr(policy.inner if isinstance(policy, TablePolicy) else policy, "confidence", None)
    if isinstance(radius, GuaranteedRadius):
        raise InputError(
            f"confidence: {type(radius).__name__} takes a reward of weight w for one with noise of R/√w, and rounds "
            "weighted by propensities keep their noise. Write weighted=False, or give kernel_bandits."
            "StandardDeviations(…), which has no guarantee."
        )


def _reads_less(policy: Policy, log: Log) -> bool:
    """Return whether a log has columns that a policy does not see."""
    names: Any = log.columns if log.features is None else log.features.context
    own = policy.features.context if isinstance(policy, TablePolicy) else names
    return isinstance(own, dict) and bool(set(names) - set(own))
