"""Sunspots by name: which groups to watch, learned from a table of mixed columns; with the response plot.

The data are those of river's SolarFlare: 1,066 groups of sunspots, ten columns each, and how many flares came out of
each within a day. Run: python examples/table.py docs/figures/tutorial-table.png
"""

from __future__ import annotations

import sys

import numpy as np
from river.datasets import SolarFlare

import kernel_bandits as kb
from kernel_bandits.experiments.response_plot import response

ROUNDS, SEEDS = 1066, range(5)
FEATURES = kb.Features(
    context={
        "zurich-class": kb.Categorical(["B", "C", "D", "E", "F", "H"]),
        "largest-spot-size": kb.Categorical(["X", "R", "S", "A", "H", "K"]),
        "spot-distribution": kb.Ordered(["X", "O", "I", "C"]),
        "activity": kb.Ordered([1, 2]),
        "evolution": kb.Ordered([1, 2, 3]),
        "previous-24h-flare-activity": kb.Ordered([1, 2, 3]),
        "hist-complex": kb.Ordered([1, 2]),
        "hist-complex-this-pass": kb.Ordered([1, 2]),
        "area": kb.Ordered([1, 2]),
        "largest-spot-area": kb.Numeric(),
    },
    actions=kb.Arms(["sleep", "survey", "track"]),
)


def night(row, flares, arm):
    """What a night earns: a survey costs 0.1 and sees a flare half; to track a group costs 0.3 and sees all of it."""
    if arm == "sleep":
        return 0.0
    seen = min(flares["c-class-flares"], 1)
    return 0.5 * seen - 0.1 if arm == "survey" else 1.0 * seen - 0.3


def play(policy, seed):
    """One pass over the table in a random order; the reward of each round."""
    table = list(SolarFlare())
    order = np.random.default_rng(seed).permutation(len(table))[:ROUNDS]
    earned = []
    for number in order:
        row, flares = table[number]
        decision = policy.select(row)
        reward = night(row, flares, decision.arm)
        policy.update(decision, reward=reward)
        earned.append(reward)
    return np.array(earned)


def main():
    kernel = kb.Gaussian(2.0) + kb.Linear()
    table = list(SolarFlare())
    for name, build in {
        "uniform": lambda seed: kb.uniform(features=FEATURES, seed=seed),
        "EK-UCB": lambda seed: kb.ek_ucb(kernel, features=FEATURES, seed=seed),
    }.items():
        totals = [play(build(seed), seed).sum() for seed in SEEDS]
        print(f"{name}: {np.mean(totals):.1f} ({min(totals):.1f} to {max(totals):.1f})")
    for arm in ("sleep", "survey", "track"):
        print(f"always {arm}: {sum(night(row, flares, arm) for row, flares in table):.1f}")
    policy = kb.ek_ucb(kernel, features=FEATURES, seed=0)
    play(policy, 0)
    print(policy.diagnostics())
    row = table[0][0] | {"largest-spot-size": "K", "spot-distribution": "I"}
    response(policy, "zurich-class", row).savefig(sys.argv[1], dpi=110, facecolor="white")


if __name__ == "__main__":
    main()
