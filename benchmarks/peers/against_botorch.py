"""Learned kernels here against BoTorch's SingleTaskGP + UCB, on paired seeds: regret and processor time.

    python -m venv peers && peers/bin/pip install -r benchmarks/peers/botorch-requirements.txt .
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 peers/bin/python benchmarks/peers/against_botorch.py results.jsonl

Each run is a line of the file; runs that stand there already are not repeated, so that a long comparison can be
interrupted. ``--only`` runs one of the two.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch
from botorch_policy import BotorchUCB
from rows import Row, load, run_missing

import kernel_bandits as kb

ENVIRONMENTS = ("Bump", "Chessboard", "StepDiagonal")
POLICIES = {"botorch": BotorchUCB, "learned": lambda seed: kb.ek_ucb(seed=seed)}


def compare(results: Path, horizon: int, seeds: int, only: str | None) -> None:
    """Run what is missing and append it."""

    def play(run: Row) -> Row:
        policy, environment = POLICIES[run["policy"]](run["seed"]), getattr(kb.environments, run["environment"])()
        started = time.process_time()
        played = kb.run(policy, environment, horizon, seed=run["seed"])
        return {"regret": float(played.regret[-1]), "seconds": time.process_time() - started}

    every = product(range(seeds), ENVIRONMENTS, POLICIES)
    wanted = [
        {"policy": name, "environment": environment, "seed": seed, "horizon": horizon}
        for seed, environment, name in every
        if only in (None, name)
    ]
    run_missing(results, wanted, play)


def table(rows: list[Row], horizon: int) -> str:
    """Means over the seeds that both have, their paired difference with two standard errors, and the ratio of times."""
    lines = ["| environment | seeds | BoTorch | learned here | difference | processor time | ratio |", "|---" * 7 + "|"]
    for environment in ENVIRONMENTS:
        runs = {
            (row["policy"], row["seed"]): (row["regret"], row["seconds"])
            for row in rows
            if row["environment"] == environment and row["horizon"] == horizon
        }
        seeds = sorted(seed for name, seed in runs if name == "botorch" and ("learned", seed) in runs)
        if not seeds:
            continue
        peer = np.array([runs["botorch", seed] for seed in seeds])
        ours = np.array([runs["learned", seed] for seed in seeds])
        gap = ours[:, 0] - peer[:, 0]
        error = 2.0 * gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else float("nan")
        slow, fast = peer[:, 1].mean(), ours[:, 1].mean()
        lines.append(
            f"| {environment} | {len(seeds)} | {peer[:, 0].mean():.1f} | {ours[:, 0].mean():.1f} "
            f"| {gap.mean():+.1f} ± {error:.1f} | {slow:.1f} s, {fast:.2f} s | {slow / fast:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--horizon", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=POLICIES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    compare(arguments.results, arguments.horizon, arguments.seeds, arguments.only)
    print(table(load(arguments.results), arguments.horizon))


if __name__ == "__main__":
    main()
