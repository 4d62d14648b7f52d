"""The value of a candidate from a log, by all estimators, with intervals, and its gain over a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_probability
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log, blocks
from kernel_bandits.logs.parts import LogParts
from kernel_bandits.offpolicy import estimators
from kernel_bandits.offpolicy.candidates import Candidate, Play
from kernel_bandits.offpolicy.estimators import Rounds
from kernel_bandits.offpolicy.intervals import bootstrap, studentised
from kernel_bandits.offpolicy.overlap import Overlap, Plays, effective_rounds, overlap_of
from kernel_bandits.offpolicy.reward_model import CrossFit, EarlierMean, RewardModel, Written

# Rounds times actions that are looked at together.
CELLS_AT_ONCE = 32_768
# The estimate to read first. The direct method varies less, but its interval leaves out the errors of the model.
RECOMMENDED = "doubly robust"
# Estimators whose terms have the value as expectation, given the rounds before.
UNBIASED = ("inverse propensity", RECOMMENDED)
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
        gains: how much more the candidate earns than the baseline, or than the log did: paired differences.
        overlap: diagnostics, with warnings in words.
        logged_value: the mean reward of the log itself.
        level: of the intervals.
        terms: what each estimate is the mean of, shape (n,).
        weights: of the rounds in the unbiased estimates, all alike unless the log was written by a policy that learned.
        baseline: the valuation of the baseline; None for the log itself.
    """

    estimates: Mapping[str, Estimate]
    gains: Mapping[str, Estimate]
    overlap: Overlap
    logged_value: float
    level: float
    terms: Mapping[str, FloatArray]
    weights: FloatArray
    baseline: Valuation | None = None

    @property
    def recommended(self) -> Estimate:
        """The estimate to read first."""
        return _first(self.estimates)

    @property
    def gain(self) -> Estimate:
        """The gain to read first."""
        return _first(self.gains)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the log cannot say, in words; empty where all is well."""
        return self.overlap.warnings + (() if self.baseline is None else self.baseline.warnings)

    @property
    def verdict(self) -> str:
        """The answer to "should we switch to the candidate?" for one look at the end, in words."""
        gain = self.gain
        if self.warnings:
            return f"The log cannot answer: {self.warnings[0]}"
        if gain.low > 0.0:
            return f"Switch: it earns {gain.value:.4g} more ({gain.low:.4g} to {gain.high:.4g})."
        if gain.high < 0.0:
            return f"Stay: it earns {-gain.value:.4g} less ({-gain.high:.4g} to {-gain.low:.4g})."
        return f"Undecided: the difference is {gain.value:.4g} ({gain.low:.4g} to {gain.high:.4g}); log more."

    def __str__(self) -> str:
        width = max(map(len, self.estimates))
        lines = [f"{'':{width}} {'value':>10}  {100 * self.level:g} % interval"]
        for name, one in self.estimates.items():
            chosen = "" if one.parameter is None else f"  ({one.parameter:.3g})"
            lines.append(f"{name:{width}} {one.value:>10.4g}  {one.low:.4g} to {one.high:.4g}{chosen}")
        return "\n".join([*lines, f"logged {self.logged_value:.4g}", str(self.overlap)])


def _first(estimates: Mapping[str, Estimate]) -> Estimate:
    return estimates.get(RECOMMENDED) or next(iter(estimates.values()))


def evaluate(
    log: Log | LogParts,
    candidate: Candidate,
    baseline: Candidate | None = None,
    *,
    model: RewardModel | CrossFit | None = RewardModel(),  # noqa: B008 (frozen)
    shrinkage: float | None = None,
    threshold: float | None = None,
    embedding: Sequence[str] | ArrayLike | None = None,
    written_by: Written = "fixed",
    level: float = 0.95,
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
        baseline: another candidate that the gain is measured against; by default what the log itself did. The interval
            of a gain is shorter than those of the two values: what both have in common cancels.
        model: of the rewards, or what :func:`fitted_model` returned for this log, to fit it once for several
            candidates; None for the estimators that need none.
        shrinkage: λ of the shrunk doubly robust estimate; by default the one with the least upper
            estimate of the squared error.
        threshold: τ of the switch estimate, likewise.
        embedding: the columns of described actions, or labels (A,) or (A, k), through which alone actions matter: adds
            the marginalised estimates. The log needs ``probabilities`` for them.
        written_by: ``"learning"`` if the policy that wrote the log learned from it. Rounds are then weighted by how
            much each can say, and models learn earlier rounds alone.
        level: of the intervals, which are for one look at the end; see :func:`verdict` for logs that grow.
        seed: of presets and of the bootstrap.
    """
    as_probability("level", level)
    fitted = fitted_model(log, model, written_by)
    plays = [Play.of(log, one, fitted, seed, written_by) for one in (candidate, baseline) if one is not None]
    values = [_Value.of(log, play, fitted, embedding, written_by, level, seed) for play in plays]
    return values[0].valuation((shrinkage, threshold), *values[1:])


