"""The estimators: arrays of n rounds in, n terms out, whose mean is the estimate.

In all of them w = π(a)/p(a) is the weight of the played action, r its reward, q its predicted reward and v the direct
estimate Σ_a π(a)·q(a) of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log

# The least share of the mean information that a round counts as, so that a single early round cannot decide.
LEAST_INFORMATION = 1e-3


@dataclass(frozen=True, slots=True)
class Rounds:
    """What the estimators need of a log and a candidate, each of shape (n,).

    Attributes:
        weights: w = π(a)/p(a) of the played action.
        rewards: r.
        predicted: q(a) of the played action.
        direct: v = Σ_a π(a)·q(a).
        marginal: π(e)/p(e), the weight of all actions that share the embedding e of the played one; None without one.
    """

    weights: FloatArray
    rewards: FloatArray
    predicted: FloatArray
    direct: FloatArray
    marginal: FloatArray | None = None

    @classmethod
    def joined(cls, parts: Sequence[Rounds]) -> Rounds:
        """Return the rounds of all parts, in order."""
        columns: list[list[Any]] = [[getattr(part, one.name) for part in parts] for one in fields(cls)]
        joined: list[Any] = [None if column[0] is None else np.concatenate(column) for column in columns]
        return cls(*joined)


def inverse_propensity(rounds: Rounds) -> FloatArray:
    """IPS (Horvitz & Thompson 1952): w·r. Unbiased; its variance grows with the weights."""
    return rounds.weights * rounds.rewards


def self_normalised(rounds: Rounds) -> FloatArray:
    """SNIPS (Swaminathan & Joachims 2015): Σwr/Σw, as terms v + w·(r − v)/w̄ whose spread is that of the ratio."""
    mean_weight = float(rounds.weights.mean())
    if mean_weight == 0.0:
        return np.full(len(rounds.weights), np.nan)
    value = float((rounds.weights @ rounds.rewards) / rounds.weights.sum())
    return value + rounds.weights * (rounds.rewards - value) / mean_weight


def direct_method(rounds: Rounds) -> FloatArray:
    """DM: v, the model alone. Biased where the model is."""
    return rounds.direct


def doubly_robust(rounds: Rounds) -> FloatArray:
    """DR (Dudík et al. 2014): v + w·(r − q). Unbiased if either the propensities or the model are right."""
    return rounds.direct + rounds.weights * (rounds.rewards - rounds.predicted)


def shrunk_doubly_robust(rounds: Rounds, shrinkage: float) -> FloatArray:
    """DRos (Su et al. 2020): DR with weights λw/(w² + λ); λ = 0 is DM and λ = ∞ is DR."""
    # λw/(w² + λ) = w/(1 + w²/λ), which has the limits at λ = 0 and ∞
    with np.errstate(divide="ignore", invalid="ignore"):
        shrunk = rounds.weights / (1.0 + rounds.weights**2 / shrinkage) if shrinkage else np.zeros(len(rounds.weights))
    return rounds.direct + shrunk * (rounds.rewards - rounds.predicted)


def switch_doubly_robust(rounds: Rounds, threshold: float) -> FloatArray:
    """Switch-DR (Wang et al. 2017): DR where w ≤ τ, and the model alone elsewhere."""
    kept = np.where(rounds.weights <= threshold, rounds.weights, 0.0)
    return rounds.direct + kept * (rounds.rewards - rounds.predicted)


def marginal_weights(probabilities: FloatArray, log: Log, labels: NDArray[np.intp]) -> FloatArray:
    """Return w(e) = Σ_{a: e(a) = e} π(a) / Σ_{a: e(a) = e} p(a) at the embedding e of the played action (MIPS).

    The probabilities π have shape (n, A), p is that of the log, and labels (A,) tell embeddings apart.
    """
    if log.probabilities is None:
        raise InputError("embedding: the marginal weights need the log's probabilities of every action; log them, too.")
    same = labels[None, :] == labels[log.played][:, None]
    return (probabilities * same).sum(axis=1) / (log.probabilities * same).sum(axis=1)


def marginalised(rounds: Rounds) -> FloatArray:
    """MIPS (Saito & Joachims 2022): w(e)·r. Unbiased if actions matter through their embedding alone."""
    assert rounds.marginal is not None
    return rounds.marginal * rounds.rewards


def marginalised_doubly_robust(rounds: Rounds) -> FloatArray:
    """DR with the weights of MIPS: v + w(e)·(r − q). Unbiased if MIPS is, or if the model is right."""
    assert rounds.marginal is not None
    return rounds.direct + rounds.marginal * (rounds.rewards - rounds.predicted)


def stabilising_weights(spreads: FloatArray, known: bool) -> FloatArray:
    """Return weights h of the rounds that even out the variances of their terms (Hadad et al. 2021).

    h_t = 1/√φ_t, where φ_t = E Σ_a π²(a)/p_t(a) is what the variance of a term is proportional to. It must not depend
    on the round itself: it is that of the round where no context enters it, so that it is known before, and otherwise
    the mean of a tenth of the rounds so far, the last ones.
    """
    expected = spreads
    if not known:
        totals, counts = np.append(0.0, np.cumsum(spreads)), np.arange(len(spreads))
        since = np.minimum(counts - np.maximum(counts // 10, 1), counts).clip(0)
        recent = (totals[counts] - totals[since]) / np.maximum(counts - since, 1)
        expected = np.where(counts > 0, recent, 1.0)
    return 1.0 / np.sqrt(np.maximum(expected, LEAST_INFORMATION))


def squared_error(terms: FloatArray, unbiased: FloatArray) -> float:
    """Return an upper estimate of the squared error of the mean: its variance, and its largest plausible bias.

    The bias is measured against an unbiased estimate. Two standard errors of the difference are added: a model that
    varies little looks precise, and its error is not seen in its own variance.
    """
    difference, count = terms - unbiased, len(terms)
    bias = abs(float(difference.mean())) + 2.0 * float(difference.std()) / np.sqrt(count)
    return float(terms.var()) / count + bias**2


def chosen_parameter(rounds: Rounds, family: Callable[[Rounds, float], FloatArray], parameters: FloatArray) -> float:
    """Return the parameter of a family of estimators with the least estimated squared error."""
    unbiased = doubly_robust(rounds)
    errors = [squared_error(family(rounds, float(value)), unbiased) for value in parameters]
    return float(parameters[int(np.argmin(errors))])


def shrinkages(rounds: Rounds) -> FloatArray:
    """Return values of λ to choose from: from a hundredth to ten thousand times the mean squared weight."""
    scale = max(float((rounds.weights**2).mean()), 1e-12)
    return np.append(scale * np.logspace(-2, 4, 13), np.inf)


def thresholds(rounds: Rounds) -> FloatArray:
    """Return values of τ to choose from: upper quantiles of the weights."""
    return np.unique(np.quantile(rounds.weights, [0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0]))
