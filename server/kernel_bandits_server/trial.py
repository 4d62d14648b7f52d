"""Does the loop beat what is done today, and its challenger the loop? Intervals that may be looked at every day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import Struct, structs
from scipy.special import betaln

from kernel_bandits.arrays import FloatArray
from kernel_bandits.offpolicy import ArmDifference, CandidateValue
from kernel_bandits_server.settings import LoopSettings

LEVEL = 0.95
# Sample-ratio mismatch: the split is this many times likelier under another share: by chance in one of a thousand
# loops ever, however often it is looked at.
MISMATCH = 1000.0
# Decisions of both groups before anything is said.
FEWEST = 20
# Visitors who are remembered, a fair sample of all of them: enough to know by how much they repeat themselves.
MOST_VISITORS = 2_000
# The traffic of a challenger: each step needs evidence of its own.
STEPS = (0.0, 0.1, 0.25, 0.5, 1.0)
CONTROL = 1


class Trial(Struct, frozen=True):
    """The groups of a loop, compared by what their decisions earned; a value."""

    low: float  # the lowest reward that is possible
    high: float  # the highest
    share: float | None  # of the control group; None without one
    lift: ArmDifference | None = None  # of the loop over its control group
    segments: dict[str, ArmDifference] = {}  # the same for the segments of each column, by the numbers of both
    gain: CandidateValue | None = None  # of the challenger over the policy, from the log of both; None without one
    # those whose second hash is below ``sampled``: whether of the control group, n, Σr and Σr²
    visitors: dict[str, tuple[bool, float, float, float]] = {}
    sampled: float = 1.0  # the share of visitors who are remembered

    @classmethod
    def of(cls, settings: LoopSettings) -> Trial | None:
        """Return the trial of a loop before its first decision; None where nothing is compared."""
        control, challenger = settings.control, settings.challenger
        if control is None and challenger is None:
            return None
        low, high = settings.range or (0.0, 1.0)
        share = None if control is None else control.share
        lift = None if share is None else ArmDifference(low, high, min(share, 1.0 - share), LEVEL)
        return cls(low, high, share, lift, gain=None if challenger is None else _no_gain(low, high))

    def after(
        self, rewards: FloatArray, group: Any, place: FloatArray, policy: FloatArray, challenger: FloatArray, codes: Any
    ) -> Trial:
        """Return the trial with what further decisions earned, in their order.

        Args:
            rewards: of the decisions.
            group: by its place in ``GROUPS``.
            place: the hash of the visitor; NaN for a decision that is not compared.
            policy: how much likelier the policy was to play each than the loop as a whole; NaN where that is not known.
            challenger: how much likelier the challenger was.
            codes: the visitors' segments.
        """
        # an older log may hold others
        rewards = np.clip(rewards, self.low, self.high)
        lift, segments, gain, visitors, sampled = self.lift, dict(self.segments), self.gain, self.visitors, self.sampled
        if lift is not None and self.share is not None:
            compared = ~np.isnan(place)
            first, chance = group != CONTROL, 1.0 - self.share
            lift = lift.after(first[compared], rewards[compared], chance)
            visitors, sampled = self._remember(place[compared], ~first[compared], rewards[compared])
            fresh = ArmDifference(self.low, self.high, lift.least_share, LEVEL)
            for column in range(codes.shape[1]):
                for segment in np.unique(codes[compared, column]):
                    own, key = compared & (codes[:, column] == segment), f"{column} {segment}"
                    segments[key] = segments.get(key, fresh).after(first[own], rewards[own], chance)
        if gain is not None:
            known = ~np.isnan(policy + challenger)
            gain = gain.after(self._gained(rewards[known], policy[known], challenger[known]))
        return structs.replace(self, lift=lift, segments=segments, gain=gain, visitors=visitors, sampled=sampled)

    def _gained(self, rewards: FloatArray, policy: FloatArray, challenger: FloatArray) -> FloatArray:
        """Return terms of V_c − V_p, from w = c(a)/m(a) of the challenger c and v = p(a)/m(a) of the policy p.

        X = w·(r − low) + v·(high − r) − (high − low) ≥ −(high − low), with m the loop as a whole: importance weights
        may be as large as they come. The second row, with both exchanged, has the expectation V_p − V_c.
        """
        above, below = rewards - self.low, self.high - rewards
        terms = [one * above + other * below for one, other in ((challenger, policy), (policy, challenger))]
        return np.stack(terms)[:, None] - (self.high - self.low)

    def _remember(self, places: FloatArray, control: Any, rewards: FloatArray) -> tuple[dict[str, Any], float]:
        """Return the sample of visitors after further decisions, and the share of all of them that it is."""
        visitors, sampled = self.visitors, self.sampled
        # the first bits of the hash say which group a visitor belongs to, the later ones who is remembered
        chosen = _second_hash(places) < sampled
        if chosen.any():
            visitors = dict(visitors)
        for place, group, reward in zip(places[chosen], control[chosen], rewards[chosen], strict=True):
            _, count, total, squares = visitors.get(key := float(place).hex(), (False, 0.0, 0.0, 0.0))
            visitors[key] = bool(group), count + 1.0, total + float(reward), squares + float(reward) ** 2
        while len(visitors) > MOST_VISITORS:
            sampled *= 0.5
            visitors = {key: one for key, one in visitors.items() if _second_hash(float.fromhex(key)) < sampled}
        return visitors, sampled

    @property
    def repetition(self) -> tuple[float, float]:
        """By how much visitors who come again widen the variance of the split, and that of the lift; 1 if none does.

        With n_v decisions of visitor v and residuals e of their rewards, these are the design effects Σn_v²/Σn_v, and
        Σ_v(Σe)²/Σe² with both groups weighted as they are in the lift.
        """
        if not self.visitors or self.lift is None or self.share is None:
            return 1.0, 1.0
        control, count, total, squares = (np.array(column) for column in zip(*self.visitors.values(), strict=True))
        means = np.divide(self.lift.totals, np.maximum(self.lift.counts, 1))
        mean = np.where(control, means[1], means[0])
        weight = np.where(control, self.share, 1.0 - self.share) ** -2.0
        # max: rewards that are all alike have no residuals
        alone = max(float(weight @ (squares - 2.0 * mean * total + count * mean**2)), 1e-300)
        together = float(weight @ (total - count * mean) ** 2)
        return float(count @ count / count.sum()), max(1.0, together / alone)

    def interval(self, lift: ArmDifference, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of a lift of this trial, as wide as visitors who come again need it."""
        wide = replace(lift.sums, squares=lift.sums.squares * self.repetition[1])
        low, high = replace(lift, sums=wide, level=level).interval
        return float(low), float(high)

    def restarted(self) -> Trial:
        """Return the trial with the challenger compared anew: its traffic has changed."""
        return structs.replace(self, gain=None if self.gain is None else _no_gain(self.low, self.high))

    def next_share(self, share: float) -> float:
        """Return the traffic that the challenger has earned: a step up or down, or what it has."""
        if self.gain is None:
            return share
        low, high = self.gain.interval
        if low > 0.0:
            return next((step for step in STEPS if step > share), share)
        if high < 0.0:
            return next((step for step in reversed(STEPS) if step < share), share)
        return share

    def split(self) -> dict[str, Any]:
        """Return whether the control group has its share, by a test that may be repeated as often as one likes."""
        share, (loop, control) = self.share or 0.0, self.lift.counts if self.lift else (0, 0)
        count = int(loop + control)
        # visitors who come again count as as many decisions as they are worth
        balanced = _evidence(int(control), count, share, self.repetition[0]) < math.log(MISMATCH)
        found = control / count if count else None
        got = "none" if found is None else f"{found:.1%}"
        words = f"{got} of the settled decisions are of the control group, {share:.1%} were expected"
        words += "." if balanced else ": a sample-ratio mismatch. Look for rewards or expiries of one side alone."
        return {"balanced": balanced, "expected": share, "found": found, "words": words}

    def verdict(self, days: float) -> dict[str, Any]:
        """Return in numbers and words whether the loop beats what is done today.

        Args:
            days: from the first decision that is counted to the last.
        """
        if self.lift is None or self.share is None:
            return NO_VERDICT
        groups = dict(zip(("loop", "control"), zip(self.lift.counts, self.lift.totals, strict=True), strict=True))
        counts = {name: int(count) for name, (count, _) in groups.items()}
        means = {name: total / count if count else None for name, (count, total) in groups.items()}
        split = self.split()
        found: dict[str, Any] = {"verdict": "keep going", "lift": None, "low": None, "high": None, "relative": None}
        found |= {"days_left": None, "counts": counts, "means": means, "share": self.share, "split": split}
        found["level"] = LEVEL
        if min(counts.values()) < FEWEST:
            words = f"Too early: each group needs {FEWEST} settled decisions; the loop has {counts['loop']}"
            words += f", the control group {counts['control']}."
            return found | {"words": words}
        lift, (low, high) = float(self.lift.estimate), self.interval(self.lift)
        base = means["control"] or 0.0
        found |= {"lift": lift, "low": low, "high": high}
        found["relative"] = [one / base for one in (lift, low, high)] if base > 0.0 else None
        between = f"{low:+.3g} to {high:+.3g} per decision"
        if not split["balanced"]:
            words = f"{split['words']} Until that is explained, do not trust the difference ({between})."
            return found | {"verdict": "check the split", "words": words}
        if low > 0.0:
            words = f"Switch: the loop earns more than the rule of today, {between}."
            return found | {"verdict": "switch", "words": words}
        if high < 0.0:
            words = f"Stay: the rule of today earns more than the loop; the lift is {between}."
            return found | {"verdict": "stay", "words": words}
        left = _days_left(lift, high - low, days)
        words = f"Keep going: no difference shows so far; if there is one, it lies within {between}."
        if left is not None:
            words += f" One as large as it looks now ({lift:+.3g}) would show in about {_duration(left)}."
        return found | {"days_left": left, "words": words}

    def by_segment(self, column: int, labels: Sequence[str]) -> list[dict[str, Any]]:
        """Return the lift in each segment of a column; together the intervals hold as surely as that of the loop."""
        own = {number: one for number in range(len(labels)) if (one := self.segments.get(f"{column} {number}"))}
        found = []
        for number, one in own.items():
            counts = dict(zip(("loop", "control"), map(int, one.counts), strict=True))
            row: dict[str, Any] = {"segment": labels[number], "counts": counts, "lift": None, "low": None, "high": None}
            if min(counts.values()) >= FEWEST:
                # Bonferroni: one failure among all segments of the column
                low, high = self.interval(one, 1.0 - (1.0 - LEVEL) / len(own))
                row |= {"lift": float(one.estimate), "low": low, "high": high}
            found.append(row)
        return found


