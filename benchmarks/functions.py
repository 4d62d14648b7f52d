"""The test functions of Bayesian optimisation, maximised with nothing set, beside other optimisers.

    python benchmarks/functions.py                                       # all functions, three seeds, here alone
    python benchmarks/functions.py --functions hartmann6 --players here botorch optuna random --seeds 5
    python benchmarks/functions.py --noise 0.1 --evaluations 60
    python benchmarks/functions.py --functions ackley8 --evaluations 10000 --seeds 1

A function is scaled so that its best value is 0 and a random point is −1 on average: the regret printed is that of the
setting that the player would use at the end, without noise, in shares of what random play misses. ``--noise`` is a
standard deviation on the same scale. ``--minutes`` ends a run of any player after so much processor time, for a
comparison at equal time. Contextual functions draw one coordinate in each round, and are judged in 20 contexts.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

import kernel_bandits as kb

# Random points that the scale is taken from, and contexts that a contextual function is judged in.
SCALE_POINTS, JUDGED = 4096, 20

HARTMANN_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def branin(x: np.ndarray) -> np.ndarray:
    a, b = 15.0 * x[:, 0] - 5.0, 15.0 * x[:, 1]
    bowl = (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6.0) ** 2
    value: np.ndarray = -(bowl + 10 * (1 - 1 / (8 * math.pi)) * np.cos(a) + 10.0) + 0.397887
    return value


def hartmann6(x: np.ndarray) -> np.ndarray:
    away = np.einsum("kd,nkd->nk", HARTMANN_A, (x[:, None, :6] - HARTMANN_P) ** 2)
    value: np.ndarray = np.exp(-away) @ HARTMANN_ALPHA - 3.32237
    return value


def ackley(x: np.ndarray) -> np.ndarray:
    # the optimum is off the centre
    y = 32.768 * (2.0 * x - 1.0) - 6.0
    value: np.ndarray = (
        20.0 * np.exp(-0.2 * np.sqrt((y**2).mean(axis=1)))
        + np.exp(np.cos(2 * math.pi * y).mean(axis=1))
        - 20.0
        - math.e
    )
    return value


def levy(x: np.ndarray) -> np.ndarray:
    w = 1.0 + (20.0 * x - 10.0 - 1.0) / 4.0
    inner = ((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:, :-1] + 1) ** 2)).sum(axis=1)
    last = (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * math.pi * w[:, -1]) ** 2)
    value: np.ndarray = -(np.sin(math.pi * w[:, 0]) ** 2 + inner + last)
    return value


def rosenbrock(x: np.ndarray) -> np.ndarray:
    y = 15.0 * x - 5.0
    value: np.ndarray = -(100.0 * (y[:, 1:] - y[:, :-1] ** 2) ** 2 + (1.0 - y[:, :-1]) ** 2).sum(axis=1)
    return value


def mixed(x: np.ndarray) -> np.ndarray:
    """Hartmann-6 whose last two coordinates have five values each: a choice in no order, and an ordered one."""
    order = np.array([0.1, 0.9, 0.66, 0.3, 0.5])
    at = x.copy()
    at[:, 4] = order[np.minimum((5 * x[:, 4]).astype(int), 4)]
    at[:, 5] = (np.minimum((5 * x[:, 5]).astype(int), 4) + 0.5) / 5
    return hartmann6(at)


@dataclass(frozen=True)
class Function:
    """A function on the unit cube.

    Attributes:
        value: of points (n, d), largest 0 unless it is mixed.
        dimension: d.
        evaluations: unless another number is given.
        contexts: how many of the leading coordinates are drawn.
    """

    value: Callable[[np.ndarray], np.ndarray]
    dimension: int
    evaluations: int = 100
    contexts: int = 0


FUNCTIONS = {
    "branin": Function(branin, 2, 50),
    "hartmann6": Function(hartmann6, 6),
    "ackley10": Function(ackley, 10, 200),
    "ackley20": Function(ackley, 20, 300),
    "levy6": Function(levy, 6),
    "rosenbrock4": Function(rosenbrock, 4),
    "hartmann6 in 25": Function(hartmann6, 25, 150),
    "hartmann6 in 100": Function(hartmann6, 100, 200),
    "mixed": Function(mixed, 6),
    "branin, one given": Function(branin, 2, 60, 1),
    "hartmann6, one given": Function(hartmann6, 6, 150, 1),
    "ackley8": Function(ackley, 8, 300),
}


class Problem:
    """A function with its scale and noise."""

    def __init__(self, name: str, noise: float, seed: int) -> None:
        self.function, self.noise = FUNCTIONS[name], noise
        dimension, self.contexts = self.function.dimension, self.function.contexts
        values = self.function.value(np.random.default_rng(0).random((SCALE_POINTS, dimension)))
        self.top = float(max(values.max(), self._polished())) if name == "mixed" else 0.0
        self.scale = self.top - float(values.mean())
        self.generator = np.random.default_rng([seed, 3])
        self.dimension = dimension - self.contexts
        own: dict[str, Any] = {f"x{place}": (0.0, 1.0) for place in range(self.dimension)}
        if name == "mixed":
            own |= {"x4": ["a", "b", "c", "d", "e"], "x5": kb.Choice([1, 2, 3, 4, 5], ordered=True)}
        self.box = kb.Box(own)

    def _polished(self) -> float:
        generator = np.random.default_rng(1)
        points = generator.random((200_000, self.function.dimension))
        best = points[np.argsort(-self.function.value(points))[:50]]
        for width in (0.1, 0.03, 0.01, 0.003):
            near = np.clip(np.repeat(best, 400, axis=0) + width * generator.standard_normal((20_000, 6)), 0, 1)
            near[:, 4:] = np.repeat(best, 400, axis=0)[:, 4:]
            best = near[np.argsort(-self.function.value(near))[:50]]
        return float(self.function.value(best).max())

    def sense(self) -> np.ndarray:
        return self.generator.random(self.contexts)

    def regret(self, context: np.ndarray, fractions: np.ndarray) -> float:
        """Return what is missing at fractions of the box, in shares of what random play misses."""
        return (self.top - float(self.function.value(np.append(context, fractions)[None, :])[0])) / self.scale

    def measured(self, context: np.ndarray, fractions: np.ndarray) -> float:
        return -self.regret(context, fractions) + self.noise * float(self.generator.standard_normal())

    def missing(self, chosen: Callable[[np.ndarray], np.ndarray]) -> float:
        """Return the mean regret of what a player would use, less that of the best known answer in its context."""
        if not self.contexts:
            return self.regret(np.empty(0), chosen(np.empty(0)))
        found = []
        for context in np.random.default_rng(5).random((JUDGED, self.contexts)):
            best = self._best_in(context)
            found.append(self.regret(context, chosen(context)) - best)
        return float(np.mean(found))

    def _best_in(self, context: np.ndarray) -> float:
        from scipy.optimize import differential_evolution

        bounds = [(0.0, 1.0)] * self.dimension
        found = differential_evolution(lambda x: self.regret(context, x), bounds, rng=0, maxiter=60, polish=True)
        return float(found.fun)


class Here:
    """This library with nothing set."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.box, self.policy = problem.box, kb.ek_ucb(seed=seed)

    def ask(self, context: np.ndarray) -> np.ndarray:
        self.context, self.decision = context, self.policy.select(context, self.box)
        return self.box.fractions(self.decision.action[None, :])[0]

    def tell(self, _: np.ndarray, value: float) -> None:
        self.policy.update(self.context, self.decision.action, value)

    def best(self, context: np.ndarray) -> np.ndarray:
        return self.box.fractions(self.policy.best(context, self.box).action[None, :])[0]


