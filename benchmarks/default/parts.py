"""What single parts of the default are worth: paired differences over shuffles of real tables.

    python benchmarks/default/parts.py tails [--shuffles 6] [--horizon 1000] [--table spambase] [--first 800]
    python benchmarks/default/parts.py categories
    python benchmarks/default/parts.py zero-inflated

``tails`` bends context columns with long tails, ``categories`` recognises 0/1 columns of one variable in plain arrays,
``zero-inflated`` explores arms further that pay nothing or a price. Each is compared with the default without it. The
tables are those of the bake-off that the default was designed on; figures on them are optimistic.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from pathlib import Path

import numpy as np

import kernel_bandits as kb
from kernel_bandits.learning import defaults

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bakeoff.problem import Problem  # noqa: E402 (the path is set above)
from bakeoff.tables import all_tables  # noqa: E402

TABLES = {
    "tails": (
        *("pima", "wisconsin", "spambase", "magic", "phoneme", "saheart", "australian", "crx", "ionosphere", "wdbc"),
        *("bands", "segment", "vehicle", "contraceptive", "texture", "housing-prices", "german", "letter"),
        *("optdigits", "diamond-prices"),
    ),
    "categories": ("adult", "german", "crx", "mushroom", "chess", "splice", "tic-tac-toe", "saheart"),
    "zero-inflated": ("diamond-prices", "housing-prices"),
}


def leave_out(part: str) -> None:
    """Leave a part out of the default in this process."""
    if part == "tails":
        defaults.LONG_TAIL = math.inf
    elif part == "zero-inflated":
        defaults.ZERO_INFLATED_SHARE = math.inf


def played(task: tuple[Path, str, bool, int, int]) -> float:
    """Return the mean reward of a run with or without a part."""
    path, part, has_part, seed, horizon = task
    problem, learning = Problem.load(path), kb.KernelLearning()
    if not has_part:
        leave_out(part)
        if part == "categories":
            # every column is told to be a variable of its own
            learning = kb.KernelLearning(groups=tuple(range(problem.contexts.shape[1] + problem.arms)))
    policy, arms, total = kb.ek_ucb(learn_kernel=learning, seed=seed), np.eye(problem.arms), 0.0
    rows = np.random.default_rng(seed).permutation(problem.rows)[:horizon]
    for row in rows:
        decision = policy.select(problem.contexts[row], arms)
        policy.update(problem.contexts[row], decision.action, problem.rewards[row, decision.index])
        total += problem.rewards[row, decision.index]
    return total / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=TABLES)
    parser.add_argument("--shuffles", type=int, default=6)
    parser.add_argument("--first", type=int, default=800, help="the seed of the first shuffle")
    parser.add_argument("--horizon", type=int, default=1000)
    parser.add_argument("--table", action="append", help="only this table; may be repeated")
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "bakeoff", help="where tables are kept")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds, means = range(options.first, options.first + options.shuffles), []
    # a process for each run: what is left out of one stays left out
    with multiprocessing.Pool(options.jobs, maxtasksperchild=1) as pool:
        for name in options.table or TABLES[options.part]:
            path = all_tables()[name].prepare(options.folder / "wheels", options.folder / "problems")
            tasks = [(path, options.part, has, seed, options.horizon) for has in (False, True) for seed in seeds]
            without, having = np.array(pool.map(played, tasks, chunksize=1)).reshape(2, -1)
            gains = having - without
            means.append(gains.mean())
            error = gains.std(ddof=1) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
            both = f"{without.mean():.4f} -> {having.mean():.4f}"
            print(f"{name:16s} {both}  {gains.mean():+.4f} ± {error:.4f}", flush=True)
    if len(means) > 1:
        error = np.std(means, ddof=1) / math.sqrt(len(means))
        print(f"mean of {len(means)} tables {np.mean(means):+.4f} ± {error:.4f}")


if __name__ == "__main__":
    main()
