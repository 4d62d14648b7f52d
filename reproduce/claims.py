"""What a paper claims, against records: estimates with intervals from runs paired by seed, and what they decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.experiments.results import Record, RunResult
from kernel_bandits.experiments.summary import mean_interval

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "cannot be decided"
MOSTLY, PARTLY = "holds where it can be decided", "in part"
Kind: TypeAlias = Literal["difference", "percent", "share", "ratio", "number"]
Runs: TypeAlias = Mapping[int, RunResult]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval over paired runs.

    Attributes:
        value: the estimate; NaN where there is nothing to estimate it from.
        low: lower end of the interval.
        high: upper end of the interval.
        kind: how it reads: a ``"difference"`` in units of the reward, a change or a share in
            ``"percent"``, a ``"ratio"``, or a plain ``"number"``.
        note: what differs from the plan, such as a shorter horizon.
    """

    value: float
    low: float
    high: float
    kind: Kind = "number"
    note: str = ""

    def __str__(self) -> str:
        if not np.isfinite(self.value):
            return "not measured"
        note = f" ({self.note})" if self.note else ""
        if self.kind == "ratio":
            return f"× {_short(self.value)} [{_short(self.low)}, {_short(self.high)}]{note}"
        if self.kind == "number":
            return f"{self.value:.2f} ± {(self.high - self.low) / 2:.2f}{note}"
        scale, unit = (1.0, "") if self.kind == "difference" else (100.0, " %")
        half = scale * (self.high - self.low) / 2
        places = 0 if unit or half >= 10 else 1
        sign = "" if self.kind == "share" else "+"
        return f"{scale * self.value:{sign}.{places}f} ± {half:.{places}f}{unit}{note}".replace("-", "−")


MISSING = Estimate(np.nan, np.nan, np.nan)


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison and whether it is as claimed; None where the interval leaves it open.

    Attributes:
        what: the case, such as ``λ = 10``.
        evidence: the numbers, in words.
        outcome: as claimed, not as claimed, or open.
    """

    what: str
    evidence: str
    outcome: bool | None

    @property
    def mark(self) -> str:
        """The outcome in a word."""
        return {True: "yes", False: "no", None: "open"}[self.outcome]

    def __str__(self) -> str:
        return f"{self.what}: {self.evidence}, {self.mark}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and what was found.

    Attributes:
        statement: the claim in one sentence.
        place: where the paper makes it.
        findings: by settings, the comparisons that the claim comes down to.
        measure: how the claim's words were turned into those comparisons.
    """

    statement: str
    place: str
    findings: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    measure: str = ""

    def verdict_with(self, settings: str) -> str:
        """The verdict with one of the settings, and in how many of its cases."""
        outcomes = [finding.outcome for finding in self.findings.get(settings, ())]
        kind = _kind(outcomes)
        if kind in (HOLDS, UNDECIDED):
            return kind
        yes, open_ = outcomes.count(True), outcomes.count(None)
        told = f"{HOLDS} in {yes} of {len(outcomes)}" if yes else FAILS
        return f"{told}, open in {open_}" if open_ else told

    @property
    def verdict(self) -> str:
        """The verdict over all settings: a claim that one of them contradicts is said to hold only with the other."""
        kinds = {
            settings: _kind([finding.outcome for finding in findings]) for settings, findings in self.findings.items()
        }
        decided = set(kinds.values()) - {UNDECIDED}
        held = [settings for settings, kind in kinds.items() if kind == HOLDS]
        if not decided:
            return UNDECIDED
        if len(held) == 1 < len(kinds):
            return f"only with {held[0]}" if decided & {FAILS, PARTLY} else f"{HOLDS} with {held[0]}, open otherwise"
        if len(decided) == 1:
            return decided.pop()
        return MOSTLY if decided == {HOLDS, MOSTLY} else PARTLY


def _kind(outcomes: Sequence[bool | None]) -> str:
    found = set(outcomes)
    if {True, False} <= found:
        return PARTLY
    if False in found:
        return FAILS
    if True in found:
        return MOSTLY if None in found else HOLDS
    return UNDECIDED


def below(what: str, estimate: Estimate, bound: float = 0.0) -> Finding:
    """The claim that something is below a bound."""
    return Finding(what, str(estimate), True if estimate.high < bound else False if estimate.low >= bound else None)


