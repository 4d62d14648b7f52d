"""The value of a candidate from a log, by all estimators, with intervals; and the difference of two candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log, blocks
from kernel_bandits.offpolicy import estimators
from kernel_bandits.offpolicy.candidates import Candidate, Probabilities
from kernel_bandits.offpolicy.estimators import Rounds
from kernel_bandits.offpolicy.intervals import Method, interval
from kernel_bandits.offpolicy.overlap import Overlap, overlap_of
from kernel_bandits.offpolicy.reward_model import CrossFit, RewardModel

# Rounds times actions that are looked at together.
CELLS_AT_ONCE = 32_768
# The estimate to read first. The direct method varies less, but its interval leaves out the errors of the model.
RECOMMENDED = "doubly robust"
# Estimators that trade some bias for less variance.
SHRUNK = ("shrunk doubly robust", "switch doubly robust")


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated value, with an interval.

    Attributes:
        value: the estimate.
        low: the lower end of the interval.
        high: its upper end.
        standard_error: of the value.
        parameter: the shrinkage, threshold or bandwidth that was chosen; None if there is none.
    """

    value: float
    low: float
    high: float
    standard_error: float
    parameter: float | None = None


@dataclass(frozen=True)
class Valuation:
    """The value of a candidate by several estimators.

    Attributes:
        estimates: by the name of the estimator.
        overlap: diagnostics, with warnings in words.
        logged_value: the mean reward of the log itself.
        gain: how much more the candidate earns than the log did, as a paired difference of the recommended estimate.
        level: of the intervals.
        terms: what each estimate is the mean of, shape (n,).
    """

    estimates: Mapping[str, Estimate]
    overlap: Overlap
    logged_value: float
    gain: Estimate
    level: float
    terms: Mapping[str, FloatArray]

    @property
    def recommended(self) -> Estimate:
        """The estimate to read first."""
        return self.estimates.get(RECOMMENDED) or next(iter(self.estimates.values()))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the log cannot say, in words; empty where all is well."""
        return self.overlap.warnings

    @property
    def verdict(self) -> str:
        """The answer to "should we switch from what was logged to the candidate?", in words."""
        return _verdict(self.gain, self.warnings)

    def __str__(self) -> str:
        return "\n".join([_table(self.estimates, self.level), f"logged {self.logged_value:.4g}", str(self.overlap)])


@dataclass(frozen=True)
class Comparison:
    """The value of one candidate less that of another, as a paired difference over the rounds of a log.

    Attributes:
        estimates: of the difference, by the name of the estimator.
        first: the valuation of the one.
        second: that of the other.
    """

    estimates: Mapping[str, Estimate]
    first: Valuation
    second: Valuation

    @property
    def recommended(self) -> Estimate:
        """The difference to read first."""
        return self.estimates.get(RECOMMENDED) or next(iter(self.estimates.values()))

    @property
    def verdict(self) -> str:
        """The answer to "should we switch from the second to the first?", in words."""
        return _verdict(self.recommended, (*self.first.warnings, *self.second.warnings))

    def __str__(self) -> str:
        return "\n".join([_table(self.estimates, self.first.level), self.verdict])


def _verdict(gain: Estimate, warnings: tuple[str, ...]) -> str:
    if warnings:
        return f"The log cannot answer: {warnings[0]}"
    if gain.low > 0.0:
        return f"Switch: it earns {gain.value:.4g} more ({gain.low:.4g} to {gain.high:.4g})."
    if gain.high < 0.0:
        return f"Stay: it earns {-gain.value:.4g} less ({-gain.high:.4g} to {-gain.low:.4g})."
    return f"Undecided: the difference is {gain.value:.4g} ({gain.low:.4g} to {gain.high:.4g}); log more."


def _table(estimates: Mapping[str, Estimate], level: float) -> str:
    width = max(map(len, estimates))
    lines = [f"{'':{width}} {'value':>10}  {100 * level:g} % interval"]
    for name, one in estimates.items():
        chosen = "" if one.parameter is None else f"  ({one.parameter:.3g})"
        lines.append(f"{name:{width}} {one.value:>10.4g}  {one.low:.4g} to {one.high:.4g}{chosen}")
    return "\n".join(lines)


def evaluate(
    log: Log,
    candidate: Candidate,
    *,
    model: RewardModel | CrossFit | None = RewardModel(),  # noqa: B008 (frozen)
    shrinkage: float | None = None,
    threshold: float | None = None,
    level: float = 0.95,
    interval_method: Method = "bootstrap",
    term_width: float | None = None,
    seed: int = 0,
) -> Valuation:
    """Estimate what a candidate would have earned in the rounds of a log.

    Args:
        log: of a policy that chose at random.
        candidate: a policy, which stays as it is; the name or number of an action; a function of context and actions
            that returns a row or probabilities; or a table of probabilities, shape (n, A). A policy that has learned
            these rounds is judged too well: keep some for the evaluation.
        model: of the rewards, cross-fitted, or what :func:`fitted_model` returned for this log, to fit it once for
            several candidates; None for the estimators that need none.
        shrinkage: λ of the shrunk doubly robust estimate; by default the one with the least upper
            estimate of the squared error.
        threshold: τ of the switch estimate, likewise.
        level: of the intervals.
        interval_method: ``"bootstrap"`` or ``"bernstein"``, as in :func:`~kernel_bandits.offpolicy.interval`.
        term_width: for ``"bernstein"``, the length of an interval that holds every possible term.
        seed: of the bootstrap.
    """
    fitted = fitted_model(log, model)
    return _valuation(log, candidate, fitted, (shrinkage, threshold), (level, interval_method, term_width), seed)


def fitted_model(log: Log, model: RewardModel | CrossFit | None) -> CrossFit | None:
    """Return the cross-fitted models of a log."""
    if isinstance(model, RewardModel):
        return model.fit(log.contexts, log.catalogue[log.played], log.rewards)
    if model is not None and len(model.folds) != len(log):
        raise InputError(f"model: it was fitted to {len(model.folds)} rows, and the log has {len(log)}; fit it again.")
    return model


def compare(
    log: Log,
    first: Candidate,
    second: Candidate,
    *,
    model: RewardModel | CrossFit | None = RewardModel(),  # noqa: B008 (frozen)
    level: float = 0.95,
    interval_method: Method = "bootstrap",
    seed: int = 0,
) -> Comparison:
    """Estimate how much more the first candidate would have earned than the second, round by round.

    The arguments are those of :func:`evaluate`. The interval of a paired difference is shorter than those of the two
    values: what both have in common cancels.
    """
    fitted = fitted_model(log, model)
    settings = (level, interval_method, None)
    one, other = (_valuation(log, each, fitted, (None, None), settings, seed) for each in (first, second))
    differences = {name: one.terms[name] - other.terms[name] for name in one.terms}
    return Comparison(_estimates(differences, {}, settings, seed), one, other)


def _valuation(
    log: Log,
    candidate: Candidate,
    fitted: CrossFit | None,
    parameters: tuple[float | None, float | None],
    settings: tuple[float, Method, float | None],
    seed: int,
) -> Valuation:
    rounds, unseen = summarise(log, candidate, fitted)
    terms, chosen = all_terms(rounds, fitted is not None, *parameters)
    estimates = _estimates(terms, chosen, settings, seed)
    first = RECOMMENDED if RECOMMENDED in terms else next(iter(terms))
    gain = _estimate(terms[first] - log.rewards, None, settings, seed)
    overlap = overlap_of(rounds.weights, unseen)
    return Valuation(estimates, overlap, float(log.rewards.mean()), gain, settings[0], terms)


def _estimates(
    terms: Mapping[str, FloatArray],
    chosen: Mapping[str, float],
    settings: tuple[float, Method, float | None],
    seed: int,
) -> dict[str, Estimate]:
    """Return the estimate of each estimator's terms, with the parameters that were chosen."""
    unbiased = dict.fromkeys(SHRUNK, terms.get(RECOMMENDED))
    return {
        name: _estimate(values, chosen.get(name), settings, seed, unbiased.get(name)) for name, values in terms.items()
    }


