"""The figure of docs/diagnostics.md: what a policy believes after 60 rounds in a box.

Run: python examples/surface.py docs/figures/surface.png
"""

import sys

import numpy as np

import kernel_bandits as kb


def main(path):
    box = kb.Box([150, 1], [250, 5], names=["temperature", "pressure"], units=["°C", "bar"])
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    for _ in range(60):
        sensors = generator.standard_normal(2)
        decision = policy.select(sensors, box)
        offset = box.fractions(decision.action[None, :])[0] - [0.6 + 0.1 * sensors[0], 0.4]
        peak = 40 * np.exp(-offset @ offset / 0.045)
        policy.update(sensors, decision.action, 50 + peak + generator.standard_normal())
    kb.plots.surface(policy, [0.0, 0.0], box).savefig(path, dpi=100)


if __name__ == "__main__":
    main(sys.argv[1])
