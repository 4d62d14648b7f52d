"""Tables whose arms change their roles: what the default earns before and after, with ``Restart`` and without.

    python benchmarks/default/changes.py [--shuffles 3] [--table pima]

From round 600 on every class is right where the one before it was. Accuracy is that of the rounds in each column. The
last column says how many decisions of a run of 1,500 rounds in which nothing changes differ from those of a policy that
keeps everything.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import kernel_bandits as kb

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bakeoff.problem import Problem  # noqa: E402 (the path is set above)
from bakeoff.tables import all_tables  # noqa: E402

TABLES = ("pima", "spambase", "contraceptive", "vehicle", "satimage", "segment", "texture", "letter")
CHANGE = 600
PERIODS = ((300, 600), (600, 700), (700, 900), (900, 1200), (1200, 1600))
POLICIES: dict[str, kb.Restart | None] = {"never": None, "Restart()": kb.Restart()}


def played(problem: Problem, forgetting: kb.Restart | None, seed: int, rounds: int, change: int) -> NDArray[np.float64]:
    """Return the arms that were played and their rewards, shape (rounds, 2)."""
    generator = np.random.default_rng(seed)
    rows = np.concatenate([generator.permutation(problem.rows) for _ in range(-(-rounds // problem.rows))])[:rounds]
    arms, policy, found = np.eye(problem.arms), kb.ek_ucb(forgetting=forgetting, seed=seed), []
    for t, row in enumerate(rows):
        rewards = problem.rewards[row] if t < change else np.roll(problem.rewards[row], 1)
        decision = policy.select(problem.contexts[row], arms)
        policy.update(problem.contexts[row], decision.action, float(rewards[decision.index]))
        found.append((decision.index, rewards[decision.index]))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shuffles", type=int, default=3)
    parser.add_argument("--table", action="append", help="only this table; may be repeated")
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "bakeoff", help="where tables are kept")
    options = parser.parse_args()
    print(f"| table | restarts | {' | '.join(f'{first} to {last}' for first, last in PERIODS)} | differ |")
    print("|---" * (len(PERIODS) + 3) + "|")
    for name in options.table or TABLES:
        table = all_tables()[name]
        problem = Problem.load(table.prepare(options.folder / "wheels", options.folder / "problems"))
        seeds = range(options.shuffles)
        stays = [played(problem, POLICIES["never"], seed, 1500, 1500) for seed in seeds]
        for words, forgetting in POLICIES.items():
            rewards = np.array([played(problem, forgetting, seed, PERIODS[-1][1], CHANGE)[:, 1] for seed in seeds])
            cells = [f"{rewards[:, first:last].mean():.2f}" for first, last in PERIODS]
            differ = 0
            if forgetting is not None:
                others = [played(problem, forgetting, seed, 1500, 1500) for seed in seeds]
                differ = sum(int((one[:, 0] != other[:, 0]).sum()) for one, other in zip(stays, others, strict=True))
            print(f"| {name}, {problem.arms} arms | {words} | {' | '.join(cells)} | {differ} |", flush=True)


if __name__ == "__main__":
    main()
