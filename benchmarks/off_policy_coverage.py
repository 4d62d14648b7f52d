"""Do off-policy intervals hold the true value, are bad logs reported, and what does doubly robust save?

500 simulated logs of 400 rounds each. A candidate is evaluated on each, and its interval compared with its true value.
Then the propensities or the reward model are broken on purpose, and the errors of the estimators tabled.

Run: python benchmarks/off_policy_coverage.py [logs]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.offpolicy import Log, RewardModel, evaluate

ROUNDS, NOISE = 400, 0.2
MODEL = RewardModel(kb.Gaussian(0.7), regularization=0.05)
BROKEN_MODEL = RewardModel(1e-6 * kb.Gaussian(0.7), regularization=1.0)


def expected_rewards(contexts: FloatArray) -> FloatArray:
    x, y = contexts.T
    return np.stack([0.5 + 0.4 * np.sin(3 * x), 0.3 + 0.5 * y, 0.6 - 0.3 * x * y, np.full(len(x), 0.45)], axis=1)


def softmax(scores: FloatArray) -> FloatArray:
    table = np.exp(scores - scores.max(axis=1, keepdims=True))
    return table / table.sum(axis=1, keepdims=True)


def behaviour(contexts: FloatArray, sharpness: float) -> FloatArray:
    x, y = contexts.T
    return softmax(sharpness * np.stack([x, y, 0 * x, 1 - x], axis=1))


def candidate(contexts: FloatArray) -> FloatArray:
    return softmax(3.0 * expected_rewards(contexts))


def opponent(contexts: FloatArray) -> FloatArray:
    """Plays what the sharp log hardly ever plays."""
    return softmax(-12.0 * np.log(behaviour(contexts, 1.0)))


def simulated(seed: int, sharpness: float) -> Log:
    generator = np.random.default_rng(seed)
    contexts = generator.random((ROUNDS, 2))
    table = behaviour(contexts, sharpness)
    played = (generator.random((ROUNDS, 1)) > np.cumsum(table, axis=1)).sum(axis=1).clip(0, 3)
    each = np.arange(ROUNDS)
    rewards = expected_rewards(contexts)[each, played] + NOISE * generator.normal(size=ROUNDS)
    return Log(contexts, played, rewards, table[each, played])


def true_value(table_of: Callable[[FloatArray], FloatArray]) -> float:
    contexts = np.random.default_rng(10**6).random((400_000, 2))
    return float((table_of(contexts) * expected_rewards(contexts)).sum(axis=1).mean())


def coverage(logs: int) -> None:
    truth = true_value(candidate)
    held: dict[str, int] = {}
    warned = 0
    for seed in range(logs):
        log = simulated(seed, 2.0)
        found = evaluate(log, candidate(log.contexts), model=MODEL, seed=seed)
        warned += bool(found.warnings)
        for name, one in found.estimates.items():
            held[name] = held.get(name, 0) + (one.low <= truth <= one.high)
    print(f"good overlap, {logs} logs: 95 % intervals that hold the value; warned in {100 * warned / logs:.1f} %")
    for name, count in held.items():
        print(f"  {name:30} {100 * count / logs:.1f} %")
    truth, held, warned = true_value(opponent), {}, 0
    for seed in range(logs):
        log = simulated(seed, 8.0)
        found = evaluate(log, opponent(log.contexts), model=None, seed=seed)
        warned += bool(found.warnings)
        for name, one in found.estimates.items():
            held[name] = held.get(name, 0) + (one.low <= truth <= one.high)
    print(f"bad overlap: warned in {100 * warned / logs:.1f} %")
    for name, count in held.items():
        print(f"  {name:30} {100 * count / logs:.1f} %")


def robustness(logs: int) -> None:
    truth = true_value(candidate)
    cases: dict[str, tuple[bool, RewardModel]] = {
        "both right": (True, MODEL),
        "model broken": (True, BROKEN_MODEL),
        "propensities broken": (False, MODEL),
    }
    print("root mean squared error")
    for case, (honest, model) in cases.items():
        errors: dict[str, list[float]] = {}
        for seed in range(logs):
            log = simulated(seed, 2.0)
            if not honest:
                log = Log(log.contexts, log.played, log.rewards, np.full(ROUNDS, 0.25))
            found = evaluate(log, candidate(log.contexts), model=model, seed=seed)
            for name, one in found.estimates.items():
                errors.setdefault(name, []).append(one.value - truth)
        row = ", ".join(f"{name} {np.sqrt(np.mean(np.square(each))):.4f}" for name, each in errors.items())
        print(f"  {case}: {row}", flush=True)


if __name__ == "__main__":
    logs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    coverage(logs)
    robustness(max(logs // 5, 20))
