"""Mixed plants: numbers and choices, sensors, drift and a limit, tuned in batches of four.

    python benchmarks/mixed.py                              # the reactor, with a box and nothing set
    python benchmarks/mixed.py --plants dev --seeds 3       # ten random plants
    python benchmarks/mixed.py --plants held-out --seeds 20 --policies box skopt botorch

A plant has 2 to 4 numeric settings, some logarithmic or whole, and one or two choices of 2 to 5 levels. Its yield is 90
at the peak of the best levels, and falls to 50 away from it; other levels have lower peaks elsewhere; sensors move the
peaks; a drift moves them on, and lowers all. The noise has a standard deviation of 1. Each run has 100 experiments.
The shortfall is the mean of best yield less yield over the last 20, where the best keeps the limit, if there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from importlib import import_module
from itertools import product
from multiprocessing import Pool
from typing import Any, Protocol

import numpy as np

import kernel_bandits as kb

EXPERIMENTS, LAST, BATCH = 100, 20, 4
PEAK, PLATEAU, AGEING = 90.0, 50.0, 6.0
# The part of its height that still counts as felt, and the share of the box that feels the peak.
FELT, SHARE = 0.1, 0.25
LIMIT, DEVIATION = 7.5, 0.1
ROWS = 600


class Plant:
    """A plant with its randomness.

    Args:
        number: which one; the reactor is None.
        seed: of its noise and sensors.
        variant: of the reactor: "drift", "limit", both or "".
    """

    def __init__(self, number: int | None, seed: int, variant: str = "drift") -> None:
        instance = np.random.default_rng([4, 0 if number is None else number + 1])
        if number is None:
            self.kinds, self.levels, self.sensors = ["number"] * 3, (3,), 3
            self.drift, self.is_limited = "drift" in variant, "limit" in variant
            instance = np.random.default_rng([4, 0, seed])
        else:
            count = int(instance.integers(2, 5))
            self.kinds = instance.choice(["number", "number", "logarithm", "whole"], count).tolist()
            self.kinds[0] = "number"
            self.levels = tuple(instance.integers(2, 6, instance.integers(1, 3)).tolist())
            self.sensors = int(instance.integers(0, 4))
            self.drift, self.is_limited = bool(number % 2), bool(number // 2 % 2)
        self.count = count = len(self.kinds)
        radius = (SHARE * math.gamma(count / 2 + 1) / math.pi ** (count / 2)) ** (1 / count)
        self.width = radius / math.sqrt(2 * math.log(1 / FELT))
        self.centre = instance.uniform(0.25, 0.75, count)
        self.falls = [np.append(0.0, instance.uniform(5.0, 20.0, size - 1)) for size in self.levels]
        self.falls = [instance.permutation(fall) for fall in self.falls]
        self.shifts = [instance.normal(0.0, 0.12, (size, count)) for size in self.levels]
        directions = instance.standard_normal((count, self.sensors))
        self.directions = 0.05 * directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12)
        way = instance.standard_normal(count)
        self.way = (0.25 if self.drift else 0.0) * way / np.linalg.norm(way)
        self.slopes = np.zeros(count)
        self.slopes[:2] = 3.0, 2.0
        self.generator = np.random.default_rng([seed, 17])
        self.box = kb.Box(
            {f"x{place}": self._range(kind) for place, kind in enumerate(self.kinds)}
            | {f"kind {place}": [f"level {one}" for one in range(size)] for place, size in enumerate(self.levels)}
        )
        # the settings as fractions of what is played: whole numbers from 1 to 9
        self.grids = [np.arange(9) / 8 if kind == "whole" else None for kind in self.kinds]

    @staticmethod
    def _range(kind: str) -> kb.Range:
        if kind == "whole":
            return kb.Range(1, 9, whole=True)
        return kb.Range(0.1, 10.0, logarithm=True) if kind == "logarithm" else kb.Range(20.0, 80.0)

    def sense(self) -> np.ndarray:
        return self.generator.standard_normal(self.sensors)

    def split(self, settings: dict[str, Any]) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return the numbers of named settings in [0, 1], and the levels of choices."""
        numbers = []
        for place, kind in enumerate(self.kinds):
            value = float(settings[f"x{place}"])
            numbers.append(
                (value - 1) / 8
                if kind == "whole"
                else math.log(value / 0.1) / math.log(100.0)
                if kind == "logarithm"
                else (value - 20) / 60
            )
        levels = tuple(int(str(settings[f"kind {place}"]).split()[1]) for place in range(len(self.levels)))
        return np.array(numbers), levels

    def _peak(self, sensed: np.ndarray, levels: tuple[int, ...], day: int) -> tuple[np.ndarray, float]:
        centre = self.centre + self.directions @ np.tanh(sensed) + day / EXPERIMENTS * self.way
        height = PEAK - (AGEING * day / EXPERIMENTS if self.drift else 0.0)
        for shifts, falls, level in zip(self.shifts, self.falls, levels, strict=True):
            centre, height = centre + shifts[level], height - falls[level]
        return np.clip(centre, 0.0, 1.0), height

    def expected(self, sensed: np.ndarray, settings: dict[str, Any], day: int) -> float:
        at, levels = self.split(settings)
        return float(self._yield(at, *self._peak(sensed, levels, day)))

    def pressure(self, settings: dict[str, Any]) -> float:
        return 4.0 + float(self.slopes @ self.split(settings)[0])

    def best(self, sensed: np.ndarray, day: int) -> float:
        """Return the best expected yield that keeps the limit."""
        grids = [np.array([math.nan]) if grid is None else grid for grid in self.grids]
        wholes = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, self.count)
        best = -math.inf
        for levels in product(*map(range, self.levels)):
            centre, height = self._peak(sensed, levels, day)
            at = np.where(np.isnan(wholes), centre, wholes)
            at = self._within(at) if self.is_limited else at
            if len(at):
                best = max(best, float(self._yield(at, centre, height).max()))
        return best

    def _yield(self, at: np.ndarray, centre: np.ndarray, height: float) -> np.ndarray:
        bump: np.ndarray = np.exp(-0.5 * (((at - centre) / self.width) ** 2).sum(axis=-1))
        return PLATEAU + (height - PLATEAU) * bump

    def _within(self, centres: np.ndarray) -> np.ndarray:
        """Return the nearest numbers that keep the limit, by bisection on their multipliers; none where none do."""
        free = [place for place, grid in enumerate(self.grids) if grid is None]

        def moved(multipliers: np.ndarray) -> np.ndarray:
            at = centres.copy()
            at[:, free] = np.clip(centres[:, free] - multipliers[:, None] * self.slopes[free], 0.0, 1.0)
            return at

        low, high = np.zeros(len(centres)), np.ones(len(centres))
        keep = 4.0 + moved(high) @ self.slopes <= LIMIT
        for _ in range(40):
            middle = 0.5 * (low + high)
            over = 4.0 + moved(middle) @ self.slopes > LIMIT
            low, high = np.where(over, middle, low), np.where(over, high, middle)
        is_kept = 4.0 + centres @ self.slopes <= LIMIT
        return np.where(is_kept[:, None], centres, moved(high))[is_kept | keep]

    @property
    def safe(self) -> dict[str, Any]:
        """Settings that keep the limit."""
        low = {"whole": 1, "logarithm": 0.2, "number": 26.0}
        return {f"x{place}": low[kind] for place, kind in enumerate(self.kinds)} | {
            f"kind {place}": "level 0" for place in range(len(self.levels))
        }