def fitted_model(log: Any, model: RewardModel | CrossFit | None, written_by: Written = "fixed") -> CrossFit | None:
    """Return the models of a log: of other folds, or of earlier rounds where a policy that learned wrote it."""
    require_log(log)
    if written_by not in ("fixed", "learning"):
        raise InputError(f"written_by: expected 'fixed' or 'learning', got {written_by!r}.")
    if isinstance(model, RewardModel):
        return model.fit(log, written_by)
    if model is not None and len(model.folds) != len(log):
        raise InputError(f"model: it was fitted to {len(model.folds)} rows, and the log has {len(log)}; fit it again.")
    if model is not None and model.written_by != written_by:
        raise InputError(
            f"model: it was fitted with written_by={model.written_by!r}, and {written_by!r} is needed here; pass the "
            "RewardModel, or fit it again."
        )
    return model


def require_log(log: Any) -> None:
    """Raise unless this is a log of actions from a catalogue."""
    if not isinstance(log, (Log, LogParts)):
        raise InputError(
            f"log: expected a Log, got {type(log).__name__}; make one of a frame or a file by kb.logs.read(…), and use "
            "evaluate_continuous for densities."
        )


@dataclass(frozen=True, slots=True)
class _Value:
    """What a log says of a candidate, and how intervals are made of it."""

    rounds: Rounds
    overlap: Overlap
    weights: FloatArray
    has_model: bool
    written_by: Written
    level: float
    seed: int

    @classmethod
    def of(
        cls,
        log: Log | LogParts,
        play: Play,
        fitted: CrossFit | None,
        embedding: Sequence[str] | ArrayLike | None,
        written_by: Written,
        level: float,
        seed: int,
    ) -> _Value:
        labels = None if embedding is None else action_labels(log, embedding)
        found = log.each(partial(_summary, labels), play, fitted)
        rounds = Rounds.joined([one[0] for one in found])
        weights = np.ones(len(rounds.rewards))
        if written_by == "learning":
            spreads = np.concatenate([one[1] for one in found])
            weights = estimators.stabilising_weights(spreads, log.without_contexts)
        overlap = overlap_of([one[2] for one in found], log.left_out)
        return cls(rounds, overlap, weights, fitted is not None, written_by, level, seed)

    def valuation(self, parameters: tuple[float | None, float | None], baseline: _Value | None = None) -> Valuation:
        terms, chosen = all_terms(self.rounds, self.has_model, *parameters)
        logged, against, weights = self.rounds.rewards, None, self.weights
        if baseline is None:
            differences = {name: values - logged for name, values in terms.items()}
        else:
            against, weights = baseline.valuation(parameters), 0.5 * (weights + baseline.weights)
            differences = {name: values - against.terms[name] for name, values in terms.items()}
        estimates, gains = self._estimates(terms, chosen, self.weights), self._estimates(differences, {}, weights)
        return Valuation(estimates, gains, self.overlap, float(logged.mean()), self.level, terms, self.weights, against)

    def _estimates(
        self, terms: Mapping[str, FloatArray], chosen: Mapping[str, float], weights: FloatArray
    ) -> dict[str, Estimate]:
        """Return the estimate of each estimator's terms, with the parameters that were chosen."""
        found = {}
        for name, values in terms.items():
            if not np.isfinite(values).all():
                found[name] = Estimate(np.nan, -np.inf, np.inf, np.inf, chosen.get(name))
                continue
            if self.written_by == "learning":
                own = weights if name in UNBIASED else np.ones(len(values))
                effective = effective_rounds(own * self.rounds.weights)
                one = Estimate(*studentised(values, own, self.level, effective), chosen.get(name))
            else:
                one = bootstrapped(values, self.level, self.seed, chosen.get(name))
            if name in SHRUNK and np.isfinite(terms[RECOMMENDED]).all():
                # it also covers the same interval about the unbiased mean
                bias = float((terms[RECOMMENDED] - values).mean())
                one = replace(one, low=one.low + min(bias, 0.0), high=one.high + max(bias, 0.0))
            found[name] = one
        return found


