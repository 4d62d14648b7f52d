"""The value of a candidate from a log, by all estimators, with intervals; and the difference of two candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log, action_features, blocks
from kernel_bandits.offpolicy import estimators
from kernel_bandits.offpolicy.candidates import Candidate, Play
from kernel_bandits.offpolicy.estimators import Rounds
from kernel_bandits.offpolicy.intervals import Method, interval, studentised
from kernel_bandits.offpolicy.overlap import Overlap, overlap_of
from kernel_bandits.offpolicy.reward_model import CrossFit, RewardModel

# Rounds times actions that are looked at together.
CELLS_AT_ONCE = 32_768
# The estimate to read first. The direct method varies less, but its interval leaves out the errors of the model.
RECOMMENDED = "doubly robust"
# Estimators whose terms have the value as expectation, given the rounds before.
UNBIASED = ("inverse propensity", RECOMMENDED)
# How the log was written: by a rule that stays as it is, or by a policy that learned meanwhile.
Written: TypeAlias = Literal["fixed", "learning"]
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
    log: Any,
    candidate: Candidate,
    *,
    model: RewardModel | CrossFit | None = RewardModel(),  # noqa: B008 (frozen)
    shrinkage: float | None = None,
    threshold: float | None = None,
    embedding: Sequence[str] | ArrayLike | None = None,
    written_by: Written = "fixed",
    level: float = 0.95,
    interval_method: Method = "bootstrap",
    term_width: float | None = None,
    seed: int = 0,
) -> Valuation:
    """Estimate what a candidate would have earned in the rounds of a log.

    Args:
        log: a :class:`Log` of a policy that chose at random, or what :func:`kernel_bandits.logs.scan` returns.
        candidate: a policy, which stays as it is, or the file of a saved one; the name or number of an action; a preset
            or its name, which learns the rounds of the log that it is not judged on; a function of context and actions
            that returns a row or probabilities, or of the row of a table, and perhaps of the actions on offer, that
            returns a name or a mapping from names to probabilities; or a table of probabilities, shape (n, A). A policy
            that has learned these rounds is judged too well: keep some for the evaluation.
        model: of the rewards, or what :func:`fitted_model` returned for this log, to fit it once for several
            candidates; None for the estimators that need none.
        shrinkage: λ of the shrunk doubly robust estimate; by default the one with the least upper
            estimate of the squared error.
        threshold: τ of the switch estimate, likewise.
        embedding: the columns of described actions, or labels (A,) or (A, k), through which alone actions matter: adds
            the marginalised estimates. The log needs ``probabilities`` for them.
        written_by: ``"learning"`` if the policy that wrote the log learned from it. Rounds are then weighted by how
            much each can say, and models learn earlier rounds alone; see docs.
        level: of the intervals.
        interval_method: ``"bootstrap"`` or ``"bernstein"``, as in :func:`~kernel_bandits.offpolicy.interval`.
        term_width: for ``"bernstein"``, the length of an interval that holds every possible term.
        seed: of presets and of the bootstrap.
    """
    if written_by not in ("fixed", "learning"):
        raise InputError(f"written_by: expected 'fixed' or 'learning', got {written_by!r}.")
    fitted = fitted_model(log, model, written_by)
    rounds, overlap, information = summarise(log, Play.of(log, candidate, fitted, seed), fitted, embedding)
    settings = _Settings(level, interval_method, term_width, seed, written_by, information)
    return _valuation(log, rounds, overlap, fitted is not None, (shrinkage, threshold), settings)


def fitted_model(log: Any, model: RewardModel | CrossFit | None, written_by: Written = "fixed") -> CrossFit | None:
    """Return the models of a log: of other folds, or of earlier rounds where a policy that learned wrote it."""
    if isinstance(model, RewardModel):
        return model.fit(log, "apart" if written_by == "fixed" else "before")
    if model is not None and len(model.folds) != len(log):
        raise InputError(f"model: it was fitted to {len(model.folds)} rows, and the log has {len(log)}; fit it again.")
    return model


def compare(
    log: Any,
    first: Candidate,
    second: Candidate,
    *,
    model: RewardModel | CrossFit | None = RewardModel(),  # noqa: B008 (frozen)
    written_by: Written = "fixed",
    level: float = 0.95,
    interval_method: Method = "bootstrap",
    seed: int = 0,
) -> Comparison:
    """Estimate how much more the first candidate would have earned than the second, round by round.

    The arguments are those of :func:`evaluate`. The interval of a paired difference is shorter than those of the two
    values: what both have in common cancels.
    """
    fitted = fitted_model(log, model, written_by)
    found = []
    for each in (first, second):
        rounds, overlap, information = summarise(log, Play.of(log, each, fitted, seed), fitted)
        settings = _Settings(level, interval_method, None, seed, written_by, information)
        found.append(_valuation(log, rounds, overlap, fitted is not None, (None, None), settings))
    one, other = found
    differences = {name: one.terms[name] - other.terms[name] for name in one.terms}
    return Comparison(_estimates(differences, {}, settings), one, other)


@dataclass(frozen=True, slots=True)
class _Settings:
    """What turns terms into estimates; ``information`` are weights of the rounds that were known before each."""

    level: float
    method: Method
    width: float | None
    seed: int
    written_by: Written
    information: FloatArray

    def interval(self, terms: FloatArray, adaptive: bool) -> tuple[float, float, float, float]:
        """Return mean, ends and standard error of terms."""
        if adaptive and self.written_by == "learning":
            return studentised(terms, self.information, self.level)
        low, high = interval(terms, self.level, self.method, np.random.default_rng(self.seed), self.width)
        return float(terms.mean()), low, high, float(terms.std() / np.sqrt(len(terms)))


def _valuation(
    log: Any,
    rounds: Rounds,
    overlap: Overlap,
    has_model: bool,
    parameters: tuple[float | None, float | None],
    settings: _Settings,
) -> Valuation:
    terms, chosen = all_terms(rounds, has_model, *parameters)
    estimates = _estimates(terms, chosen, settings)
    first = RECOMMENDED if RECOMMENDED in terms else next(iter(terms))
    gain = _estimate(terms[first] - rounds.rewards, None, settings, first in UNBIASED)
    return Valuation(estimates, overlap, float(rounds.rewards.mean()), gain, settings.level, terms)


def _estimates(
    terms: Mapping[str, FloatArray], chosen: Mapping[str, float], settings: _Settings
) -> dict[str, Estimate]:
    """Return the estimate of each estimator's terms, with the parameters that were chosen."""
    unbiased = dict.fromkeys(SHRUNK, terms.get(RECOMMENDED))
    return {
        name: _estimate(values, chosen.get(name), settings, name in UNBIASED, unbiased.get(name))
        for name, values in terms.items()
    }


