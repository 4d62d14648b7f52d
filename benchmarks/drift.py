"""Regret of rules of forgetting where the optimum moves, jumps or stays.

    python benchmarks/drift.py                         # 5 seeds, 5,000 rounds
    python benchmarks/drift.py --learned --seeds 2     # with nothing set
    python benchmarks/drift.py --rules nothing 'Wander(400)' --seeds 2

The context is a number, the actions are 21 numbers, and the expected reward is a bump around an action that depends on
the context; the noise has a standard deviation of 0.1. The bump moves to and fro over the whole range twice in 5,000
rounds, jumps every 1,250 rounds, or stays. ``Wander`` has at most 200 anchors: every round is a new point in time, and
nearly every one would become an anchor, which takes minutes.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

import kernel_bandits as kb

ROUNDS, NOISE = 5000, 0.1
ANCHORS = 200
ACTIONS = np.linspace(0.0, 1.0, 21)[:, None]
RULES: dict[str, kb.Discount | kb.Window | kb.Wander | kb.Restart | None] = {
    "nothing": None,
    "Discount(100)": kb.Discount(100),
    "Discount(400)": kb.Discount(400),
    "Window(300)": kb.Window(300),
    "Wander(400)": kb.Wander(400),
    "Restart()": kb.Restart(),
}


def centre(world: str, t: int, context: float) -> float:
    """Return the best action."""
    if world == "moves":
        base = 0.5 - 0.35 * math.cos(2.0 * math.pi * t / 2500)
    elif world == "jumps":
        base = (0.2, 0.7, 0.4, 0.85)[t // 1250 % 4]
    else:
        base = 0.3
    return base + 0.15 * (context - 0.5)


def regret(world: str, rule: object, seed: int, learned: bool) -> float:
    options: dict[str, object] = {} if learned else {"kernel": kb.Gaussian(0.25), "regularization": NOISE**2}
    if isinstance(rule, kb.Wander):
        options["dictionary"] = kb.Kors(max_size=ANCHORS)
    policy = kb.ek_ucb(**options, forgetting=rule, seed=seed)  # type: ignore[call-overload]
    generator, total = np.random.default_rng([seed, 3]), 0.0
    for t in range(ROUNDS):
        context = generator.random(1)
        expected = np.exp(-((ACTIONS[:, 0] - centre(world, t, float(context[0]))) ** 2) / 0.05)
        decision = policy.select(context, ACTIONS)
        total += float(expected.max() - expected[decision.index])
        policy.update(context, decision.action, float(expected[decision.index] + NOISE * generator.standard_normal()))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learned", action="store_true", help="learn the kernel")
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=RULES)
    arguments = parser.parse_args()
    print("| forgetting | moves | jumps | stays | seconds |\n|---|---|---|---|---|")
    for name in arguments.rules:
        if arguments.learned and name.startswith("Wander"):
            continue
        cells, started = [], time.process_time()
        for world in ("moves", "jumps", "stays"):
            regrets = [regret(world, RULES[name], seed, arguments.learned) for seed in range(arguments.seeds)]
            error = 2.0 * np.std(regrets, ddof=1) / math.sqrt(len(regrets)) if len(regrets) > 1 else math.nan
            cells.append(f"{np.mean(regrets):.0f} ± {error:.0f}")
        seconds = (time.process_time() - started) / 3 / arguments.seeds
        print(f"| {name} | {' | '.join(cells)} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
