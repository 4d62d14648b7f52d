"""What learning the kernel is worth and costs: from wrong lengthscales, in other units, with irrelevant columns.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/learning.py results.jsonl

Each run is a line of the file; runs that stand there already are not repeated, so that it can be interrupted.
``--parts`` chooses among fixed (a grid of fixed lengthscales), wrong (learned from lengthscales 10 times too large and
too small, in the units of the environment and in others), none (without a kernel), irrelevant (without a kernel and
with five columns that mean nothing) and cost (processor time of the learned run, of the same run with the kernel it
ended with, and of one with the environment's own).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.environments import Environment, Round
from kernel_bandits.experiments.summary import mean_interval
from kernel_bandits.kernels import KernelLike
from kernel_bandits.policies.ucb import UpperConfidenceBound

# Fixed lengthscales of a Gaussian kernel about the best one; those beside them are worse by far, or far slower.
GRID = {
    "Bump": (0.7, 1.0, 1.4, 2.0),
    "Chessboard": (0.07, 0.1, 0.14, 0.2),
    "StepDiagonal": (0.035, 0.05, 0.07, 0.1),
    "MovingOptimum": (0.35, 0.5, 0.7),
}
PARTS = ("wrong", "none", "irrelevant", "fixed", "cost")
UNITS = 1000.0
IRRELEVANT = 5


class OtherUnits(Environment):
    """An environment whose contexts and rewards are multiplied by a number."""

    def __init__(self, within: Environment, units: float) -> None:
        self.within, self.units = within, units
        self.noise_std = units * within.noise_std

    def next_round(self, contexts: np.random.Generator) -> Round:
        offered = self.within.next_round(contexts)
        return Round(self.units * offered.context, offered.actions)

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return self.units * self.within.expected_rewards(context / self.units, actions)


class IrrelevantColumns(Environment):
    """An environment whose contexts are followed by numbers between 0 and 1 that mean nothing."""

    def __init__(self, within: Environment, columns: int) -> None:
        self.within, self.columns = within, columns
        self.noise_std = within.noise_std

    def next_round(self, contexts: np.random.Generator) -> Round:
        offered = self.within.next_round(contexts)
        return Round(np.append(offered.context, contexts.random(self.columns)), offered.actions)

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return self.within.expected_rewards(context[: -self.columns], actions)


def plans(part: str) -> Iterator[tuple[str, str, Environment, Callable[[int], UpperConfidenceBound]]]:
    """Environment name, what is tried, the environment itself and the policy for a seed."""
    for name in GRID:
        environment: Environment = getattr(kb.environments, name)()
        suited = environment.lengthscale
        assert suited is not None
        if part == "fixed":
            for fixed in GRID[name]:
                yield name, f"fixed {fixed:g}", environment, _fixed(fixed)
        elif part == "wrong":
            for start in (10.0 * suited, 0.1 * suited):
                yield name, f"from {start:g}", environment, _learned(start)
                yield name, f"from {start:g}, other units", OtherUnits(environment, UNITS), _learned(start)
        elif part == "none":
            yield name, "no kernel", environment, _learned(None)
            yield name, "no kernel, other units", OtherUnits(environment, UNITS), _learned(None)
        elif name != "MovingOptimum":
            # there ten columns make two thirds of the points anchors, and a run a minute
            yield name, "no kernel, irrelevant columns", IrrelevantColumns(environment, IRRELEVANT), _learned(None)


def _fixed(lengthscale: float) -> Callable[[int], UpperConfidenceBound]:
    return lambda seed: kb.ek_ucb(kb.Gaussian(lengthscale), seed=seed)


def _learned(start: float | None) -> Callable[[int], UpperConfidenceBound]:
    return lambda seed: kb.ek_ucb(None if start is None else kb.Gaussian(start), learn_kernel=True, seed=seed)


def play(part: str, results: Path, seeds: range, horizon: int) -> None:
    """Run what is missing of a part and append it."""
    done = {(row["environment"], row["variant"], row["seed"], row["horizon"]) for row in load(results)}
    for seed in seeds:
        for name, variant, environment, build in plans(part):
            if (name, variant, seed, horizon) in done:
                continue
            policy = build(seed)
            started = time.process_time()
            run = kb.run(policy, environment, horizon, seed=seed)
            row = {
                "environment": name,
                "variant": variant,
                "seed": seed,
                "horizon": horizon,
                "regret": float(run.regret[-1]) / (UNITS if isinstance(environment, OtherUnits) else 1.0),
                "seconds": time.process_time() - started,
                "size": policy.dictionary_size,
                "lengthscales": _lengthscales(policy.posterior.kernel),
            }
            append(results, row)


def measure_cost(results: Path, seeds: range, horizon: int) -> None:
    """Learned runs, the same with the kernel they ended with given from the start, and with the environment's own."""
    done = {(row["environment"], row["variant"], row["seed"], row["horizon"]) for row in load(results)}
    for seed in seeds:
        for name in GRID:
            if (name, "cost", seed, horizon) in done:
                continue
            environment = getattr(kb.environments, name)()
            learned = kb.ek_ucb(seed=seed)
            first = kb.run(learned, environment, horizon, seed=seed, clock=time.process_time)
            found = learned.posterior
            given = kb.ek_ucb(found.kernel, regularization=found.regularization, oversampling=1.0, seed=seed)
            second = kb.run(given, environment, horizon, seed=seed, clock=time.process_time)
            chosen = kb.ek_ucb(kb.Gaussian(environment.lengthscale), seed=seed)
            third = kb.run(chosen, environment, horizon, seed=seed, clock=time.process_time)
            rounds = [run.select_seconds + run.update_seconds for run in (first, second, third)]
            # rounds behind the last time of learning, in which dictionaries are of one size
            late = slice(2 ** int(np.log2(horizon - 1)), None)
            row = {
                "environment": name,
                "variant": "cost",
                "seed": seed,
                "horizon": horizon,
                "seconds": [float(times.sum()) for times in rounds],
                "median": [float(np.median(times[late])) for times in rounds],
                "size": [learned.dictionary_size, given.dictionary_size, chosen.dictionary_size],
            }
            append(results, row)


