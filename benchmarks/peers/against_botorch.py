"""Learned kernels here against BoTorch's SingleTaskGP + UCB, on paired seeds: regret and processor time.

    python -m venv peers && peers/bin/pip install -r benchmarks/peers/botorch-requirements.txt .
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 peers/bin/python benchmarks/peers/against_botorch.py results.jsonl

Each run is a line of the file; runs that stand there already are not repeated, so that a long comparison can be
interrupted. ``--only`` runs one of the two.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch_policy import BotorchUCB

import kernel_bandits as kb

ENVIRONMENTS = ("Bump", "Chessboard", "StepDiagonal")
POLICIES = {"botorch": BotorchUCB, "learned": lambda seed: kb.ek_ucb(seed=seed)}


def compare(results: Path, horizon: int, seeds: int, only: str | None) -> None:
    """Run what is missing and append it."""
    done = {(row["policy"], row["environment"], row["seed"]) for row in load(results) if row["horizon"] == horizon}
    for seed in range(seeds):
        for environment in ENVIRONMENTS:
            for name, build in POLICIES.items():
                if only not in (None, name) or (name, environment, seed) in done:
                    continue
                policy = build(seed)
                started = time.process_time()
                run = kb.run(policy, getattr(kb.environments, environment)(), horizon, seed=seed)
                row = {
                    "policy": name,
                    "environment": environment,
                    "seed": seed,
                    "horizon": horizon,
                    "regret": float(run.regret[-1]),
                    "seconds": time.process_time() - started,
                }
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def load(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def table(rows: list[dict[str, Any]], horizon: int) -> str:
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
