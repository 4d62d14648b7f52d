"""Continuous actions: how often the search finds the largest upper bound of a box, and how long it takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time

import numpy as np
from measure import markdown
from scipy.optimize import minimize

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.boxes.ascent import ascend
from kernel_bandits.boxes.search import BoundInBox

KERNELS: dict[str, Callable[[float], kb.Kernel]] = {
    "Gaussian": kb.Gaussian,
    "Matérn 5/2": kb.Matern,
    "Matérn 3/2": lambda lengthscale: kb.Matern(lengthscale, smoothness=1.5),
    "Exponential": kb.Exponential,
    "Polynomial of degree 3": lambda lengthscale: kb.Polynomial(3, 2.0 * lengthscale),
    "sum and product": lambda lengthscale: (
        0.5 * kb.Gaussian(lengthscale) + kb.Linear(offset=1.0) * kb.Matern(2.0 * lengthscale)
    ),
}
PRESETS: tuple[Callable[..., kb.policy.UpperConfidenceBound], ...] = (
    kb.k_ucb,
    kb.ek_ucb,
    lambda kernel, **options: kb.ek_ucb(kernel, dictionary=kb.Kors(history="none"), **options),
)
POINTS = 100_000
# What rounding may make of one bound computed in two ways, relative.
ROUNDING = 1e-9


def unit_box(dimension: int) -> kb.Box:
    return kb.Box(np.zeros(dimension), np.ones(dimension))


def random_policy(kernel: str, dimension: int, seed: int) -> tuple[kb.policy.UpperConfidenceBound, FloatArray]:
    """A policy that has learned a random function on a box, and a context.

    Lengthscale, noise, radius, number of rounds, scale of the rewards and the presence of a context are drawn; a third
    of the policies have each posterior; half have learned a log of random actions, half chose their actions themselves.
    """
    generator = np.random.default_rng([seed, dimension])
    lengthscale = float(generator.choice([0.1, 0.2, 0.4, 1.0])) * np.sqrt(dimension)
    policy = PRESETS[seed % 3](
        KERNELS[kernel](lengthscale),
        regularization=float(generator.choice([1e-4, 1e-2, 0.1])),
        confidence=kb.StandardDeviations(float(generator.choice([0.3, 1.0, 3.0]))),
        seed=seed,
    )
    context_dimension = int(generator.choice([0, 2]))
    waves = 4.0 * generator.normal(size=(context_dimension + dimension, 3))
    phases, scale = 2 * np.pi * generator.random(3), float(generator.choice([0.1, 0.5, 2.0]))

    def rewards(contexts: FloatArray, actions: FloatArray) -> FloatArray:
        noise = 0.1 * generator.normal(size=len(actions))
        return scale * (np.sin(np.hstack([contexts, actions]) @ waves + phases).sum(axis=1) + noise)

    rounds = int(generator.choice([3, 10, 30, 100, 200]))
    contexts = generator.random((rounds, context_dimension))
    if seed % 2:
        box = unit_box(dimension)
        for context in contexts[:60]:
            action = policy.select(context, box).action
            policy.update(context, action, float(rewards(context[None, :], action[None, :])[0]))
    else:
        actions = generator.random((rounds, dimension))
        policy.update_many(contexts, actions, rewards(contexts, actions))
    return policy, generator.random(context_dimension)


def reference(policy: kb.policy.UpperConfidenceBound, context: FloatArray, dimension: int, points: int) -> float:
    """The largest bound on an even grid in one dimension, and among random points in more."""
    generator = np.random.default_rng(0)
    actions = np.linspace(0, 1, points)[:, None] if dimension == 1 else generator.random((points, dimension))
    number = policy.confidence.radius(policy.posterior) / np.sqrt(policy.posterior.regularization)
    best = -np.inf
    for start in range(0, points, 2000):
        prediction = policy.predict(context, actions[start : start + 2000])
        best = max(best, float((prediction.mean + number * prediction.std).max()))
    return best


def shortfall(kernel: str, dimension: int, seed: int, points: int = POINTS) -> tuple[float, float, int]:
    """How far the selected bound lies below the reference, relative; the processor time in seconds, and m."""
    policy, context = random_policy(kernel, dimension, seed)
    policy.select(context, unit_box(dimension))
    started = process_time()
    found = policy.select(context, unit_box(dimension)).upper_bound
    seconds = process_time() - started
    best = reference(policy, context, dimension, points)
    return (best - found) / abs(best), seconds, policy.dictionary_size


def found_shares(posteriors: int = 200) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for kernel in KERNELS:
        for dimension in (1, 2, 4):
            shortfalls = np.array([shortfall(kernel, dimension, seed)[0] for seed in range(posteriors)])
            rows.append(
                {
                    "kernel": kernel,
                    "dimension": dimension,
                    "found, %": 100 * float((shortfalls <= ROUNDING).mean()),
                    "largest shortfall, %": 100 * max(float(shortfalls.max()), 0.0),
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def times() -> list[dict[str, object]]:
    """Processor time of one selection on posteriors of a given size."""
    rows: list[dict[str, object]] = []
    for dimension in (1, 2, 4):
        for size in (50, 200, 500):
            generator = np.random.default_rng(0)
            anchors = generator.random((size, 2 + dimension))
            policy = kb.ek_ucb(kb.Matern(0.5), dictionary=kb.Fixed(anchors), regularization=0.01, seed=0)
            rewards = np.sin(5 * anchors).sum(axis=1)
            policy.update_many(anchors[:, :2], anchors[:, 2:], rewards)
            seconds = []
            for context in generator.random((40, 2)):
                started = process_time()
                policy.select(context, unit_box(dimension))
                seconds.append(process_time() - started)
            rows.append({"dimension": dimension, "m": policy.dictionary_size, "ms": 1e3 * float(np.median(seconds))})
    return rows


def against_scipy(posteriors: int = 60, starts: int = 16) -> list[dict[str, object]]:
    """The ascent of all starts together against SciPy's L-BFGS-B from one start after the other."""
    rows: list[dict[str, object]] = []
    for kernel in ("Gaussian", "Exponential"):
        for dimension in (1, 2, 4):
            seconds, heights = np.zeros(2), np.empty((2, posteriors))
            for seed in range(posteriors):
                policy, context = random_policy(kernel, dimension, seed)
                bound = BoundInBox.of(policy.posterior, policy.bonus, context, unit_box(dimension))
                begin = np.random.default_rng(seed).random((starts, dimension))

                def negative(x: FloatArray, bound: BoundInBox = bound) -> tuple[float, FloatArray]:
                    values, gradients = bound.with_gradients(x[None, :])
                    return -float(values[0]), -gradients[0]

                started = process_time()
                heights[0, seed] = ascend(bound.with_gradients, begin, first_step=0.02, tolerance=1e-11)[1].max()
                between = process_time()
                limits = [(0.0, 1.0)] * dimension
                ends = [minimize(negative, x, jac=True, method="L-BFGS-B", bounds=limits).fun for x in begin]
                heights[1, seed] = -min(ends)
                seconds += between - started, process_time() - between
            rows.append(
                {
                    "kernel": kernel,
                    "dimension": dimension,
                    "together, ms": 1e3 * seconds[0] / posteriors,
                    "SciPy, ms": 1e3 * seconds[1] / posteriors,
                    "together lower, %": 100 * float((heights[0] < heights[1] - 1e-9 * np.abs(heights[1])).mean()),
                    "SciPy lower, %": 100 * float((heights[1] < heights[0] - 1e-9 * np.abs(heights[0])).mean()),
                }
            )
    return rows


if __name__ == "__main__":
    print(markdown(times()), "\n")
    print(markdown(against_scipy()), "\n")
    print(markdown(found_shares(int(sys.argv[1]) if sys.argv[1:] else 200)))