class Optimiser(Protocol):
    """Asks for experiments in named settings, and learns what they gave."""

    def ask(self, sensed: np.ndarray) -> tuple[Any, list[dict[str, Any]]]: ...

    def tell(self, asked: Any, rewards: list[float], pressures: list[float]) -> None: ...


class InBox:
    """The box, setting by setting; with a clock the number of the experiment is one more sensor."""

    def __init__(self, plant: Plant, seed: int, clock: bool = False, **options: Any) -> None:
        self.plant, self.policy, self.clock = plant, kb.ek_ucb(seed=seed, **options), clock
        if plant.is_limited:
            # half of each range, whatever the sensors and the levels
            settings = plant.box.lengthscales(0.5)
            settings[plant.count :] = 100.0
            lengthscales = np.append(np.full(plant.sensors + clock, 100.0), settings)
            limit = kb.Below(LIMIT, kernel=4.0 * kb.Matern(lengthscales), regularization=DEVIATION**2)
            self.policy.constrained({"pressure": limit}, safe_actions=[plant.box.encode(plant.safe)])

    def ask(self, sensed: np.ndarray) -> tuple[Any, list[dict[str, Any]]]:
        if self.clock:
            sensed = np.column_stack([sensed, np.full(len(sensed), float(self.policy.issued))])
        batch = self.policy.ask_many(sensed, self.plant.box)
        return batch, [self.plant.box.named(one.action) for one in batch]

    def tell(self, asked: Any, rewards: list[float], pressures: list[float]) -> None:
        for decision, reward, pressure in zip(asked, rewards, pressures, strict=True):
            outputs = {"pressure": pressure} if self.plant.is_limited else None
            self.policy.tell(decision, reward, outputs=outputs)


class InRows(InBox):
    """Rows of a fine list of the box."""

    def __init__(self, plant: Plant, seed: int, **options: Any) -> None:
        super().__init__(plant, seed, **options)
        from scipy.stats.qmc import Sobol

        self.rows = plant.box.at(Sobol(len(plant.box.settings), rng=seed).random(1024)[:ROWS])

    def ask(self, sensed: np.ndarray) -> tuple[Any, list[dict[str, Any]]]:
        batch = self.policy.ask_many(sensed, self.rows)
        return batch, [self.plant.box.named(one.action) for one in batch]


