"""Coverage and regret of UCB over a family of kernels, where the right kernel is in the family and where it is not.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/kernel_family.py coverage|regret
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from kernel_bandits_lab.tables import mean_interval

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray

NORM, NOISE, FAILURE, RIDGE = 1.0, 0.1, 0.1, 0.01
LENGTHSCALES = (0.1, 0.3, 1.0)
FAMILY = [kb.Gaussian(lengthscale) for lengthscale in LENGTHSCALES]
RADIUS = kb.Tightened(norm_bound=NORM, noise_bound=NOISE, failure_probability=FAILURE)
RULES = {"exact": None, "projected": kb.Kors(oversampling=10.0)}
PLAY = ("largest bound", "balanced")


@dataclass(frozen=True)
class Truth:
    """θ* = Σ α_j k(c_j, ·) of norm 1 in the space of its kernel."""

    kernel: kb.Gaussian
    centres: FloatArray
    coefficients: FloatArray

    def __call__(self, points: FloatArray) -> FloatArray:
        return self.kernel(points, self.centres) @ self.coefficients


def draw(lengthscale: float, generator: np.random.Generator) -> Truth:
    """Return a function of norm 1 in the space of a Gaussian kernel."""
    kernel = kb.Gaussian(lengthscale)
    centres, coefficients = generator.random((20, 2)), generator.standard_normal(20)
    scale = NORM / math.sqrt(coefficients @ kernel(centres) @ coefficients)
    return Truth(kernel, centres, scale * coefficients)


def adversarial_noise(error: float, generator: np.random.Generator) -> float:
    """Return noise of mean 0 on two points 2R apart, hence R-sub-Gaussian, skewed away from where the model errs."""
    up = 0.2 if error > 0 else 0.8
    return 2.0 * NOISE * ((1.0 - up) if generator.random() < up else -up)


def covered(kind: str, seed: int, horizon: int = 120) -> tuple[bool, bool, float]:
    """Play against an adversary; return whether a bound failed, the right kernel was refuted, and the largest error.

    The error is |f − mean|/(β·std/√λ) of the right kernel, at the offered and at fresh points of every round. Contexts
    are where the right kernel errs most, in units of its width, of twenty.
    """
    generator = np.random.default_rng(seed)
    right = seed % len(FAMILY)
    truth = draw(LENGTHSCALES[right], generator)
    policy = kb.family_ucb(FAMILY, confidence=RADIUS, regularization=RIDGE, dictionary=RULES[kind], seed=seed)
    failed, worst = False, 0.0
    for _ in range(horizon):
        contexts, actions = generator.random((20, 1)), generator.random((5, 1))
        joint = np.column_stack([contexts.repeat(5), np.tile(actions[:, 0], 20)])
        evaluation = policy.members[right].posterior.evaluate(joint)
        width = policy.model.radius(right) * evaluation.std / math.sqrt(RIDGE)
        ratios = np.abs(truth(joint) - evaluation.mean) / width
        worst = max(worst, float(ratios.max()))
        context = contexts[int(ratios.argmax()) // 5]
        lower, upper = policy.interval(context, actions)
        expected = truth(np.column_stack([np.full(5, context[0]), actions]))
        failed |= bool(((expected < lower - 1e-9) | (expected > upper + 1e-9)).any())
        decision = policy.select(context, actions)
        value = float(expected[decision.index])
        policy.update(context, decision.action, value + adversarial_noise(value - decision.mean, generator))
    return failed, policy.members[right].is_refuted, worst


def regret(lengthscale: float, how: str, seed: int, horizon: int = 300) -> float:
    """Return the regret of a way to choose the kernel, against a truth of this lengthscale."""
    generator = np.random.default_rng(seed)
    truth = draw(lengthscale, generator)
    kernels = FAMILY if how in PLAY else [kb.Gaussian(float(how.rpartition(" ")[2]))]
    policy = kb.family_ucb(
        kernels,
        confidence=RADIUS,
        regularization=RIDGE,
        play="largest bound" if how == "largest bound" else "balanced",
        dictionary=None,
        seed=seed,
    )
    total = 0.0
    for _ in range(horizon):
        context, actions = generator.random(1), generator.random((10, 1))
        expected = truth(np.column_stack([np.full(10, context[0]), actions]))
        decision = policy.select(context, actions)
        reward = float(expected[decision.index]) + NOISE * generator.standard_normal()
        policy.update(context, decision.action, reward)
        total += float(expected.max() - expected[decision.index])
    return total


def _coverage(runs: int) -> None:
    print("| posterior | runs | bounds that failed | right kernel refuted | largest error in units of the bound |")
    print("|---|---|---|---|---|")
    for kind in RULES:
        found = [covered(kind, seed) for seed in range(runs)]
        failed, refuted, worst = (np.array(column) for column in zip(*found, strict=True))
        print(f"| {kind} | {runs} | {failed.sum()} | {refuted.sum()} | {worst.max():.2f} |")


def _regrets(seeds: int) -> None:
    ways = [*PLAY, *(f"only {lengthscale:g}" for lengthscale in LENGTHSCALES)]
    print("| truth | " + " | ".join(ways) + " |")
    print("|---|" + "---|" * len(ways))
    for lengthscale in (*LENGTHSCALES, 0.05):
        cells = []
        for how in ways:
            mean, half = mean_interval(np.array([regret(lengthscale, how, seed) for seed in range(seeds)]))
            cells.append(f"{float(mean):.1f} ± {float(half):.1f}")
        place = "in the family" if lengthscale in LENGTHSCALES else "in none"
        print(f"| lengthscale {lengthscale:g}, {place} | " + " | ".join(cells) + " |", flush=True)


COMMANDS: dict[str, Callable[[int], None]] = {"coverage": _coverage, "regret": _regrets}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else {"coverage": 200, "regret": 10}[sys.argv[1]])
