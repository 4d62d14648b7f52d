"""The cost of a round with nothing set, over a long run: latency by decades of rounds, pauses for learning, memory.

    python benchmarks/default/latency.py [--rounds 100000] [--columns 20] [--arms 10]

Rewards are 0 or 1, and the best arm depends on the context. Rounds in which the kernel is learned are told apart: their
number is the logarithm of the number of rounds. Seconds are of the processor.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import kernel_bandits as kb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--arms", type=int, default=10)
    options = parser.parse_args()
    generator, policy, arms = np.random.default_rng(0), kb.ek_ucb(seed=0), np.eye(options.arms)
    weights = generator.normal(size=(options.columns, options.arms)) / np.sqrt(options.columns)
    seconds, pauses, earned = np.empty(options.rounds), np.zeros(options.rounds, dtype=bool), 0.0
    reported, best, changes = 100, 0.0, 0
    for t in range(options.rounds):
        context = generator.normal(size=options.columns)
        chances = 1.0 / (1.0 + np.exp(-2.0 * (context @ weights) + 1.0))
        begun = time.process_time()
        decision = policy.select(context, arms)
        policy.update(context, decision.action, float(generator.random() < chances[decision.index]))
        seconds[t] = time.process_time() - begun
        changed = len(policy.posterior.kernel_changes)
        pauses[t], changes = changed != changes, changed
        earned, best = earned + chances[decision.index], best + chances.max()
        if t + 1 == reported or t + 1 == options.rounds:
            part = slice(reported // 10, t + 1)
            between = 1e3 * seconds[part][~pauses[part]]
            print(
                f"rounds {part.start:,} to {t + 1:,}: p50 {np.median(between):.2f} ms, "
                f"p99 {np.quantile(between, 0.99):.2f} ms, slowest {between.max():.1f} ms; "
                f"longest pause for learning {seconds[part][pauses[part]].max(initial=0.0):.2f} s; "
                f"{policy.dictionary_size} anchors, {policy.diagnostics().memory_bytes / 1e6:.0f} MB, "
                f"{earned / best:.1%} of the best",
                flush=True,
            )
            reported *= 10


if __name__ == "__main__":
    main()
