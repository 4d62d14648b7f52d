"""Violations and shortfall of constrained policies, where the output is what the constraint takes it for.

    python benchmarks/constraints.py                      # rows: 20 seeds of 800 plays
    python benchmarks/constraints.py --box --deviations 2 # a box, with c = 2 alone

Reward and output are drawn from Gaussian processes over a context and two settings; the output has the kernel that the
constraint is given. 60 % of the box keep the limit on average, and one action that does so in every context is known.
The promise is Φ(−c) for each play at the limit. The shortfall is against the best action that keeps the limit in the
context, over the last quarter of the plays, in standard deviations of the reward.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

import kernel_bandits as kb
from kernel_bandits.kernels.fourier import RandomFourierFeatures

KERNEL, FREQUENCIES, NOISE = kb.Gaussian(0.5), 400, 0.1
SIDE = np.linspace(0.0, 1.0, 11)
ROWS = np.stack([axis.ravel() for axis in np.meshgrid(SIDE, SIDE)], axis=1)
# Contexts at which the known action is checked.
PLACES = np.linspace(0.0, 1.0, 21)
REWARDS = {"given": {"kernel": KERNEL, "regularization": NOISE**2}, "learned": {}}


class Plant:
    """One draw of reward and output."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng([seed, 5])
        self._features = RandomFourierFeatures(KERNEL, FREQUENCIES, np.random.SeedSequence([seed, 6]))
        self._weights = generator.standard_normal((FREQUENCIES, 2))
        values = np.array([self.expected(place, ROWS)[:, 1] for place in PLACES])
        self.limit = float(np.quantile(values, 0.6))
        self.safe = ROWS[values.max(axis=0).argmin()]
        # the limit is kept there with a margin, whatever the context
        self.limit = max(self.limit, float(values.max(axis=0).min()) + 0.1)

    def expected(self, context: float, actions: np.ndarray) -> np.ndarray:
        """Return reward and output at actions (n, 2), shape (n, 2)."""
        points = np.column_stack([np.full(len(actions), context), actions])
        return self._features(points) @ self._weights


def play(seed: int, plays: int, reward: str, deviations: float | None, box: bool) -> tuple[int, int, float]:
    """Return violations, flags and the shortfall; without a constraint if there are no deviations."""
    plant, generator = Plant(seed), np.random.default_rng([seed, 7])
    policy = kb.ek_ucb(**REWARDS[reward], seed=seed)  # type: ignore[call-overload]
    if deviations is not None:
        limit = kb.Below(plant.limit, KERNEL, NOISE**2, deviations, prior_mean=0.0)
        policy.constrained({"output": limit}, safe_actions=plant.safe[None, :])
    violations, flags, shortfalls = 0, 0, []
    for number in range(plays):
        context = generator.random(1)
        decision = policy.select(context, kb.Box([0.0, 0.0], [1.0, 1.0]) if box else ROWS)
        value, output = plant.expected(float(context[0]), decision.action[None, :])[0]
        violations += output > plant.limit
        flags += not decision.safe
        noise = NOISE * generator.standard_normal(2)
        outputs = None if deviations is None else {"output": float(output + noise[0])}
        policy.update(context, decision.action, float(value + noise[1]), outputs=outputs)
        if number >= 3 * plays // 4:
            offered = plant.expected(float(context[0]), ROWS)
            shortfalls.append(float(offered[offered[:, 1] <= plant.limit, 0].max() - value))
    return violations, flags, float(np.mean(shortfalls))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--plays", type=int, default=800)
    parser.add_argument("--box", action="store_true")
    parser.add_argument("--deviations", nargs="*", type=float, help="c; none, 2 and 3 unless given")
    arguments = parser.parse_args()
    print("| kernel of the reward | c | promised | violations | shortfall | seconds a run |\n|---|---|---|---|---|---|")
    for reward in REWARDS:
        for deviations in arguments.deviations or (None, 2.0, 3.0):
            started = time.process_time()
            runs = np.array(
                [play(seed, arguments.plays, reward, deviations, arguments.box) for seed in range(arguments.seeds)]
            )
            seconds = (time.process_time() - started) / arguments.seeds
            share = 100.0 * runs[:, 0].sum() / (arguments.seeds * arguments.plays)
            promised = "–" if deviations is None else f"{50.0 * math.erfc(deviations / math.sqrt(2.0)):.2f} %"
            print(
                f"| {reward} | {'none' if deviations is None else f'{deviations:g}'} | {promised} | {share:.2f} % "
                f"({runs[:, 0].sum():.0f}) | {runs[:, 2].mean():.3f} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