def bootstrapped(terms: FloatArray, level: float, seed: int, parameter: float | None = None) -> Estimate:
    """Return the mean of independent terms, with a bootstrapped interval."""
    low, high = bootstrap(terms, level, np.random.default_rng(seed))
    return Estimate(float(terms.mean()), low, high, float(terms.std() / np.sqrt(len(terms))), parameter)


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


def _summary(
    labels: NDArray[np.intp] | None, log: Log, play: Play, fitted: CrossFit | None
) -> tuple[Rounds, FloatArray, Plays]:
    """Return what estimators need of a part of a log, the spreads of its weights, and what was played."""
    parts, spreads, wanted = [], [], np.zeros(len(log.names))
    for part, probabilities, predicted in looked_at(log, play, fitted):
        each = np.arange(len(part))
        weights = probabilities[each, part.played] / part.propensities
        direct = np.zeros(len(part)) if predicted is None else np.vecdot(probabilities, predicted)
        of_played = np.zeros(len(part)) if predicted is None else predicted[each, part.played]
        marginal = None if labels is None else estimators.marginal_weights(probabilities, part, labels)
        parts.append(Rounds(weights, part.rewards, of_played, direct, marginal))
        wanted += probabilities.sum(axis=0)
        spreads.append(weighted_spread(probabilities, part))
    rounds = Rounds.joined(parts)
    return rounds, np.concatenate(spreads), Plays.of(log, rounds.weights, wanted)


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
    log: Log, play: Play, fitted: CrossFit | EarlierMean | None, every_action: bool = False
) -> Iterator[tuple[Log, FloatArray, FloatArray | None]]:
    """Yield a log block by block: rounds, the candidate's probabilities, and predicted rewards (n, A).

    Rewards are predicted where the log or the candidate plays, or of every action; before the first model they are 0,
    or NaN.
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
        yield part, probabilities, predicted if every_action else np.nan_to_num(predicted)


def action_labels(log: Any, embedding: Sequence[str] | ArrayLike) -> NDArray[np.intp]:
    """Return a number for each action, the same for actions that do not differ in an embedding."""
    listed = list(embedding) if isinstance(embedding, (list, tuple)) else []
    if listed and all(isinstance(name, str) for name in listed):
        if log.features is None:
            raise InputError("embedding: expected labels (A,) or (A, k), since these actions have no named columns.")
        choices = log.features.choices
        rows = [action if isinstance(action, Mapping) else choices.row_of(action) for action in log.actions]
        known = sorted({name for row in rows for name in row})
        missing = [name for name in listed if any(name not in row for row in rows)]
        if missing:
            raise InputError(f"embedding: expected columns of the actions ({', '.join(known)}), got {missing[0]!r}.")
        kinds = [tuple(row[name] for name in listed) for row in rows]
    else:
        values = np.asarray(embedding)
        if len(values) != len(log.names):
            raise InputError(f"embedding: expected a row for each of {len(log.names)} actions, got {len(values)}.")
        kinds = [tuple(np.atleast_1d(value).tolist()) for value in values]
    places = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    return np.array([places[kind] for kind in kinds], dtype=np.intp)
