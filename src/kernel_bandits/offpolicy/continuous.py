"""The value of continuous actions: weights from a smoothing kernel around the candidate's action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.special import ndtr

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import ContinuousLog
from kernel_bandits.offpolicy import estimators
from kernel_bandits.offpolicy.candidates import ContinuousCandidate, continuous_actions
from kernel_bandits.offpolicy.estimators import Rounds
from kernel_bandits.offpolicy.intervals import Method, interval
from kernel_bandits.offpolicy.overlap import overlap_of
from kernel_bandits.offpolicy.reward_model import RewardModel
from kernel_bandits.offpolicy.valuation import Estimate, Valuation

# Bandwidths to choose from, in standard deviations of what was played.
BANDWIDTHS = tuple(0.05 * 2.0 ** (0.5 * step) for step in range(10))
# Estimates this many standard errors apart, in all, count as different.
INTERVAL_ERRORS = 2.0


def gaussian(offsets: FloatArray) -> FloatArray:
    """Return the standard normal density."""
    return np.exp(-0.5 * offsets**2) / np.sqrt(2.0 * np.pi)


def epanechnikov(offsets: FloatArray) -> FloatArray:
    """Return ¾(1 − u²) on [−1, 1]."""
    return 0.75 * np.maximum(1.0 - offsets**2, 0.0)


def _epanechnikov_mass(offsets: FloatArray) -> FloatArray:
    """Return ∫ of the kernel from −1 to u."""
    clipped = np.clip(offsets, -1.0, 1.0)
    return 0.5 + 0.75 * (clipped - clipped**3 / 3.0)


_MASSES: dict[Callable[[FloatArray], FloatArray], Callable[[FloatArray], FloatArray]] = {
    gaussian: ndtr,
    epanechnikov: _epanechnikov_mass,
}
_SMOOTHERS = {"gaussian": gaussian, "epanechnikov": epanechnikov}


def smoothed_weights(
    played: FloatArray,
    wanted: FloatArray,
    densities: FloatArray,
    bandwidths: FloatArray,
    smoother: str = "epanechnikov",
    box: Box | None = None,
) -> FloatArray:
    """Return w = Π_j K((a_j − τ_j)/h_j)/h_j / density, shape (n,) (Kallus & Zhou 2018).

    Args:
        played: a, shape (n, d_a).
        wanted: τ, the candidate's actions, shape (n, d_a).
        densities: of what was played, shape (n,).
        bandwidths: h, one for each coordinate, shape (d_a,).
        smoother: ``"epanechnikov"`` or ``"gaussian"``.
        box: the actions there are. Near its walls part of the kernel lies outside, and the rest is scaled up.
    """
    if smoother not in _SMOOTHERS:
        raise InputError(f"smoother: expected 'epanechnikov' or 'gaussian', got {smoother!r}.")
    kernel = _SMOOTHERS[smoother]
    values = kernel((wanted - played) / bandwidths) / bandwidths
    if box is not None:
        mass = _MASSES[kernel]
        values /= mass((box.high - wanted) / bandwidths) - mass((box.low - wanted) / bandwidths)
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
    smoother: str = "epanechnikov",
    box: Box | None = None,
    level: float = 0.95,
    interval_method: Method = "bootstrap",
    seed: int = 0,
) -> Valuation:
    """Estimate what a candidate would have earned in the rounds of a log of continuous actions.

    Args:
        log: of a policy that drew its actions from a density.
        candidate: a policy, with ``box``; a function from a context to an action; or actions, shape (n, d_a) or (d_a,).
        model: of the rewards, cross-fitted; None for the estimators that need none.
        bandwidth: h, in standard deviations of what was played; by default chosen from the data, by SLOPE.
        smoother: ``"epanechnikov"`` or ``"gaussian"``.
        box: the actions there are.
        level: of the intervals.
        interval_method: as for :func:`evaluate`.
        seed: of the bootstrap.
    """
    wanted = continuous_actions(log, candidate, box)
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
            smoothed_weights(log.actions, wanted, log.densities, multiple * spread, smoother, box),
            log.rewards,
            predicted,
            direct,
        )
        for multiple in multiples
    }
    families = {"inverse propensity": estimators.inverse_propensity, "self-normalised": estimators.self_normalised}
    if model is not None:
        families = {"doubly robust": estimators.doubly_robust, **families, "direct method": estimators.direct_method}
    estimates, terms, used = {}, {}, {}
    for name, family in families.items():
        multiple, values = _best_bandwidth(tried, family)
        low, high = interval(values, level, interval_method, np.random.default_rng(seed))
        error = float(values.std() / np.sqrt(len(values)))
        chosen = None if family is estimators.direct_method else multiple
        estimates[name] = Estimate(float(values.mean()), low, high, error, chosen)
        terms[name], used[name] = values, multiple
    first = next(iter(terms))
    difference = terms[first] - log.rewards
    low, high = interval(difference, level, interval_method, np.random.default_rng(seed))
    gain = Estimate(float(difference.mean()), low, high, float(difference.std() / np.sqrt(len(difference))))
    overlap = overlap_of(tried[used[first]].weights)
    return Valuation(estimates, overlap, float(log.rewards.mean()), gain, level, terms)


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
