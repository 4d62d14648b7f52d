"""A table of mixed columns played by name: forecasts for groups of sunspots, and the response plot.

The data are those of river's SolarFlare: 1,066 groups of sunspots, ten columns each, and how many flares came out of
each within a day. Run: python examples/table.py docs/figures/tutorial-table.png
"""

from __future__ import annotations

import sys

import numpy as np
from river.datasets import SolarFlare

import kernel_bandits as kb

ROUNDS, SEEDS = 1066, range(5)
# what a forecast earns without a flare, and with one
WORTH = {"all clear": (1.0, -3.0), "watch": (0.5, 0.0), "warning": (-1.0, 2.0)}
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
    actions=kb.Arms(list(WORTH)),
)
POLICIES = {
    "EK-UCB, nothing set": lambda seed: kb.ek_ucb(features=FEATURES, seed=seed),
    "uniform": lambda seed: kb.uniform(features=FEATURES, seed=seed),
}
TABLE = list(SolarFlare())
TYPICAL = TABLE[0][0] | {"largest-spot-size": "S", "spot-distribution": "O"}


def worth(forecast, flares):
    quiet, active = WORTH[forecast]
    return active if flares["c-class-flares"] else quiet


def play(policy, seed):
    """One pass over the table in a random order; the reward of each round."""
    earned = []
    for number in np.random.default_rng(seed).permutation(len(TABLE))[:ROUNDS]:
        row, flares = TABLE[number]
        decision = policy.select(row)
        earned.append(worth(decision.arm, flares))
        policy.update(decision, reward=earned[-1])
    return np.array(earned)


def main():
    for name, build in POLICIES.items():
        means = [play(build(seed), seed).mean() for seed in SEEDS]
        print(f"| {name} | {np.mean(means):.3f} ({min(means):.3f} to {max(means):.3f}) |")
    for forecast in WORTH:
        print(f"| always {forecast!r} | {np.mean([worth(forecast, flares) for _, flares in TABLE]):.3f} |")
    policy = POLICIES["EK-UCB, nothing set"](0)
    play(policy, 0)
    print(policy.diagnostics())
    kb.plots.response(policy, "spot-distribution", TYPICAL).savefig(sys.argv[1], dpi=110, facecolor="white")


if __name__ == "__main__":
    main()
