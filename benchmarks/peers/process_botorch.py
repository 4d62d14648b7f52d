"""The plant of ``benchmarks/process.py``: this library with nothing set, against BoTorch's qUCB with its defaults.

    python -m venv peers && peers/bin/pip install -r benchmarks/peers/botorch-requirements.txt .
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 peers/bin/python benchmarks/peers/process_botorch.py results.jsonl

BoTorch has a ``SingleTaskGP`` with its default kernel, priors and transforms, fitted before every batch, and
``qUpperConfidenceBound`` with β = 0.2, the default of its constructor of inputs, maximised by ``optimize_acqf`` with 10
restarts from 512 samples, as in its tutorials. The sensors are fixed features; the experiments of a batch have sensors
of their own, so that each is chosen with those before it pending. Both begin with as many Sobol points.

Each run is a line of the file; runs that stand there already are not repeated.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.stats.qmc  # noqa: F401, loaded before the clock starts, as BoTorch is
import torch
from botorch.acquisition import qUpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from rows import Row, load, run_missing

import kernel_bandits as kb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from process import LAST, SETS, Run

BETA, RESTARTS, SAMPLES = 0.2, 10, 512
# As many as the design of the policy here.
PER_COORDINATE, BESIDES = 3, 3


class Asked(NamedTuple):
    """What a run reads of a decision."""

    id: int
    context: np.ndarray
    action: np.ndarray


class BotorchExperiments:
    """Asks for experiments in a box by qUCB; actions are fractions of the box inside.

    Args:
        seed: of the design and of the optimiser.
    """

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self._seed = seed
        self._points: list[np.ndarray] = []
        self._rewards: list[float] = []
        self._awaited: dict[int, np.ndarray] = {}
        self._asked = 0
        self._model: SingleTaskGP | None = None

    def ask(self, context: np.ndarray, box: kb.Box) -> Asked:
        design = PER_COORDINATE * box.dimension + BESIDES
        if self._asked < design:
            points = torch.quasirandom.SobolEngine(box.dimension, scramble=True, seed=self._seed).draw(design)
            fractions = points[self._asked].double().numpy()
        else:
            fractions = self._best(context, box.dimension)
        self._awaited[self._asked] = np.concatenate([context, fractions])
        self._asked += 1
        return Asked(self._asked - 1, context, box.at(fractions[None, :])[0])

    def tell(self, key: int, reward: float) -> None:
        self._points.append(self._awaited.pop(key))
        self._rewards.append(reward)
        self._model = None

    def _best(self, context: np.ndarray, dimension: int) -> np.ndarray:
        if self._model is None:
            points = torch.from_numpy(np.array(self._points))
            rewards = torch.tensor(self._rewards, dtype=torch.float64)[:, None]
            self._model = SingleTaskGP(points, rewards, input_transform=Normalize(points.shape[1]))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(self._model.likelihood, self._model))
        pending = torch.from_numpy(np.array(list(self._awaited.values()))) if self._awaited else None
        acquisition = qUpperConfidenceBound(self._model, BETA, X_pending=pending)
        count = len(context)
        bounds = torch.zeros(2, count + dimension, dtype=torch.float64)
        bounds[1] = 1.0
        bounds[:, :count] = torch.from_numpy(context)
        fixed = {column: float(value) for column, value in enumerate(context)} or None
        found, _ = optimize_acqf(acquisition, bounds, 1, RESTARTS, SAMPLES, fixed_features=fixed)
        return found[0, count:].numpy()


POLICIES = {"botorch": BotorchExperiments, "here": lambda seed: kb.ek_ucb(seed=seed)}


def compare(results: Path, variants: list[str], seeds: int) -> None:
    """Run what is missing and append it."""
    known = {name: plant for each in SETS.values() for name, plant in each.items()}

    def play(run: Row) -> Row:
        started = time.process_time()
        shortfalls, _ = Run(known[run["variant"]], run["seed"]).play(POLICIES[run["policy"]](run["seed"]))
        return {
            "end": float(shortfalls[-LAST:].mean()),
            "all": float(shortfalls.mean()),
            "seconds": time.process_time() - started,
        }

    every = product(range(seeds), variants, POLICIES)
    wanted = [{"policy": name, "variant": variant, "seed": seed} for seed, variant, name in every]
    run_missing(results, wanted, play)


def table(rows: list[Row]) -> str:
    """Return shortfalls in the last 30 experiments and in all 120, and seconds, over the seeds that both have."""
    lines = [
        "| plant | seeds | last 30: BoTorch (worst) | here (worst) | all 120: BoTorch | here | seconds | ratio |",
        "|---" * 8 + "|",
    ]
    for variant in dict.fromkeys(row["variant"] for row in rows):
        runs = {
            (row["policy"], row["seed"]): (row["end"], row["all"], row["seconds"])
            for row in rows
            if row["variant"] == variant
        }
        seeds = sorted(seed for name, seed in runs if name == "botorch" and ("here", seed) in runs)
        if not seeds:
            continue
        peer = np.array([runs["botorch", seed] for seed in seeds])
        ours = np.array([runs["here", seed] for seed in seeds])
        slow, fast = peer[:, 2].mean(), ours[:, 2].mean()
        lines.append(
            f"| {variant} | {len(seeds)} | {peer[:, 0].mean():.2f} ({peer[:, 0].max():.2f}) "
            f"| {ours[:, 0].mean():.2f} ({ours[:, 0].max():.2f}) | {peer[:, 1].mean():.1f} | {ours[:, 1].mean():.1f} "
            f"| {slow:.0f}, {fast:.1f} | {slow / fast:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--variants", nargs="*", default=["2d", "3d", "4d", "6d"])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    compare(arguments.results, arguments.variants, arguments.seeds)
    print(table(load(arguments.results)))


if __name__ == "__main__":
    main()
