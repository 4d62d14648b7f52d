"""What a user would pick instead: MABWiser, Vowpal Wabbit and scikit-learn's GPR on the paper's environments.

    python -m venv peers && peers/bin/pip install -r benchmarks/peers/libraries-requirements.txt .
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 peers/bin/python benchmarks/peers/libraries.py results.jsonl

Contexts and noise are the same for everyone. Each run is a line of the file; runs that stand there already are not
repeated. Time is processor time of choosing and learning alone.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np
from mabwiser.mab import MAB, LearningPolicy, NeighborhoodPolicy
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from vowpalwabbit import pyvw

import kernel_bandits as kb
from kernel_bandits.rng import stream

SEEDS, HORIZON, SHORT_HORIZON = 10, 2000, 500
ENVIRONMENTS = ("Bump", "Chessboard", "StepDiagonal")
PACKAGES = ("mabwiser", "vowpalwabbit", "scikit-learn", "numpy", "scipy")


class Peer(Protocol):
    """Anything that chooses among the rows of ``actions`` and learns."""

    def choose(self, context: np.ndarray, actions: np.ndarray) -> int: ...

    def learn(self, context: np.ndarray, actions: np.ndarray, row: int, reward: float) -> None: ...


class Ours:
    """A policy of this library."""

    def __init__(self, policy: kb.Policy) -> None:
        self.policy = policy

    def choose(self, context: np.ndarray, actions: np.ndarray) -> int:
        return self.policy.select(context, actions).index

    def learn(self, context: np.ndarray, actions: np.ndarray, row: int, reward: float) -> None:
        self.policy.update(context, actions[row], reward)


class Wiser:
    """MABWiser: one model per arm, the arms being the ten actions; contexts with an intercept.

    The arms take turns until there are as many observations as a neighbourhood needs.
    """

    def __init__(self, seed: int, learning: object, neighbours: object = None, turns: int = 1) -> None:
        self.model = MAB(list(range(10)), learning, neighbours, seed=seed)
        self.turns = turns
        self.learned = 0

    def choose(self, context: np.ndarray, actions: np.ndarray) -> int:
        if self.learned < self.turns:
            return self.learned % len(actions)
        return int(self.model.predict([[1.0, *context]]))

    def learn(self, context: np.ndarray, actions: np.ndarray, row: int, reward: float) -> None:  # noqa: ARG002 (arms have no features)
        (self.model.partial_fit if self.learned else self.model.fit)([row], [reward], [[1.0, *context]])
        self.learned += 1


class Wabbit:
    """Vowpal Wabbit on action features, with the interactions of context and action up to third order."""

    def __init__(self, seed: int, exploration: str) -> None:
        options = f"--cb_explore_adf --quiet --random_seed {seed} {exploration} --interactions ca --interactions caa"
        self.model = pyvw.Workspace(options + " --interactions cca")
        self.generator = np.random.default_rng(seed)
        self.probability = 1.0

    def example(
        self, context: np.ndarray, actions: np.ndarray, row: int | None = None, reward: float = 0.0
    ) -> list[str]:
        shared = "shared |c " + " ".join(f"x{i}:{value}" for i, value in enumerate(context))
        lines = [f"|a value:{action[0]} id{number}" for number, action in enumerate(actions)]
        if row is not None:
            lines[row] = f"0:{-reward}:{self.probability} " + lines[row]
        return [shared, *lines]

    def choose(self, context: np.ndarray, actions: np.ndarray) -> int:
        shares = np.array(self.model.predict(self.example(context, actions)))
        row = int(self.generator.choice(len(shares), p=shares / shares.sum()))
        self.probability = float(shares[row])
        return row

    def learn(self, context: np.ndarray, actions: np.ndarray, row: int, reward: float) -> None:
        self.model.learn(self.example(context, actions, row, reward))


class Refitted:
    """scikit-learn's exact Gaussian process, fitted anew every round; one standard deviation of exploration."""

    def __init__(self, lengthscale: float) -> None:
        self.model = GaussianProcessRegressor(RBF(lengthscale), alpha=0.01, optimizer=None)
        self.points: list[np.ndarray] = []
        self.rewards: list[float] = []

    def choose(self, context: np.ndarray, actions: np.ndarray) -> int:
        mean, std = self.model.predict(np.hstack([np.tile(context, (len(actions), 1)), actions]), return_std=True)
        return int(np.argmax(mean + std))

    def learn(self, context: np.ndarray, actions: np.ndarray, row: int, reward: float) -> None:
        self.points.append(np.concatenate((context, actions[row])))
        self.rewards.append(reward)
        self.model.fit(np.array(self.points), np.array(self.rewards))