class Remembers:
    """Players that would use the best setting they have measured, in the nearest context."""

    def __init__(self, problem: Problem) -> None:
        self.box, self.points, self.values = problem.box, list[np.ndarray](), list[float]()
        self.contexts, self.context = problem.contexts, np.empty(0)

    def tell(self, fractions: np.ndarray, value: float) -> None:
        self.points.append(np.append(self.context, fractions))
        self.values.append(value)

    def best(self, context: np.ndarray) -> np.ndarray:
        points, values = np.array(self.points), np.array(self.values)
        near = np.argsort(np.abs(points[:, : self.contexts] - context).sum(axis=1), kind="stable")
        some = near[: max(5, len(near) // 10)] if self.contexts else near
        return points[some[values[some].argmax()], self.contexts :]


class Random(Remembers):
    """Evenly drawn settings."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem)
        self.generator = np.random.default_rng(seed)

    def ask(self, context: np.ndarray) -> np.ndarray:
        self.context = context
        return self.generator.random(len(self.box.settings))


def players() -> dict[str, Callable[[Problem, int], Any]]:
    """Return who plays, by name."""
    return {"here": Here, "random": Random} | import_module("peers.function_peers").PLAYERS


def run(job: tuple[str, str, int, float, int | None, float]) -> dict[str, Any]:
    """Return the regret of the setting to use after the evaluations, and the seconds that they took."""
    name, player_name, seed, noise, evaluations, minutes = job
    problem = Problem(name, noise, seed)
    count, spent = evaluations or problem.function.evaluations, 0.0
    began = time.process_time()
    player = players()[player_name](problem, seed)
    played = 0
    while played < count and spent <= 60.0 * minutes:
        context = problem.sense()
        fractions = player.ask(context)
        player.tell(fractions, problem.measured(context, fractions))
        played, spent = played + 1, time.process_time() - began
    return {
        "function": name,
        "player": player_name,
        "seed": seed,
        "noise": noise,
        "evaluations": played,
        "seconds": spent,
        "regret": problem.missing(player.best),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", nargs="+", default=list(FUNCTIONS), choices=list(FUNCTIONS))
    parser.add_argument("--players", nargs="+", default=["here"], choices=list(players()))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--evaluations", type=int)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path, help="a file of lines of JSON")
    options = parser.parse_args()
    cases = product(options.functions, options.players, range(options.seeds))
    jobs = [(*case, options.noise, options.evaluations, options.minutes) for case in cases]
    rows: list[dict[str, Any]] = []
    with Pool(options.workers) as pool:
        for row in pool.imap_unordered(run, jobs) if options.workers > 1 else map(run, jobs):
            rows.append(row)
            if options.output:
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(f"{'function':>22} {'player':>8} {'evaluations':>11} {'regret':>8} {'worst':>8} {'seconds':>8}")
    for name, player in product(options.functions, options.players):
        own = [row for row in rows if (row["function"], row["player"]) == (name, player)]
        regret = [row["regret"] for row in own]
        print(
            f"{name:>22} {player:>8} {np.mean([row['evaluations'] for row in own]):11.0f} {np.median(regret):8.4f} "
            f"{max(regret):8.4f} {np.mean([row['seconds'] for row in own]):8.1f}"
        )


if __name__ == "__main__":
    main()
