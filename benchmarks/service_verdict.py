"""Does the control group tell the truth? Simulated loops, looked at every day for a month.

A loop decides, learns and counts as in the service, without HTTP and without a database. The rewards of the loop and of
its control group are 0 or 1. A verdict counts once it was ever "switch" or "stay".

Run: python benchmarks/service_verdict.py [--loops 200] [--days 30] [--decisions 400] [--share 0.2] [--lifts 0 0.2]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from kernel_bandits_server.choosing import draft_all
from kernel_bandits_server.events import Event
from kernel_bandits_server.messages import DecisionRequest
from kernel_bandits_server.planning import Decide
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import LoopSettings, parse_settings
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
RATE, SPREAD, AT_ONCE, DAY = 0.3, 0.15, 200, 86_400.0


def simulate(
    settings: LoopSettings, days: int, decisions: int, lift: float, lost: float, visits: float, seed: int
) -> list[dict[str, Any]]:
    """Return the verdict of each day.

    Args:
        settings: of the loop.
        days: that it is looked at.
        decisions: of a day.
        lift: of the loop over its control group, relative.
        lost: the share of the control group's decisions that are given up.
        visits: of each visitor on average; those who come again keep a rate of their own, and their group.
        seed: of the simulation.
    """
    generator, replica, found = np.random.default_rng(seed), Replica(settings), []
    known = max(1, round(days * decisions / visits))
    rates = np.clip(generator.normal(RATE, SPREAD * (visits > 1.0), known), 0.0, 1.0)
    for day in range(days):
        for start in range(0, decisions, AT_ONCE):
            count = min(AT_ONCE, decisions - start)
            commands = []
            for i, age in enumerate(generator.uniform(18, 80, count)):
                commands.append(Decide(f"{seed}-{day}-{start + i}", False, DecisionRequest({"age": float(age)})))
                if visits > 1.0:
                    commands[-1].request.visitor = f"{seed}-{generator.integers(known)}"
            draft_all(commands, replica)
            time = DAY * (day + start / decisions)
            events: list[Event] = []
            for kind in ("decision", "reward"):
                for command in commands:
                    body: Any = command.draft
                    is_control = body["group"] == "control"
                    if kind == "reward":
                        own = RATE if visits == 1.0 else rates[int(str(command.request.visitor).partition("-")[2])]
                        rate = own if is_control else own * (1.0 + lift)
                        if is_control and generator.random() < lost:
                            events.append(Event("expiry", command.id, {"source": "caller"}))
                            continue
                        body = {"reward": float(generator.random() < rate), "source": "caller"}
                    events.append(Event(kind, command.id, body))
            first = replica.applied + 1
            replica.apply([event._replace(number=first + i, time=time) for i, event in enumerate(events)])
        trial = replica.seen().trial
        assert trial is not None
        found.append(trial.verdict(float(day + 1)))
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
            runs.append(simulate(settings, given.days, given.decisions, lift, lost, visits, seed))
            if seed % 20 == 19:
                print(row_of(name, runs, RATE * lift), file=sys.stderr, flush=True)
        rows.append(row_of(name, runs, RATE * lift))
    print(markdown(rows))


if __name__ == "__main__":
    main()
