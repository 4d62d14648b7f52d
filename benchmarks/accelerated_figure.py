"""Regret and dictionary of EK-UCB against λ and γ on the paper's environments, with 95 % intervals over 256 seeds.

Run: python benchmarks/accelerated_figure.py [--out FOLDER] to play (on a GPU where there is one), to keep the means in
FOLDER/accelerated-grid.json and to draw FOLDER/gpu-regularization-oversampling.png; with --draw only the figure.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from accelerated import ENVIRONMENTS, HORIZON, grid_replicas
from kernel_bandits_lab.accelerated import run_many
from kernel_bandits_lab.tables import mean_interval

RIDGES, OVERSAMPLINGS, SEEDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), (0.5, 2.0, 8.0), 256
# One setting per batch: memory is that of the largest dictionary in the batch.
BATCH = 256
# Wide beneath narrow, so that lines that agree are both seen.
STYLES = (("#0072B2", 1.4, "-"), ("#E69F00", 4.0, "-"), ("#333333", 1.2, "--"))


def play() -> dict[str, Any]:
    """Mean regret and dictionary size at the end with the half-width of their intervals, by environment and setting."""
    kept: dict[str, Any] = {"horizon": HORIZON, "seeds": SEEDS, "cells": []}
    for build in ENVIRONMENTS:
        environment = build()
        started = perf_counter()
        replicas = grid_replicas(environment, RIDGES, OVERSAMPLINGS, SEEDS)
        results = run_many(replicas, environment, HORIZON, batch_size=BATCH)
        print(f"{environment.name}: {len(results)} runs in {perf_counter() - started:.1f} s", flush=True)
        for number, (ridge, oversampling) in enumerate(product(RIDGES, OVERSAMPLINGS)):
            runs = results[number * SEEDS : (number + 1) * SEEDS]
            regret, regret_interval = mean_interval(np.array([run.regret[-1] for run in runs]))
            size, size_interval = mean_interval(np.array([float(run.dictionary_size[-1]) for run in runs]))
            cell = {"environment": environment.name, "λ": ridge, "γ": oversampling}
            cell |= {"regret": float(regret), "regret interval": float(regret_interval)}
            kept["cells"].append(cell | {"m": float(size), "m interval": float(size_interval)})
    return kept


def draw(kept: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(cell["environment"] for cell in kept["cells"]))
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    grid = figure.subplots(2, len(names), sharex=True, squeeze=False)
    for column, name in enumerate(names):
        for oversampling, (colour, width, dashes) in zip(OVERSAMPLINGS, STYLES, strict=True):
            cells = [c for c in kept["cells"] if c["environment"] == name and c["γ"] == oversampling]
            ridges = [cell["λ"] for cell in cells]
            for axes, field in zip(grid[:, column], ("regret", "m"), strict=True):
                mean, half = ([cell[key] for cell in cells] for key in (field, f"{field} interval"))
                axes.errorbar(
                    ridges, mean, half, color=colour, linewidth=width, linestyle=dashes, elinewidth=1.2, capsize=2
                )
        grid[0, column].set_title(name, loc="left", fontweight="bold", fontsize=10)
        for axes in grid[:, column]:
            axes.set_xscale("log")
            axes.grid(axis="y", color="#CCCCCC", linewidth=0.5, alpha=0.6)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
        grid[1, column].set_ylim(bottom=0)
        grid[1, column].set_xlabel("λ = μ")
    grid[0, 0].set_ylabel(f"regret after {kept['horizon']} rounds", fontsize=9)
    grid[1, 0].set_ylabel("anchors m", fontsize=9)
    handles = list(grid[0, 0].containers)
    figure.legend(handles, [f"γ = {o:g}" for o in OVERSAMPLINGS], loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--draw", action="store_true", help="draw what an earlier run has kept")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "accelerated-grid.json"
    if not arguments.draw:
        path.write_text(json.dumps(play(), indent=1))
    draw(json.loads(path.read_text()), arguments.out / "gpu-regularization-oversampling.png")


if __name__ == "__main__":
    main()