def _estimate(
    terms: FloatArray,
    parameter: float | None,
    settings: _Settings,
    adaptive: bool,
    unbiased: FloatArray | None = None,
) -> Estimate:
    """Return the estimate of some terms, with an interval that allows for their bias against unbiased ones."""
    if not np.isfinite(terms).all():
        return Estimate(np.nan, -np.inf, np.inf, np.inf, parameter)
    value, low, high, error = settings.interval(terms, adaptive)
    if unbiased is not None and np.isfinite(unbiased).all():
        # it also covers the same interval about the unbiased mean
        bias = float((unbiased - terms).mean())
        low, high = low + min(bias, 0.0), high + max(bias, 0.0)
    return Estimate(value, low, high, error, parameter)


def all_terms(
    rounds: Rounds, has_model: bool, shrinkage: float | None = None, threshold: float | None = None
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Return the terms of every estimator by name, and the parameters that were chosen."""
    terms = {
        "inverse propensity": estimators.inverse_propensity(rounds),
        "self-normalised": estimators.self_normalised(rounds),
    }
    if rounds.marginal is not None:
        terms["marginalised"] = estimators.marginalised(rounds)
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
    if rounds.marginal is not None:
        terms["marginalised doubly robust"] = estimators.marginalised_doubly_robust(rounds)
    shrunk_terms = (
        estimators.shrunk_doubly_robust(rounds, shrinkage),
        estimators.switch_doubly_robust(rounds, threshold),
    )
    terms.update(zip(SHRUNK, shrunk_terms, strict=True))
    return terms, dict(zip(SHRUNK, (shrinkage, threshold), strict=True))


def summarise(
    log: Any, play: Play, fitted: CrossFit | None, embedding: Sequence[str] | ArrayLike | None = None
) -> tuple[Rounds, Overlap, FloatArray]:
    """Return what the estimators need, how much the log can say, and the weights of adaptive intervals."""
    labels = None if embedding is None else action_labels(log, embedding)
    played = np.zeros(len(log.names), dtype=bool)
    parts, wanted, spreads = [], np.zeros(len(log.names)), []
    for part, probabilities, predicted in looked_at(log, play, fitted):
        each = np.arange(len(part))
        weights = probabilities[each, part.played] / part.propensities
        direct = np.zeros(len(part)) if predicted is None else np.vecdot(probabilities, predicted)
        of_played = np.zeros(len(part)) if predicted is None else predicted[each, part.played]
        marginal = None if labels is None else estimators.marginal_weights(probabilities, part, labels)
        parts.append(Rounds(weights, part.rewards, of_played, direct, marginal))
        played[part.played] = True
        wanted += probabilities.sum(axis=0)
        spreads.append(weighted_spread(probabilities, part))
    rounds = Rounds.joined(parts)
    overlap = overlap_of(rounds.weights, float(wanted[~played].sum()) / len(rounds.rewards), log.left_out)
    # without contexts the probabilities of a round are known before it, and so is its own spread
    known = getattr(log, "features", None) is None and np.shape(getattr(log, "contexts", ((0,),)))[-1] == 0
    return rounds, overlap, estimators.stabilising_weights(np.concatenate(spreads), known)


def weighted_spread(probabilities: FloatArray, part: Log) -> FloatArray:
    """Return an estimate of Σ_a π²(a)/p(a), the variance of a weight plus one; exact where p is logged."""
    if part.probabilities is None:
        each = np.arange(len(part))
        return (probabilities[each, part.played] / part.propensities) ** 2
    ratio = np.divide(
        probabilities**2, part.probabilities, out=np.zeros_like(probabilities), where=part.probabilities > 0.0
    )
    return ratio.sum(axis=1)


def looked_at(
    log: Any, play: Play, fitted: CrossFit | None, every_action: bool = False
) -> Iterator[tuple[Log, FloatArray, FloatArray | None]]:
    """Yield a log block by block: rounds, the candidate's probabilities, and predicted rewards (n, A).

    Rewards are predicted where the log or the candidate plays, or of every action.
    """
    for rows in blocks(len(log), max(1, CELLS_AT_ONCE // len(log.names))):
        part = log.rows(rows)
        probabilities = play.rows(rows).probabilities(part, rows.start)
        if fitted is None:
            yield part, probabilities, None
            continue
        needed = np.ones(probabilities.shape, dtype=bool) if every_action else probabilities > 0.0
        needed[np.arange(len(part)), part.played] = True
        predicted = fitted.rows(rows).predict(part, needed)
        # before the first model there is a constant
        yield part, probabilities, np.where(np.isnan(predicted), 0.0, predicted)


def action_labels(log: Any, embedding: Sequence[str] | ArrayLike) -> NDArray[np.intp]:
    """Return a number for each action, the same for actions that do not differ in an embedding."""
    if isinstance(embedding, (list, tuple)) and embedding and all(isinstance(name, str) for name in embedding):
        rows = [action_features(log, action) for action in log.catalogue]
        known = sorted({name for row in rows for name in row})
        missing = [name for name in embedding if any(name not in row for row in rows)]
        if missing:
            raise InputError(f"embedding: expected columns of the actions ({', '.join(known)}), got {missing[0]!r}.")
        kinds = [tuple(row[name] for name in embedding) for row in rows]
    else:
        values = np.asarray(embedding)
        if len(values) != len(log.names):
            raise InputError(f"embedding: expected a row for each of {len(log.names)} actions, got {len(values)}.")
        kinds = [tuple(np.atleast_1d(value).tolist()) for value in values]
    places = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    return np.array([places[kind] for kind in kinds], dtype=np.intp)