NO_VERDICT = {
    "verdict": "no control group",
    "words": "There is no control group: add control = { share = 0.1, rule = … } to the loop's file.",
}


def _no_gain(low: float, high: float) -> CandidateValue:
    return CandidateValue(low, high, LEVEL, paired=True, caps=(0.0,))


def _second_hash(place: Any) -> Any:
    return place * 2.0**24 % 1.0


def _evidence(control: int, count: int, share: float, repetition: float = 1.0) -> float:
    """Return how much likelier a control group of this size is under another share, as a logarithm.

    With a Beta prior around the share, the likelihood ratio B(k + a, n − k + b)/B(a, b)/(s^k (1 − s)^(n−k)) exceeds
    1/α at any time with probability α at most.
    """
    # as good as a hundred decisions with the right share: shares that are off by a tenth are seen soon
    a, b = 100.0 * share, 100.0 * (1.0 - share)
    k, n = control / repetition, count / repetition
    return float(betaln(k + a, n - k + b) - betaln(a, b) - k * math.log(share) - (n - k) * math.log1p(-share))


def _days_left(lift: float, width: float, days: float) -> float | None:
    """Return the days until a lift of this size shows: a width falls like one over the root of the count."""
    if not days or abs(lift) < 0.125 * width:
        # it would take more than fifteen times as long as so far; nobody knows then
        return None
    return days * ((0.5 * width / lift) ** 2 - 1.0)


def _duration(days: float) -> str:
    for name, number in (("days", days), ("hours", 24.0 * days), ("minutes", 1440.0 * days)):
        if number >= 1.5:
            return f"{round(number)} {name}"
    return "a minute"