def ours(lengthscale: float, seed: int) -> Peer:
    return Ours(kb.ek_ucb(kb.Gaussian(lengthscale), regularization=0.01, seed=seed))


PEERS: dict[str, tuple[Callable[[float, int], Peer], int]] = {
    "EK-UCB, given lengthscale": (ours, HORIZON),
    "MABWiser LinUCB (α = 1)": (lambda _, seed: Wiser(seed, LearningPolicy.LinUCB(alpha=1.0)), HORIZON),
    "MABWiser LinTS (α = 0.1)": (lambda _, seed: Wiser(seed, LearningPolicy.LinTS(alpha=0.1)), HORIZON),
    # the best α of 0.05, 0.2, 0.5 and 1 on Bump and Chessboard
    "MABWiser UCB1 (α = 0.05), 20 nearest": (
        lambda _, seed: Wiser(seed, LearningPolicy.UCB1(alpha=0.05), NeighborhoodPolicy.KNearest(20), turns=20),
        HORIZON,
    ),
    "Vowpal Wabbit squarecb": (lambda _, seed: Wabbit(seed, "--squarecb"), HORIZON),
    "Vowpal Wabbit cover": (lambda _, seed: Wabbit(seed, "--cover 5"), HORIZON),
    "EK-UCB, T = 500": (ours, SHORT_HORIZON),
    "scikit-learn GPR refitted, T = 500": (lambda lengthscale, _: Refitted(lengthscale), SHORT_HORIZON),
}


def play(peer: Peer, name: str, horizon: int, seed: int) -> tuple[float, float]:
    """Regret after the last round and seconds of processor time."""
    environment = getattr(kb.environments, name)()
    contexts, noise = stream(seed, "contexts"), stream(seed, "noise")
    regret = seconds = 0.0
    for _ in range(horizon):
        offer = environment.next_round(contexts)
        expected = environment.expected_rewards(offer.context, offer.actions)
        error = environment.noise(noise)
        started = time.process_time()
        row = peer.choose(offer.context, offer.actions)
        peer.learn(offer.context, offer.actions, row, float(expected[row] + error))
        seconds += time.process_time() - started
        regret += float(expected.max() - expected[row])
    return regret, seconds


def table(rows: list[dict[str, object]]) -> str:
    """Mean regret with its 95 % interval, and median time, by peer and environment."""
    from kernel_bandits_lab.tables import mean_interval

    lines = ["| | " + " | ".join(ENVIRONMENTS) + " | seconds |", "|---" * (len(ENVIRONMENTS) + 2) + "|"]
    for name in PEERS:
        cells, times = [], []
        for environment in ENVIRONMENTS:
            runs = [row for row in rows if row["peer"] == name and row["environment"] == environment]
            if not runs:
                cells.append("–")
                continue
            mean, half_width = mean_interval(np.array([row["regret"] for row in runs], dtype=float))
            cells.append(f"{mean:.0f} ± {half_width:.0f}")
            times.append(float(np.median([float(str(row["seconds"])) for row in runs])))
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {min(times):.1f} to {max(times):.1f} |" if times else "")
    return "\n".join(lines)


def paired(rows: list[dict[str, object]], first: str, second: str) -> str:
    """Return the regret of one peer less that of another by environment, over seeds that both met."""
    from kernel_bandits_lab.tables import mean_interval

    parts = []
    for environment in ENVIRONMENTS:
        found = {
            (row["peer"], row["seed"]): float(str(row["regret"])) for row in rows if row["environment"] == environment
        }
        seeds = [seed for peer, seed in found if peer == first and (second, seed) in found]
        if len(seeds) > 1:
            mean, half_width = mean_interval(np.array([found[first, seed] - found[second, seed] for seed in seeds]))
            parts.append(f"{environment} {mean:+.1f} ± {half_width:.1f}")
    return f"{first} less {second}, paired: {', '.join(parts)}"


def main(results: Path) -> None:
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {(row["peer"], row["environment"], row["seed"]) for row in rows}
    for seed in range(SEEDS):
        for environment in ENVIRONMENTS:
            lengthscale = getattr(kb.environments, environment).lengthscale
            for name, (build, horizon) in PEERS.items():
                if (name, environment, seed) in done:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the peers' own
                    regret, seconds = play(build(lengthscale, seed), environment, horizon, seed)
                rows.append(
                    {"peer": name, "environment": environment, "seed": seed, "regret": regret, "seconds": seconds}
                )
                with results.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(rows[-1], flush=True)
    print(table(rows))
    print(paired(rows, "EK-UCB, T = 500", "scikit-learn GPR refitted, T = 500"))
    print(", ".join(f"{package} {version(package)}" for package in PACKAGES))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
