"""Check the harness against other drivers of Vowpal Wabbit: ``vw --cbify`` and coba's ``from_supervised``.

    python benchmarks/bakeoff/checks.py

Both turn a table into a bandit themselves. They play the shuffles of the bake-off with the same options; what they
measure should differ from our driver's by no more than shuffles do. Writes ``checks.json`` beside this file, which the
repository ships for the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Not the folder of this file, whose modules would hide others of the same name.
sys.path[0:1] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

import numpy as np  # noqa: E402 (the path is set above)

from bakeoff.environments import interpreter  # noqa: E402
from bakeoff.game import order_of, play  # noqa: E402
from bakeoff.libraries.base import Library  # noqa: E402
from bakeoff.libraries.vowpal_wabbit import LINEAR, Wabbit, numbers  # noqa: E402
from bakeoff.problem import FloatArray, Problem, write_atomically  # noqa: E402
from bakeoff.tables import all_tables  # noqa: E402

CHECKS = Path(__file__).with_name("checks.json")
TABLES = ("satimage", "contraceptive", "spambase")
SHUFFLES = 5
HORIZON = 1500
RATE = 0.5
OPTIONS = {
    "squarecb": "--squarecb --gamma_scale 10",
    "greedy": "--epsilon 0 --cb_type mtr",
}
DRIVERS = Library("drivers", "drivers", ("coba==8.1.0", "vowpalwabbit==9.11.9", "numpy==2.4.6", "pandas==3.1.1"), ())


def by_us(problem: Problem, options: str, seed: int) -> float:
    """Return what our driver measures."""
    return play(Wabbit(options, LINEAR, RATE, -1.0, seed), problem, seed, HORIZON).reward


def by_cbify(problem: Problem, options: str, seed: int) -> float:
    """Return what Vowpal Wabbit measures when it makes the bandit itself; it counts the rows with a wrong class."""
    from vowpalwabbit import pyvw

    model = pyvw.Workspace(
        f"--cbify {problem.arms} --cb_explore_adf {options} -l {RATE} --loss0 -1 --loss1 0 --quiet --random_seed {seed}"
    )
    for row in order_of(problem.rows, seed, HORIZON):
        label = int(np.argmax(problem.rewards[row])) + 1
        model.learn(f"{label} |c {numbers(problem.contexts[row])}")
    return 1.0 - float(model.get_sum_loss()) / min(HORIZON, problem.rows)


def by_coba(problem: Problem, options: str, seed: int) -> float:
    """Return what coba's experiment measures with its own learner for Vowpal Wabbit."""
    import coba

    order = order_of(problem.rows, seed, HORIZON)
    contexts, labels = problem.contexts[order], problem.rewards[order].argmax(axis=1)
    table = [[float(value) for value in row] for row in contexts]
    named = [str(label) for label in labels]
    # Materialised, because the experiment looks at an environment before it plays it and rows are read once.
    environments = coba.Environments.from_supervised(table, named, label_type="c").materialize()
    learner = coba.VowpalLearner(
        f"--cb_explore_adf {options} -l {RATE} --interactions ax --ignore_linear x --quiet --random_seed {seed}",
        seed=seed,
    )
    result = coba.Experiment(environments, learner, coba.SequentialCB()).run(quiet=True)
    rewards: FloatArray = result.interactions.to_pandas()["reward"].to_numpy(float)
    return float(rewards.mean())


def measure(problems: dict[str, str]) -> list[dict[str, object]]:
    """Return the rewards of each driver on each table, one per shuffle."""
    found: list[dict[str, object]] = []
    for table, path in problems.items():
        problem = Problem.load(Path(path))
        for name, options in OPTIONS.items():
            for driver in (by_us, by_cbify, by_coba):
                rewards = [driver(problem, options, seed) for seed in range(SHUFFLES)]
                found.append({"table": table, "entry": name, "driver": driver.__name__, "rewards": rewards})
                print(table, name, driver.__name__, np.round(rewards, 3), file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "bakeoff", help="as that of run.py")
    parser.add_argument("--problems", help="used by this script itself, in the environment of the drivers")
    options = parser.parse_args()
    if options.problems:
        print(json.dumps(measure(json.loads(options.problems))))
        return
    tables = all_tables()
    problems = {
        name: str(tables[name].prepare(options.folder / "wheels", options.folder / "problems")) for name in TABLES
    }
    python = interpreter(DRIVERS, options.folder / "environments")
    line = [python, "-W", "ignore", __file__, "--problems", json.dumps(problems)]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True)
    write_atomically(CHECKS, done.stdout.splitlines()[-1].encode() + b"\n")


if __name__ == "__main__":
    main()
