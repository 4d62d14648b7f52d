"""Real tables: the default beside the probe, one posterior per arm with nothing learned.

    python benchmarks/default/tables.py [--shuffles 5] [--horizon 1500] [--table pima]

The tables are those of the bake-off (``benchmarks/bakeoff``), which plays other libraries on them; unless one is named,
those with classes that the default was designed on. Both policies meet the same rows in the same order; accuracy is
progressive, and seconds are of the processor. The probe has the kernel 0.2 + 0.4·⟨x, y⟩/d + 0.4·Gaussian(√d), λ = 0.1,
one standard deviation and at most 150 anchors for each arm.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np

import kernel_bandits as kb

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bakeoff.libraries.probe import probe  # noqa: E402 (the path is set above)
from bakeoff.problem import Problem  # noqa: E402
from bakeoff.tables import all_tables  # noqa: E402


def default(columns: int, seed: int) -> kb.Policy:
    del columns  # nothing is set
    return kb.ek_ucb(seed=seed)


POLICIES = {"default": default, "probe": probe}


def played(task: tuple[Path, str, int, int]) -> tuple[float, float, float]:
    """Return the accuracy of a run, its seconds, and those of the slowest round."""
    path, name, seed, horizon = task
    problem = Problem.load(path)
    rows = np.random.default_rng(seed).permutation(problem.rows)[:horizon]
    contexts, rewards = problem.contexts, problem.rewards
    arms, policy = np.eye(rewards.shape[1]), POLICIES[name](contexts.shape[1], seed)
    right, slowest, started = 0.0, 0.0, time.process_time()
    for row in rows:
        begun = time.process_time()
        decision = policy.select(contexts[row], arms)
        policy.update(contexts[row], decision.action, rewards[row, decision.index])
        right += rewards[row, decision.index]
        slowest = max(slowest, time.process_time() - begun)
    return right / len(rows), time.process_time() - started, slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shuffles", type=int, default=5)
    parser.add_argument("--horizon", type=int, default=1500)
    parser.add_argument("--table", action="append", help="only this table; may be repeated")
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "bakeoff", help="where tables are kept")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    tables = all_tables()
    designed_on = [name for name, table in tables.items() if table.is_development and table.kind == "classes"]
    with multiprocessing.Pool(options.jobs) as pool:
        for name in options.table or designed_on:
            path = tables[name].prepare(options.folder / "wheels", options.folder / "problems")
            tasks = [(path, policy, seed, options.horizon) for policy in POLICIES for seed in range(options.shuffles)]
            runs = np.array(pool.map(played, tasks, chunksize=1)).reshape(len(POLICIES), options.shuffles, 3)
            accuracy, seconds, slowest = np.moveaxis(runs, 2, 0)
            difference = accuracy[0] - accuracy[1]
            half = 1.96 * difference.std(ddof=1) / math.sqrt(options.shuffles) if options.shuffles > 1 else math.nan
            print(
                f"{name:16s} default {accuracy[0].mean():.3f} probe {accuracy[1].mean():.3f} "
                f"difference {difference.mean():+.3f} ± {half:.3f}; "
                f"{seconds[0].mean():.1f} s, slowest round {slowest[0].max():.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