def above(what: str, estimate: Estimate, bound: float = 0.0) -> Finding:
    """The claim that something is above a bound."""
    return Finding(what, str(estimate), True if estimate.low > bound else False if estimate.high <= bound else None)


def not_dominated(what: str, regret: Estimate, time: Estimate) -> Finding:
    """The claim that a policy is not beaten by another in regret and time at once.

    Args:
        what: the case.
        regret: difference of its regret to the other's.
        time: ratio of its time to the other's.
    """
    worse = (regret.low > 0, time.low > 1)
    better = regret.high < 0 or time.high < 1
    return Finding(what, f"regret {regret}, time {time}", False if all(worse) else True if better else None)


class Pairs:
    """The runs of a study by environment and policy label, to be compared seed by seed.

    A comparison takes the seeds that both policies played, and as many rounds as the shorter runs have.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._runs: dict[tuple[str, str], dict[int, RunResult]] = {}
        for record in records:
            cell = record.run.environment.label, record.run.policy.label
            self._runs.setdefault(cell, {})[record.run.seed] = record.result
        self._longest = max((run.horizon for runs in self._runs.values() for run in runs.values()), default=0)

    def runs(self, place: str, policy: str) -> Runs:
        """The runs of a policy in an environment by seed; none if it did not play there."""
        return self._runs.get((place, policy), {})

    def regret_difference(self, place: str, first: str, second: str) -> Estimate:
        """Regret of the first policy less that of the second."""
        return self._estimate((place, first), (place, second), "difference", _final_regrets, lambda a, b: a - b)

    def relative_regret(self, place: str, first: str, second: str, second_place: str | None = None) -> Estimate:
        """Regret of the first policy less that of the second, as a fraction of the second's mean.

        Args:
            place: the environment's label.
            first: a policy's label.
            second: the other's.
            second_place: where the second played, if not at the same place.
        """
        cells = (place, first), (second_place or place, second)
        return self._estimate(*cells, "percent", _final_regrets, lambda a, b: (a - b) / b.mean())

    def time_ratio(self, place: str, first: str, second: str) -> Estimate:
        """Time of the first policy over that of the second, the geometric mean over seeds."""
        logs = self._estimate((place, first), (place, second), "ratio", _times, lambda a, b: np.log(a / b))
        value, low, high = (float(np.exp(end)) for end in (logs.value, logs.low, logs.high))
        return Estimate(value, low, high, "ratio", logs.note)

    def kept(self, place: str, policy: str) -> Estimate:
        """Final dictionary size over the number of rounds."""
        runs = list(self.runs(place, policy).values())
        if len(runs) < 2:
            return MISSING
        shares = np.array([run.dictionary_size[-1] / run.horizon for run in runs])
        return _interval(shares, "share", self._note(runs[0].horizon))

    def _estimate(
        self,
        first: tuple[str, str],
        second: tuple[str, str],
        kind: Kind,
        quantity: Callable[[Sequence[RunResult], int], FloatArray],
        contrast: Callable[[FloatArray, FloatArray], FloatArray],
    ) -> Estimate:
        ours, theirs = self.runs(*first), self.runs(*second)
        seeds = sorted(set(ours) & set(theirs))
        if len(seeds) < 2:
            return MISSING
        rounds = min(runs[seed].horizon for runs in (ours, theirs) for seed in seeds)
        values = contrast(*(quantity([runs[seed] for seed in seeds], rounds) for runs in (ours, theirs)))
        return _interval(values, kind, self._note(rounds))

    def _note(self, rounds: int) -> str:
        return f"T = {rounds}" if rounds < self._longest else ""


def _final_regrets(runs: Sequence[RunResult], rounds: int) -> FloatArray:
    return np.array([run.regret[rounds - 1] for run in runs])


def _times(runs: Sequence[RunResult], rounds: int) -> FloatArray:
    return np.array([run.seconds[rounds - 1] for run in runs])


def _interval(values: FloatArray, kind: Kind, note: str) -> Estimate:
    mean, half = mean_interval(values)
    return Estimate(float(mean), float(mean - half), float(mean + half), kind, note)


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 9.5 else f"{value:.0f}"
