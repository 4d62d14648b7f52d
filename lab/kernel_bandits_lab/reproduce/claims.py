"""Check claims of the paper against records: estimates with intervals, from runs paired by seed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from scipy import stats

from kernel_bandits.arrays import FloatArray
from kernel_bandits.loop import RunResult
from kernel_bandits_lab.report import Check
from kernel_bandits_lab.results import Record
from kernel_bandits_lab.tables import holm, mean_interval

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "open"
MOSTLY, PARTLY = "holds where decided", "in part"
Unit: TypeAlias = Literal["difference", "percent", "share", "ratio", "number"]
Runs: TypeAlias = Mapping[int, RunResult]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval over paired runs.

    Attributes:
        value: the estimate; NaN if there are no data.
        low: lower end of the interval.
        high: upper end of the interval.
        unit: a ``"difference"`` in units of the reward, a change in ``"percent"``, a ``"share"``, a ``"ratio"``, or a
            plain ``"number"``.
        note: a deviation from the plan, such as a shorter horizon.
        degrees: degrees of freedom of the interval; 0 where there are none.
    """

    value: float
    low: float
    high: float
    unit: Unit = "number"
    note: str = ""
    degrees: int = 0

    def p_value(self, bound: float) -> float:
        """Return the two-sided p-value of the paired t-test against a bound; NaN where there is none."""
        ends = np.array([self.low, self.value, self.high, bound])
        if self.unit == "ratio":
            with np.errstate(divide="ignore", invalid="ignore"):
                ends = np.log(ends)
        low, value, high, limit = ends.tolist()
        if self.degrees < 1 or not np.isfinite(ends).all():
            return math.nan
        error = (high - low) / (2.0 * stats.t.ppf(0.975, self.degrees))
        if error == 0.0:
            return 0.0 if value != limit else 1.0
        return float(2.0 * stats.t.sf(abs(value - limit) / error, self.degrees))

    def __str__(self) -> str:
        if not np.isfinite(self.value):
            return "not measured"
        note = f" ({self.note})" if self.note else ""
        if self.unit == "ratio":
            return f"× {_short(self.value)} [{_short(self.low)}, {_short(self.high)}]{note}"
        if self.unit == "number":
            return f"{self.value:.2f} ± {(self.high - self.low) / 2:.2f}{note}"
        scale, symbol = (1.0, "") if self.unit == "difference" else (100.0, " %")
        half = scale * (self.high - self.low) / 2
        places = 0 if symbol or half >= 10 else 1
        sign = "" if self.unit == "share" else "+"
        return f"{scale * self.value:{sign}.{places}f} ± {half:.{places}f}{symbol}{note}".replace("-", "−")


MISSING = Estimate(np.nan, np.nan, np.nan)
SAME_RUNS = Estimate(1.0, 1.0, 1.0, "ratio", "the same runs")


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison, and whether it is as claimed.

    Attributes:
        what: the case, such as ``λ = 10``.
        evidence: the numbers, as text.
        outcome: whether it is as claimed; None if the interval leaves it open.
        p_value: of the test behind it; NaN if there is none.
    """

    what: str
    evidence: str
    outcome: bool | None
    p_value: float = math.nan

    @property
    def mark(self) -> str:
        """The outcome in one word."""
        return {True: "yes", False: "no", None: "open"}[self.outcome]

    def __str__(self) -> str:
        return f"{self.what}: {self.evidence}, {self.mark}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and its evidence.

    Attributes:
        statement: the claim in one sentence.
        place: where the paper makes it.
        findings: the comparisons that decide the claim, by settings.
        measure: how the claim is turned into these comparisons.
    """

    statement: str
    place: str
    findings: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    measure: str = ""

    def verdict_with(self, settings: str) -> str:
        """Return the verdict for one of the settings, with the number of its cases."""
        outcomes = [finding.outcome for finding in self.findings.get(settings, ())]
        combined = _combined(outcomes)
        if combined in (HOLDS, UNDECIDED):
            return combined
        yes, open_ = outcomes.count(True), outcomes.count(None)
        verdict = f"{HOLDS} in {yes} of {len(outcomes)}" if yes else FAILS
        return f"{verdict}, open in {open_}" if open_ else verdict

    @property
    def verdict(self) -> str:
        """The verdict over all settings; a claim that holds for one of them only says so."""
        verdicts = {name: _combined([finding.outcome for finding in found]) for name, found in self.findings.items()}
        decided = set(verdicts.values()) - {UNDECIDED}
        held = [settings for settings, verdict in verdicts.items() if verdict == HOLDS]
        if not decided:
            return UNDECIDED
        if len(held) == 1 < len(verdicts):
            return f"only with {held[0]}" if decided & {FAILS, PARTLY} else f"{HOLDS} with {held[0]}, open otherwise"
        if len(decided) == 1:
            return decided.pop()
        return MOSTLY if decided == {HOLDS, MOSTLY} else PARTLY


