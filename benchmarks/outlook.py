"""Is an outlook right? Stated probabilities and expectations against what was left, and when a run should have stopped.

    python benchmarks/outlook.py results.jsonl                  # 200 runs on random plants
    python benchmarks/outlook.py results.jsonl --runs 20 --summary

Plants are those of ``process_random.py``, in batches of four. At each of some experiments the outlook of the current
context is compared with what was truly left: the best yield of the box less that of the setting to use now. A rule that
stops when less than x is expected to be left is judged by what is missing where it stops.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from process import Run
from process_random import draw

import kernel_bandits as kb

FIRST_PLANT, LOOKS, LEFT = 20_000, (24, 36, 48, 60, 80, 100, 120), (0.5, 1.0, 2.0, 5.0, 10.0)


def play(number: int) -> list[dict[str, float]]:
    """Return outlooks and truths of one run, in units of yield."""
    plant = replace(draw(number), batch=4)
    run, policy, rows = Run(plant, number), kb.ek_ucb(seed=number), list[dict[str, float]]()
    played = 0
    while played < LOOKS[-1]:
        for decision in policy.ask_many(np.array([run.sense() for _ in range(4)]).reshape(4, plant.sensors), run.box):
            expected = run.expected(decision.context, decision.action)
            policy.tell(decision, plant.unit * (expected + plant.noise * run.generator.standard_normal()))
        played += 4
        if played not in LOOKS:
            continue
        context = run.sense()
        best = policy.best(context, run.box)
        missing = run.best(context) - run.expected(context, best.action)
        row = {"plant": number, "played": played, "missing": missing}
        for left in LEFT:
            outlook = policy.outlook(context, run.box, more_than=left * plant.unit)
            row[f"more than {left:g}"] = outlook.probability
        row |= {"left": outlook.expected_left / plant.unit, "now": outlook.expected_now / plant.unit}
        row |= {"after": outlook.expected_after / plant.unit, "true now": run.expected(context, best.action)}
        rows.append(row)
    return rows


def summarise(rows: list[dict[str, float]]) -> None:
    """Print stated probabilities against frequencies, and what the rule misses."""
    print(f"{'played':>7} {'runs':>5} {'left stated':>12} {'true':>6}  " + "  ".join(f"P(>{one:g})" for one in LEFT))
    for played in LOOKS:
        some = [row for row in rows if row["played"] == played]
        stated = [np.mean([row[f"more than {one:g}"] for row in some]) for one in LEFT]
        true = [np.mean([row["missing"] > one for row in some]) for one in LEFT]
        pairs = "  ".join(f"{100 * one:3.0f}/{100 * other:<3.0f}" for one, other in zip(stated, true, strict=True))
        expected, missing = np.mean([(row["left"], row["missing"]) for row in some], axis=0)
        print(f"{played:7d} {len(some):5d} {expected:12.2f} {missing:6.2f}  {pairs}")
    edges = [0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.01]
    pairs_of = [(row[f"more than {one:g}"], row["missing"] > one) for row in rows for one in LEFT]
    for low, high in pairwise(edges):
        within = [(p, hit) for p, hit in pairs_of if low <= p < high]
        if within:
            mean, frequency = np.mean(within, axis=0)
            print(f"stated {mean:.2f}, was {frequency:.2f} ({len(within)})")
    for left in (1.0, 2.0, 5.0):
        stops = []
        for number in sorted({row["plant"] for row in rows}):
            own = [row for row in rows if row["plant"] == number and row["left"] < left]
            stops += [min(own, key=lambda row: row["played"])] if own else []
        good = np.mean([row["missing"] < 2 * left for row in stops]) if stops else np.nan
        print(f"stop below {left:g}: {len(stops)} stop, less than {2 * left:g} missing in {good:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--summary", action="store_true", help="play nothing")
    options = parser.parse_args()
    known = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    done = {row["plant"] for row in known}
    for number in range(FIRST_PLANT + options.first, FIRST_PLANT + options.first + options.runs):
        if options.summary or number in done:
            continue
        rows = play(number)
        known += rows
        with options.results.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    summarise(known)


if __name__ == "__main__":
    main()