class InTable(InBox):
    """Rows of a table with named columns."""

    def __init__(self, plant: Plant, seed: int, **options: Any) -> None:
        from scipy.stats.qmc import Sobol

        rows = plant.box.at(Sobol(len(plant.box.settings), rng=seed).random(1024)[:ROWS])
        self.plant, self.rows = plant, [plant.box.named(row) for row in rows]
        columns: dict[str, Any] = {f"x{place}": kb.Numeric() for place in range(plant.count)}
        columns |= {f"kind {place}": kb.Categorical() for place in range(len(plant.levels))}
        self.sensors = {f"sensor {place}": kb.Numeric() for place in range(plant.sensors)}
        self.policy: Any = kb.ek_ucb(features=kb.Features(context=self.sensors, actions=columns), seed=seed, **options)

    def ask(self, sensed: np.ndarray) -> tuple[Any, list[dict[str, Any]]]:
        batch = [self.policy.ask(dict(zip(self.sensors, row, strict=True)), self.rows) for row in sensed.tolist()]
        return batch, [one.action for one in batch]


def optimisers() -> dict[str, Callable[[Plant, int], Optimiser]]:
    """Return who plays, by name; those of other libraries where they are installed."""
    found: dict[str, Callable[[Plant, int], Optimiser]] = {
        "box": InBox,
        "rows": InRows,
        "table": InTable,
        "clock": lambda plant, seed: InBox(plant, seed, clock=True),
        "discount": lambda plant, seed: InBox(plant, seed, forgetting=kb.Discount(150)),
        "restart": lambda plant, seed: InBox(plant, seed, forgetting=kb.Restart()),
    }
    return found | import_module("peers.mixed_peers").PEERS


def _best_row(plant: Plant, sensed: np.ndarray, day: int, rows: Any) -> float:
    """Return the best expected yield of rows that keep the limit."""
    named = rows if isinstance(rows, list) else [plant.box.named(row) for row in rows]
    kept = [row for row in named if not plant.is_limited or plant.pressure(row) <= LIMIT]
    return max(plant.expected(sensed, row, day) for row in kept)


def run(job: tuple[str, int | None, int, str]) -> dict[str, Any]:
    """Tune a plant; return the shortfall and what it cost."""
    name, number, seed, variant = job
    plant = Plant(number, seed, variant)
    began = time.process_time()
    optimiser = optimisers()[name](plant, seed)
    spent = time.process_time() - began
    short, violations = [], 0
    for day in range(0, EXPERIMENTS, BATCH):
        sensed = np.array([plant.sense() for _ in range(BATCH)]).reshape(BATCH, plant.sensors)
        began = time.process_time()
        asked, settings = optimiser.ask(sensed)
        spent += time.process_time() - began
        expected = [plant.expected(row, one, day) for row, one in zip(sensed, settings, strict=True)]
        rewards = [value + plant.generator.standard_normal() for value in expected]
        pressures = [plant.pressure(one) for one in settings]
        violations += sum(value > LIMIT for value in pressures) if plant.is_limited else 0
        noisy = [value + DEVIATION * plant.generator.standard_normal() for value in pressures]
        best = [_best_row(plant, row, day, optimiser.rows) for row in sensed] if hasattr(optimiser, "rows") else None
        best = [plant.best(row, day) for row in sensed] if best is None else best
        short += [most - value for most, value in zip(best, expected, strict=True)]
        began = time.process_time()
        optimiser.tell(asked, rewards, noisy)
        spent += time.process_time() - began
    last = float(np.mean(short[-LAST:]))
    return {
        "policy": name,
        "plant": number,
        "variant": variant,
        "seed": seed,
        "last": last,
        "all": float(np.mean(short)),
        "violations": violations,
        "seconds": spent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plants", default="reactor", help="reactor, dev, held-out, or numbers")
    parser.add_argument("--variants", nargs="+", default=["drift"], help="of the reactor: none, drift, limit")
    parser.add_argument("--policies", nargs="+", default=["box"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", help="a file of lines of JSON")
    options = parser.parse_args()
    sets: dict[str, list[int | None]] = {"reactor": [None], "dev": list(range(10)), "held-out": list(range(10, 20))}
    plants = sets.get(options.plants) or [int(one) for one in options.plants.split(",")]
    variants = options.variants if plants == [None] else ["own"]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = list(product(options.policies, plants, seeds, variants))
    found = []
    with Pool(options.workers) as pool:
        for row in pool.imap_unordered(run, jobs) if options.workers > 1 else map(run, jobs):
            found.append(row)
            if options.output:
                with open(options.output, "a") as file:
                    file.write(json.dumps(row) + "\n")
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("   plant  variant     policy  last 20  worst    all  broken  seconds")
    for number, variant, name in product(plants, variants, options.policies):
        rows = [row for row in found if (row["plant"], row["variant"], row["policy"]) == (number, variant, name)]
        last, whole = [row["last"] for row in rows], np.mean([row["all"] for row in rows])
        broken, seconds = np.mean([row["violations"] for row in rows]), np.mean([row["seconds"] for row in rows])
        print(
            f"{'reactor' if number is None else number!s:>8} {variant:>8} {name:>10} {np.mean(last):8.2f} "
            f"{max(last):6.1f} {whole:6.1f} {broken:7.1f} {seconds:8.1f}"
        )


if __name__ == "__main__":
    main()