def _combined(outcomes: Sequence[bool | None]) -> str:
    found = set(outcomes)
    if {True, False} <= found:
        return PARTLY
    if False in found:
        return FAILS
    if True in found:
        return MOSTLY if None in found else HOLDS
    return UNDECIDED


def below(what: str, estimate: Estimate, bound: float = 0.0) -> Finding:
    """Check that an estimate is below a bound."""
    outcome = True if estimate.high < bound else False if estimate.low >= bound else None
    return Finding(what, str(estimate), outcome, estimate.p_value(bound))


def above(what: str, estimate: Estimate, bound: float = 0.0) -> Finding:
    """Check that an estimate is above a bound."""
    outcome = True if estimate.low > bound else False if estimate.high <= bound else None
    return Finding(what, str(estimate), outcome, estimate.p_value(bound))


def corrected(claims: Sequence[Claim], level: float = 0.05) -> list[Claim]:
    """Return claims in which only comparisons that pass Holm's correction over all of them are decided.

    With probability 1 − level no comparison is decided wrongly.
    """
    adjusted = iter(holm(_p_values(claims)))

    def checked(finding: Finding) -> Finding:
        return replace(finding, outcome=None) if next(adjusted) > level else finding

    return [
        replace(claim, findings={name: [checked(one) for one in found] for name, found in claim.findings.items()})
        for claim in claims
    ]


def number_of_tests(claims: Sequence[Claim]) -> int:
    """Return how many comparisons have a p-value."""
    return sum(map(math.isfinite, _p_values(claims)))


def _p_values(claims: Sequence[Claim]) -> list[float]:
    return [one.p_value for claim in claims for found in claim.findings.values() for one in found]


