"""Does the control group tell the truth? Simulated loops, looked at every day for a month.

The rewards of the loop and of its control group are 0 or 1, and the groups are compared as in the service. The first
loops of each case also decide, learn and count as there, without HTTP and without a database, and have to give the same
verdicts. A verdict counts once it was ever "switch" or "stay".

Run: python benchmarks/service_verdict.py [--loops 200] [--whole 2] [--days 30] [--decisions 400] [--share 0.2]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from kernel_bandits_server.choosing import draft_all, place_of
from kernel_bandits_server.events import Event
from kernel_bandits_server.messages import DecisionRequest
from kernel_bandits_server.planning import Decide
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import LoopSettings, parse_settings
from kernel_bandits_server.trial import Trial
from measure import markdown

LOOP = """
[loops.shop]
policy = "uniform"
anticipates = false
control = {{ share = {share}, rule = "uniform" }}
[loops.shop.context]
age = {{ kind = "Numeric", range = [18, 80] }}
[loops.shop.arms]
names = ["red", "blue"]
"""
# Visitors who come again differ: the standard deviation of their rates.
RATE, SPREAD, DAY = 0.3, 0.15, 86_400.0


class Compared:
    """The groups of a loop and what they earned, compared as the service does."""

    def __init__(self, settings: LoopSettings) -> None:
        self.trial = Trial.of(settings)

    def add(self, ids: Sequence[str], visitors: Sequence[str | None], control: Any, rewards: Any, time: float) -> None:
        """Add decisions; a reward of NaN was given up."""
        del time  # the order is that of the decisions
        assert self.trial is not None
        known = ~np.isnan(rewards)
        places = np.array([place_of("shop", visitor or id) for id, visitor in zip(ids, visitors, strict=True)])
        unknown, codes = np.full(known.sum(), np.nan), np.zeros((known.sum(), 0), dtype=int)
        self.trial = self.trial.after(
            rewards[known], control[known].astype(int), places[known], unknown, unknown, codes
        )


class Whole:
    """A loop that decides, learns and counts."""

    def __init__(self, settings: LoopSettings) -> None:
        self._replica = Replica(settings)

    @property
    def trial(self) -> Trial | None:
        return self._replica.seen().trial

    def add(self, ids: Sequence[str], visitors: Sequence[str | None], control: Any, rewards: Any, time: float) -> None:
        """Add decisions; a reward of NaN was given up."""
        requests = [DecisionRequest({"age": 30.0}, visitor=visitor) for visitor in visitors]
        commands = [Decide(id, False, request) for id, request in zip(ids, requests, strict=True)]
        draft_all(commands, self._replica)
        events = []
        for command, is_control in zip(commands, control, strict=True):
            assert command.draft is not None
            assert (command.draft["group"] == "control") == is_control
            events.append(Event("decision", command.id, command.draft))
        for id, reward in zip(ids, rewards, strict=True):
            given_up, body = np.isnan(reward), {"source": "caller"}
            events.append(Event("expiry", id, body) if given_up else Event("reward", id, {"reward": reward, **body}))
        first = self._replica.applied + 1
        self._replica.apply([event._replace(number=first + i, time=time) for i, event in enumerate(events)])


def simulate(
    loop: Compared | Whole, share: float, days: int, decisions: int, lift: float, lost: float, visits: float, seed: int
) -> list[dict[str, Any]]:
    """Return the verdict of each day.

    Args:
        loop: before its first decision.
        share: of the control group.
        days: that it is looked at.
        decisions: of a day.
        lift: of the loop over its control group, relative.
        lost: the share of the control group's decisions that are given up.
        visits: of each visitor on average; those who come again keep a rate of their own, and their group.
        seed: of the simulation.
    """
    generator, found = np.random.default_rng(seed), []
    known = max(1, round(days * decisions / visits))
    rates = np.clip(generator.normal(RATE, SPREAD * (visits > 1.0), known), 0.0, 1.0)
    for day in range(days):
        ids = [f"{seed}-{day}-{i}" for i in range(decisions)]
        who = generator.integers(known, size=decisions)
        visitors = [f"{seed}-{one}" if visits > 1.0 else None for one in who]
        control = np.array([place_of("shop", one or id) < share for one, id in zip(visitors, ids, strict=True)])
        chance = rates[who] * np.where(control, 1.0, 1.0 + lift)
        rewards = (generator.random(decisions) < chance).astype(float)
        rewards[control & (generator.random(decisions) < lost)] = np.nan
        loop.add(ids, visitors, control, rewards, DAY * day)
        assert loop.trial is not None
        found.append(loop.trial.verdict(float(day + 1)))
    return found


def row_of(name: str, runs: Sequence[Sequence[dict[str, Any]]], truth: float) -> dict[str, Any]:
    """Return one line of the table."""
    first = {
        word: [next((day for day, one in enumerate(run, 1) if one["verdict"] == word), None) for run in runs]
        for word in ("switch", "stay", "check the split")
    }
    ever = {word: [day for day in days_of if day is not None] for word, days_of in first.items()}
    covered = [all(one["low"] is None or one["low"] <= truth <= one["high"] for one in run) for run in runs]
    return {
        "loops": name,
        "number": len(runs),
        "switch, ever": f"{len(ever['switch']) / len(runs):.1%}",
        "stay, ever": f"{len(ever['stay']) / len(runs):.1%}",
        "split found": f"{len(ever['check the split']) / len(runs):.1%}",
        "truth within, on all days": f"{np.mean(covered):.1%}",
        "day of the switch: median (90 %)": "–"
        if not ever["switch"]
        else f"{np.median(ever['switch']):.0f} ({np.quantile(ever['switch'], 0.9):.0f})",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=200)
    parser.add_argument("--whole", type=int, default=2, help="loops of each case that also decide and learn")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--decisions", type=int, default=400, help="a day")
    parser.add_argument("--share", type=float, default=0.2, help="of the control group")
    parser.add_argument("--lifts", type=float, nargs="*", default=[0.0, 0.2], help="relative to the rule of today")
    parser.add_argument("--spoiled", type=float, default=0.15, help="share of the control group that is given up")
    parser.add_argument("--visits", type=float, default=5.0, help="of each visitor, where they come again")
    given = parser.parse_args()
    settings = parse_settings(LOOP.format(share=given.share)).loops["shop"]
    cases = [(f"lift {lift:.0%}", lift, 0.0, 1.0) for lift in given.lifts]
    cases.append((f"no lift, {given.spoiled:.0%} of the control group given up", 0.0, given.spoiled, 1.0))
    cases += [
        (f"lift {lift:.0%}, visitors come {given.visits:g} times", lift, 0.0, given.visits) for lift in given.lifts
    ]
    rows = []
    for name, lift, lost, visits in cases:
        runs = []
        for seed in range(given.loops):
            case = (given.share, given.days, given.decisions, lift, lost, visits, seed)
            runs.append(simulate(Compared(settings), *case))
            if seed < given.whole:
                whole = simulate(Whole(settings), *case)
                assert [one["words"] for one in whole] == [one["words"] for one in runs[-1]]
        print(row_of(name, runs, RATE * lift), file=sys.stderr, flush=True)
        rows.append(row_of(name, runs, RATE * lift))
    print(markdown(rows))


if __name__ == "__main__":
    main()
