"""Compare EK-UCB at each KORS budget with CBBKB and with K-UCB: where it has less regret, and takes less time.

Run from the repository: python -m reproduce.budgets RESULTS

The verdicts use γ = λ; the first table shows how much they depend on it. The second is what the summary of the page
says about K-UCB: time as a ratio, regret in percent more. Comparisons are paired, without correction.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kernel_bandits_lab import read_results
from kernel_bandits_lab.reproduce.claims import Finding, Pairs, below
from kernel_bandits_lab.reproduce.lambda_grid import BATCHED, LAMBDAS, SENSITIVITY
from kernel_bandits_lab.reproduce.settings import LIBRARY, PAPER

from reproduce.page import GRIDS


def counts(findings: Sequence[Finding]) -> str:
    """Return how many comparisons are as claimed, not as claimed, and open."""
    outcomes = [finding.outcome for finding in findings]
    return " / ".join(str(outcomes.count(outcome)) for outcome in (True, False, None))


def main(folder: Path) -> None:
    """Print a row for every environment and budget, and one for every environment, budget and λ beside K-UCB."""
    found = {label: Pairs(read_results(folder / name).records) for name, label in GRIDS.items()}
    print("| environment | EK-UCB | regret: less / more / open | time: less / more / open |\n|---|---|---|---|")
    for label, pairs in found.items():
        place = f"{label}, {PAPER}"
        for family in ("EK-UCB", *SENSITIVITY):
            cases = [(f"{family}, λ = {number}", f"{other}, λ = {number}") for number, other in BATCHED]
            regrets = [below("regret", pairs.regret_difference(place, *case)) for case in cases]
            times = [below("time", pairs.time_ratio(place, *case), 1.0) for case in cases]
            print(f"| {label} | {family} | {counts(regrets)} | {counts(times)} |")
    print("\n| environment | EK-UCB | λ | time over K-UCB's | regret |\n|---|---|---|---|---|")
    for label, pairs in found.items():
        for settings, family in ((PAPER, "EK-UCB"), (PAPER, SENSITIVITY[0]), (LIBRARY, "EK-UCB")):
            place = f"{label}, {settings}"
            for number in LAMBDAS:
                case = f"{family}, λ = {number}", f"K-UCB, λ = {number}"
                time, regret = pairs.time_ratio(place, *case), pairs.relative_regret(place, *case)
                print(f"| {place} | {family} | {number} | {time} | {regret} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