def _estimate(
    terms: FloatArray,
    parameter: float | None,
    settings: tuple[float, Method, float | None],
    seed: int,
    unbiased: FloatArray | None = None,
) -> Estimate:
    """Return the estimate of some terms, with an interval that allows for their bias against unbiased ones."""
    level, method, width = settings
    if not np.isfinite(terms).all():
        return Estimate(np.nan, -np.inf, np.inf, np.inf, parameter)
    low, high = interval(terms, level, method, np.random.default_rng(seed), width)
    if unbiased is not None and np.isfinite(unbiased).all():
        # it also covers the same interval about the unbiased mean
        bias = float((unbiased - terms).mean())
        low, high = low + min(bias, 0.0), high + max(bias, 0.0)
    return Estimate(float(terms.mean()), low, high, float(terms.std() / np.sqrt(len(terms))), parameter)


def all_terms(
    rounds: Rounds, has_model: bool, shrinkage: float | None = None, threshold: float | None = None
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Return the terms of every estimator by name, and the parameters that were chosen."""
    terms = {
        "inverse propensity": estimators.inverse_propensity(rounds),
        "self-normalised": estimators.self_normalised(rounds),
    }
    if not has_model:
        return terms, {}
    for name, value in (("shrinkage", shrinkage), ("threshold", threshold)):
        if value is not None and not value >= 0.0:
            raise InputError(f"{name}: expected at least 0, got {value!r}.")
    if shrinkage is None:
        shrunk = estimators.shrunk_doubly_robust
        shrinkage = estimators.chosen_parameter(rounds, shrunk, estimators.shrinkages(rounds))
    if threshold is None:
        switch = estimators.switch_doubly_robust
        threshold = estimators.chosen_parameter(rounds, switch, estimators.thresholds(rounds))
    terms["direct method"] = estimators.direct_method(rounds)
    terms[RECOMMENDED] = estimators.doubly_robust(rounds)
    shrunk_terms = (
        estimators.shrunk_doubly_robust(rounds, shrinkage),
        estimators.switch_doubly_robust(rounds, threshold),
    )
    terms.update(zip(SHRUNK, shrunk_terms, strict=True))
    return terms, dict(zip(SHRUNK, (shrinkage, threshold), strict=True))


def summarise(log: Log, candidate: Candidate, fitted: CrossFit | None) -> tuple[Rounds, float]:
    """Return what the estimators need, and the candidate's mean probability of actions that were never played."""
    table, count = Probabilities(log, candidate), len(log)
    weights, predicted, direct = np.empty(count), np.zeros(count), np.zeros(count)
    seen = np.isin(np.arange(len(log.catalogue)), log.played)
    unseen = 0.0
    for rows in blocks(count, max(1, CELLS_AT_ONCE // len(seen))):
        probabilities, played = table.block(rows), log.played[rows]
        each = np.arange(len(played))
        weights[rows] = probabilities[each, played] / log.propensities[rows]
        unseen += float(probabilities[:, ~seen].sum())
        if fitted is not None:
            rewards = _predicted(log, fitted, probabilities, rows)
            predicted[rows] = rewards[each, played]
            direct[rows] = np.vecdot(probabilities, rewards)
    return Rounds(weights, log.rewards, predicted, direct), unseen / count


def _predicted(log: Log, fitted: CrossFit, probabilities: FloatArray, rows: slice) -> FloatArray:
    """Return the rewards of the actions that the log or the candidate (b, A) plays in some rounds; 0 for the others."""
    needed = probabilities > 0.0
    needed[np.arange(len(needed)), log.played[rows]] = True
    each, actions = np.nonzero(needed)
    rounds = rows.start + each
    rewards = np.zeros(needed.shape)
    rewards[needed] = fitted.predict(np.hstack([log.contexts[rounds], log.catalogue[actions]]), rounds)
    return rewards