def _lengthscales(kernel: KernelLike) -> list[float]:
    stationary: Any = getattr(kernel, "right", kernel)
    lengthscales: list[float] = np.atleast_1d(stationary.lengthscale).tolist()
    return lengthscales


def append(results: Path, row: dict[str, Any]) -> None:
    with results.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row, flush=True)


def load(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def tables(rows: list[dict[str, Any]]) -> str:
    """Mean regret of every variant, relative to the best fixed lengthscale too, and the cost of learning."""
    lines = ["| environment | variant | seeds | T | regret | against the best fixed | m | s |", "|---" * 8 + "|"]
    for name in GRID:
        groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in rows:
            if row["environment"] == name and row["variant"] != "cost":
                groups.setdefault((row["variant"], row["horizon"]), []).append(row)
        means = {key: np.mean([row["regret"] for row in group]) for key, group in groups.items()}
        for (variant, horizon), group in sorted(groups.items()):
            best = min(
                (mean for (other, at), mean in means.items() if other.startswith("fixed") and at == horizon),
                default=float("nan"),
            )
            mean, half_width = mean_interval(np.array([row["regret"] for row in group]))
            size, seconds = (np.mean([row[key] for row in group]) for key in ("size", "seconds"))
            lines.append(
                f"| {name} | {variant} | {len(group)} | {horizon} | {mean:.1f} ± {half_width:.1f} "
                f"| {mean / best:.2f} | {size:.0f} | {seconds:.2f} |"
            )
    lines += [
        "",
        "| environment | T | seeds | learned | that kernel given | ratio | a Gaussian given | ratio "
        "| late round, learned | given |",
        "|---" * 10 + "|",
    ]
    for name in GRID:
        for horizon in sorted({row["horizon"] for row in rows if row["variant"] == "cost"}):
            group = [
                row for row in rows if (row["environment"], row["variant"], row["horizon"]) == (name, "cost", horizon)
            ]
            if group:
                learned, given, chosen = np.mean([row["seconds"] for row in group], axis=0)
                late, late_given, _ = 1e6 * np.mean([row["median"] for row in group], axis=0)
                lines.append(
                    f"| {name} | {horizon} | {len(group)} | {learned:.2f} s | {given:.2f} s | {learned / given:.2f} "
                    f"| {chosen:.2f} s | {learned / chosen:.2f} | {late:.0f} µs | {late_given:.0f} µs |"
                )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--horizon", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for part in arguments.parts:
        if part == "cost":
            measure_cost(arguments.results, seeds, arguments.horizon)
        else:
            play(part, arguments.results, seeds, arguments.horizon)
    print(tables(load(arguments.results)))


if __name__ == "__main__":
    main()