class Pairs:
    """The runs of a study, to be compared seed by seed.

    A comparison uses the seeds that both policies have, and the rounds of the shorter runs.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._runs: dict[tuple[str, str], dict[int, RunResult]] = {}
        for record in records:
            self._runs.setdefault(record.run.cell, {})[record.run.seed] = record.result
        self._longest = max((run.horizon for runs in self._runs.values() for run in runs.values()), default=0)

    @property
    def longest(self) -> int:
        """The number of rounds of the longest run."""
        return self._longest

    def runs(self, place: str, policy: str) -> Runs:
        """Return the runs of a policy in an environment by seed."""
        return self._runs.get((place, policy), {})

    def regret_difference(self, place: str, first: str, second: str) -> Estimate:
        """Return the regret of the first policy minus that of the second."""
        return self._estimate((place, first), (place, second), "difference", _final_regrets, lambda a, b: a - b)

    def relative_regret(self, place: str, first: str, second: str, second_place: str | None = None) -> Estimate:
        """Return the regret of the first policy minus that of the second, as a fraction of the second's mean.

        Args:
            place: label of the environment.
            first: label of a policy.
            second: label of the other policy.
            second_place: label of the second policy's environment, if it is another.
        """
        cells = (place, first), (second_place or place, second)
        return self._estimate(*cells, "percent", _final_regrets, lambda a, b: (a - b) / b.mean())

    def time_ratio(self, place: str, first: str, second: str, *, alike: bool = False) -> Estimate:
        """Return the time of the first policy divided by that of the second, as a geometric mean over seeds.

        Args:
            place: label of the environment.
            first: label of a policy.
            second: label of the other policy.
            alike: whether both are one algorithm. If they then made the same decisions with the same dictionaries, they
                count as equal: what their times differ by is not the policies'.
        """
        if alike and self._are_the_same((place, first), (place, second)):
            return SAME_RUNS
        logs = self._estimate((place, first), (place, second), "ratio", _times, lambda a, b: np.log(a / b))
        value, low, high = (float(np.exp(end)) for end in (logs.value, logs.low, logs.high))
        return Estimate(value, low, high, "ratio", logs.note, logs.degrees)

    def product_ratio(self, place: str, first: str, second: str, *, alike: bool = False) -> Estimate:
        """Return regret × time of the first policy divided by that of the second, as :meth:`time_ratio` does."""
        if alike and self._are_the_same((place, first), (place, second)):
            return SAME_RUNS
        logs = self._estimate((place, first), (place, second), "ratio", _log_products, lambda a, b: a - b)
        value, low, high = (float(np.exp(end)) for end in (logs.value, logs.low, logs.high))
        return Estimate(value, low, high, "ratio", logs.note, logs.degrees)

    def _are_the_same(self, first: tuple[str, str], second: tuple[str, str]) -> bool:
        """Return whether two policies had the same regret and dictionary size in every round that both played."""
        ours, theirs = self.runs(*first), self.runs(*second)
        seeds = set(ours) & set(theirs)
        return len(seeds) > 1 and all(_same(ours[seed], theirs[seed]) for seed in seeds)

    def kept(self, place: str, policy: str) -> Estimate:
        """Return the final dictionary size divided by the number of rounds."""
        runs = list(self.runs(place, policy).values())
        if len(runs) < 2:
            return MISSING
        shares = np.array([run.dictionary_size[-1] / run.horizon for run in runs])
        return _interval(shares, "share", self._note(runs[0].horizon))

    def _estimate(
        self,
        first: tuple[str, str],
        second: tuple[str, str],
        unit: Unit,
        quantity: Callable[[Sequence[RunResult], int], FloatArray],
        contrast: Callable[[FloatArray, FloatArray], FloatArray],
    ) -> Estimate:
        ours, theirs = self.runs(*first), self.runs(*second)
        seeds = sorted(set(ours) & set(theirs))
        if len(seeds) < 2:
            return MISSING
        rounds = min(runs[seed].horizon for runs in (ours, theirs) for seed in seeds)
        values = contrast(*(quantity([runs[seed] for seed in seeds], rounds) for runs in (ours, theirs)))
        return _interval(values, unit, self._note(rounds))

    def _note(self, rounds: int) -> str:
        return f"T = {rounds}" if rounds < self._longest else ""


def _same(one: RunResult, other: RunResult) -> bool:
    rounds = min(one.horizon, other.horizon)
    columns = ((one.regret, other.regret), (one.dictionary_size, other.dictionary_size))
    return all(np.array_equal(mine[:rounds], yours[:rounds]) for mine, yours in columns)


def _final_regrets(runs: Sequence[RunResult], rounds: int) -> FloatArray:
    return np.array([run.regret[rounds - 1] for run in runs])


def _times(runs: Sequence[RunResult], rounds: int) -> FloatArray:
    return np.array([run.seconds[rounds - 1] for run in runs])


def _log_products(runs: Sequence[RunResult], rounds: int) -> FloatArray:
    # a regret of 0 would be a product of 0 whatever the time
    regrets = np.maximum(_final_regrets(runs, rounds), 1e-9)
    return np.asarray(np.log(regrets * _times(runs, rounds)))


def _interval(values: FloatArray, unit: Unit, note: str) -> Estimate:
    mean, half = mean_interval(values)
    return Estimate(float(mean), float(mean - half), float(mean + half), unit, note, len(values) - 1)


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 9.5 else f"{value:.0f}"


_MARKS = {True: "yes", False: "no", None: "undecided"}
# The verdicts of the full run, which ``python -m reproduce.page`` writes.
VERDICTS = Path(__file__).parent / "verdicts.json"
NEEDS_THE_FULL_RUN = "needs the full run"
_KINDS = {HOLDS: "yes", FAILS: "no", UNDECIDED: "undecided", NEEDS_THE_FULL_RUN: "undecided"}


@cache
def verdicts() -> dict[str, str]:
    """Return the verdicts of the full run by statement."""
    found: dict[str, str] = json.loads(VERDICTS.read_text(encoding="utf-8"))
    return found


def check_of(claim: Claim, shortened: bool = False) -> Check:
    """Return a claim as the report shows it.

    A shortened run decides a claim only if all of its comparisons are decided and agree with the full run: times and
    regrets grow with T at different rates, so that what is slower after 300 rounds may be faster after 2000.
    """
    in_full = verdicts().get(claim.statement, "")
    verdict = claim.verdict
    if shortened and not (verdict == HOLDS and in_full in (HOLDS, "")):
        verdict = NEEDS_THE_FULL_RUN
    return Check(
        statement=claim.statement,
        verdict=verdict,
        kind=_KINDS.get(verdict, "partly"),
        by_settings="; ".join(f"{settings}: {claim.verdict_with(settings)}" for settings in claim.findings),
        place=claim.place,
        measure=claim.measure,
        findings=[
            (settings, claim.verdict_with(settings), [(_MARKS[one.outcome], str(one)) for one in found])
            for settings, found in claim.findings.items()
        ],
        in_full=in_full,
    )
