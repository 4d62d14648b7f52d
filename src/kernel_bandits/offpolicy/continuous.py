"""The value of continuous actions: weights from a smoothing kernel around the candidate's action."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_vector
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import ContinuousLog, blocks
from kernel_bandits.offpolicy import estimators
from kernel_bandits.offpolicy.estimators import Rounds
from kernel_bandits.offpolicy.overlap import Plays, overlap_of
from kernel_bandits.offpolicy.reward_model import RewardModel
from kernel_bandits.offpolicy.valuation import Valuation, bootstrapped
from kernel_bandits.policy.policy import Policy

ContinuousCandidate: TypeAlias = Policy | Callable[[FloatArray], Any] | FloatArray | float
# Decisions that are made at once.
ROWS_AT_ONCE = 4096
# Bandwidths to choose from, in standard deviations of what was played.
BANDWIDTHS = tuple(0.05 * 2.0 ** (0.5 * step) for step in range(10))
# Estimates this many standard errors apart, in all, count as different.
INTERVAL_ERRORS = 2.0


def _mass(offsets: FloatArray) -> FloatArray:
    """Return ∫ K from −1 to u."""
    clipped = np.clip(offsets, -1.0, 1.0)
    return 0.5 + 0.75 * (clipped - clipped**3 / 3.0)


def smoothed_weights(
    played: FloatArray,
    wanted: FloatArray,
    densities: FloatArray,
    bandwidths: FloatArray,
    box: Box | None = None,
) -> FloatArray:
    """Return w = Π_j K((a_j − τ_j)/h_j)/h_j / density, shape (n,) (Kallus & Zhou 2018).

    K is the kernel of Epanechnikov, ¾(1 − u²) on [−1, 1].

    Args:
        played: a, shape (n, d_a).
        wanted: τ, the candidate's actions, shape (n, d_a).
        densities: of what was played, shape (n,).
        bandwidths: h, one for each coordinate, shape (d_a,).
        box: the actions there are. Near its walls part of the kernel lies outside, and the rest is scaled up.
    """
    values = 0.75 * np.maximum(1.0 - ((wanted - played) / bandwidths) ** 2, 0.0) / bandwidths
    if box is not None:
        values /= _mass((box.high - wanted) / bandwidths) - _mass((box.low - wanted) / bandwidths)
    return values.prod(axis=1) / densities


def chosen_bandwidth(values: Sequence[float], errors: Sequence[float]) -> int:
    """Return which of several estimates to use, in order of decreasing bandwidth.

    This is SLOPE (Su, Srinath and Krishnamurthy 2020). Wider kernels vary less and are more biased. The widest is
    chosen whose interval meets those of all narrower ones.
    """
    low, high = -np.inf, np.inf
    chosen = len(values) - 1
    for index in range(len(values) - 1, -1, -1):
        low = max(low, values[index] - INTERVAL_ERRORS * errors[index])
        high = min(high, values[index] + INTERVAL_ERRORS * errors[index])
        if low > high:
            break
        chosen = index
    return chosen


def evaluate_continuous(
    log: ContinuousLog,
    candidate: ContinuousCandidate,
    *,
    model: RewardModel | None = RewardModel(),  # noqa: B008 (frozen)
    bandwidth: float | None = None,
    box: Box | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Valuation:
    """Estimate what a candidate would have earned in the rounds of a log of continuous actions.

    Args:
        log: of a policy that drew its actions from a density.
        candidate: a policy, with ``box``; a function from a context to an action; or actions, shape (n, d_a) or (d_a,).
        model: of the rewards, cross-fitted; None for the estimators that need none.
        bandwidth: h, in standard deviations of what was played; by default chosen from the data, by SLOPE.
        box: the actions there are.
        level: of the intervals.
        seed: of the bootstrap.
    """
    wanted = _actions(log, candidate, box)
    predicted, direct = np.zeros(len(log)), np.zeros(len(log))
    if model is not None:
        fitted = model.fit(log)
        predicted = fitted.predict_points(np.hstack([log.contexts, log.actions]))
        direct = fitted.predict_points(np.hstack([log.contexts, wanted]))
    spread = log.actions.std(axis=0)
    if not (spread > 0.0).all():
        raise InputError("log: one coordinate of the action never varied; drop it.")
    multiples = sorted(BANDWIDTHS if bandwidth is None else (bandwidth,), reverse=True)
    tried = {
        multiple: Rounds(
            smoothed_weights(log.actions, wanted, log.densities, multiple * spread, box), log.rewards, predicted, direct
        )
        for multiple in multiples
    }
    families = {"inverse propensity": estimators.inverse_propensity, "self-normalised": estimators.self_normalised}
    if model is not None:
        families = {"doubly robust": estimators.doubly_robust, **families, "direct method": estimators.direct_method}
    estimates, gains, terms, used = {}, {}, {}, {}
    for name, family in families.items():
        multiple, values = _best_bandwidth(tried, family)
        estimates[name] = bootstrapped(values, level, seed, None if family is estimators.direct_method else multiple)
        gains[name] = bootstrapped(values - log.rewards, level, seed)
        terms[name], used[name] = values, multiple
    overlap = overlap_of([Plays.unknown(tried[used[next(iter(terms))]].weights)])
    return Valuation(estimates, gains, overlap, float(log.rewards.mean()), level, terms, np.ones(len(log)))


def _best_bandwidth(tried: Mapping[float, Rounds], family: Callable[[Rounds], FloatArray]) -> tuple[float, FloatArray]:
    """Return the bandwidth that :func:`chosen_bandwidth` picks for an estimator, and the terms there."""
    terms = {multiple: family(rounds) for multiple, rounds in tried.items()}
    usable = {multiple: values for multiple, values in terms.items() if np.isfinite(values).all()}
    if not usable:
        raise InputError("log: no round lies near the candidate's actions; log more, or give a larger bandwidth=.")
    errors = [float(values.std() / np.sqrt(len(values))) for values in usable.values()]
    place = chosen_bandwidth([float(values.mean()) for values in usable.values()], errors)
    multiple = list(usable)[place]
    return multiple, usable[multiple]


def _actions(log: ContinuousLog, candidate: ContinuousCandidate, box: Box | None) -> FloatArray:
    """Return the action of a candidate in every round of a log, shape (n, d_a).

    A policy that chooses at random is evaluated at one draw for each round.
    """
    width = log.actions.shape[1]
    if isinstance(candidate, Policy):
        if box is None:
            raise InputError("box: expected the Box that the candidate chooses in, got none.")
        own = copy.deepcopy(candidate)
        parts = [own.select_many(log.contexts[rows], box) for rows in blocks(len(log), ROWS_AT_ONCE)]
        return np.array([decision.action for part in parts for decision in part])
    if callable(candidate):
        candidate = np.array([np.reshape(candidate(context), -1) for context in log.contexts], dtype=float)
    actions = np.asarray(candidate, dtype=float)
    if actions.ndim == 0 or actions.shape == (width,):
        actions = np.broadcast_to(as_vector("candidate", np.atleast_1d(actions), width), (len(log), width))
    if actions.shape != (len(log), width) or not np.isfinite(actions).all():
        raise InputError(f"candidate: expected finite actions of shape ({len(log)}, {width}), got {actions.shape}.")
    return actions
