"""What learning the kernel is worth and costs: from wrong lengthscales, in other units, with irrelevant columns.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/learning.py results.jsonl

Each run is a line of the file; runs that stand there already are not repeated, so that it can be interrupted.
``--parts`` chooses among fixed (a grid of fixed lengthscales), wrong (learned from lengthscales 10 times too large and
too small, in the units of the environment and in others), none (without a kernel), irrelevant (without a kernel and
with five columns that mean nothing), noise (rewards that are mostly noise, without a kernel and with the best fixed
lengthscale and the true noise level), cost (processor time of runs that learn, and of the same without learning: with
the kernel that the first ended with, with the best fixed lengthscale, and with the environment's own) and latency (of
a round between two times of learning, beside a policy whose posterior is the same and learns no kernel).
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from kernel_bandits_lab.tables import mean_interval

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.environments import Environment, Round
from kernel_bandits.kernels import KernelLike
from kernel_bandits.policy.ucb import UpperConfidenceBound

# Fixed lengthscales of a Gaussian kernel about the best one; those beside them are worse by far, or far slower.
GRID = {
    "Bump": (0.7, 1.0, 1.4, 2.0),
    "Chessboard": (0.07, 0.1, 0.14, 0.2),
    "StepDiagonal": (0.035, 0.05, 0.07, 0.1),
    "MovingOptimum": (0.35, 0.5, 0.7),
}
PARTS = ("wrong", "none", "irrelevant", "noise", "fixed", "cost", "latency")
# The best of the grid, over 20 seeds at T = 2000.
BEST = {"Bump": 2.0, "Chessboard": 0.07, "StepDiagonal": 0.05, "MovingOptimum": 0.5}
LATENCY_ROUNDS = 450
UNITS = 1000.0
NOISE = 1.0
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


class MostlyNoise(Environment):
    """An environment with another noise level."""

    def __init__(self, within: Environment, noise_std: float) -> None:
        self.within, self.noise_std = within, noise_std

    def next_round(self, contexts: np.random.Generator) -> Round:
        return self.within.next_round(contexts)

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        return self.within.expected_rewards(context, actions)


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
        elif part == "noise":
            noisy = MostlyNoise(environment, NOISE)
            yield name, "no kernel, mostly noise", noisy, _learned(None)
            yield name, "mostly noise, all known", noisy, _fixed(BEST[name], NOISE**2)
        else:
            yield name, "no kernel, irrelevant columns", IrrelevantColumns(environment, IRRELEVANT), _learned(None)


def _fixed(lengthscale: float, noise: float = 0.1) -> Callable[[int], UpperConfidenceBound]:
    return lambda seed: kb.ek_ucb(kb.Gaussian(lengthscale), regularization=noise, seed=seed)


def from_scratch(seed: int) -> UpperConfidenceBound:
    """One Matérn kernel over all columns, learned from nothing."""
    return kb.ek_ucb(kb.Matern(), learn_kernel=kb.KernelLearning(from_scratch=True), seed=seed)


def _learned(start: float | None) -> Callable[[int], UpperConfidenceBound]:
    if start is None:
        return from_scratch
    return lambda seed: kb.ek_ucb(kb.Gaussian(start), learn_kernel=True, seed=seed)


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
    """Processor time of select and update, of runs that learn and of those without learning to compare them with."""
    done = {(row["environment"], row["variant"], row["seed"], row["horizon"]) for row in load(results)}
    for seed in seeds:
        for name in GRID:
            if (name, "cost", seed, horizon) in done:
                continue
            environment = getattr(kb.environments, name)()
            first = from_scratch(seed)
            seconds = {"no kernel": _seconds(first, environment, horizon, seed)}
            found = first.posterior
            policies = {
                "its kernel given": kb.ek_ucb(
                    found.kernel, regularization=found.regularization, dictionary=kb.Kors(oversampling=1.0), seed=seed
                )
            }
            for label, lengthscale in (("best", BEST[name]), ("own", environment.lengthscale)):
                policies[f"{label} learned from"] = _learned(lengthscale)(seed)
                policies[f"{label} given"] = _fixed(lengthscale)(seed)
            seconds |= {label: _seconds(policy, environment, horizon, seed) for label, policy in policies.items()}
            sizes = {label: policy.dictionary_size for label, policy in [("no kernel", first), *policies.items()]}
            row = {"environment": name, "variant": "cost", "seed": seed, "horizon": horizon}
            append(results, {**row, "seconds": seconds, "size": sizes})


def _seconds(policy: UpperConfidenceBound, environment: Environment, horizon: int, seed: int) -> float:
    run = kb.run(policy, environment, horizon, seed=seed, clock=time.process_time)
    return float((run.select_seconds + run.update_seconds).sum())


def measure_latency(results: Path, seeds: range) -> None:
    """A round of a policy that learns its kernel, and of one with a copy of its posterior that does not, in turns."""
    done = {(row["environment"], row["variant"], row["seed"]) for row in load(results)}
    for seed in seeds:
        for name in GRID:
            if (name, "latency", seed) in done:
                continue
            environment = getattr(kb.environments, name)()
            learned = from_scratch(seed)
            # the next time of learning is round 1024
            kb.run(learned, environment, 520, seed=seed)
            posterior: Any = learned.posterior
            within = copy.deepcopy(posterior._within)
            fixed = UpperConfidenceBound(within, kb.StandardDeviations(1.0), np.random.default_rng(seed))
            # what the posterior within is not told of rewards
            offsets = {learned: 0.0, fixed: posterior.prior_mean}
            contexts = np.random.default_rng(seed)
            rounds: dict[UpperConfidenceBound, list[float]] = {learned: [], fixed: []}
            for number in range(LATENCY_ROUNDS):
                offered = environment.next_round(contexts)
                for policy in (learned, fixed) if number % 2 else (fixed, learned):
                    started = time.process_time()
                    decision = policy.select(offered.context, offered.actions)
                    selected = time.process_time()
                    reward = environment.expected_rewards(offered.context, decision.action[None, :]).item()
                    shown = time.process_time()
                    policy.update(offered.context, decision.action, reward - offsets[policy])
                    rounds[policy].append(selected - started + time.process_time() - shown)
            row = {"environment": name, "variant": "latency", "seed": seed, "horizon": 520 + LATENCY_ROUNDS}
            medians = [float(np.median(times)) for times in rounds.values()]
            append(results, {**row, "median": medians, "size": [learned.dictionary_size, fixed.dictionary_size]})


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
            if row["environment"] == name and row["variant"] not in ("cost", "latency"):
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
    pairs = (("no kernel", "its kernel given"), ("best learned from", "best given"), ("own learned from", "own given"))
    lines += ["", "| environment | T | seeds | learns | s | m | does not | s | m | ratio | runs |", "|---" * 11 + "|"]
    for name in GRID:
        for horizon in sorted({row["horizon"] for row in rows if row["variant"] == "cost"}):
            group = [
                row for row in rows if (row["environment"], row["variant"], row["horizon"]) == (name, "cost", horizon)
            ]
            for pair in pairs if group else ():
                cells = []
                for label in pair:
                    second, size = (np.mean([row[key][label] for row in group]) for key in ("seconds", "size"))
                    cells.append(f"{label} | {second:.3f} | {size:.0f}")
                singles = [row["seconds"][pair[0]] / row["seconds"][pair[1]] for row in group]
                total, reference = (sum(row["seconds"][label] for row in group) for label in pair)
                lines.append(
                    f"| {name} | {horizon} | {len(group)} | {cells[0]} | {cells[1]} | {total / reference:.2f} "
                    f"| {min(singles):.2f} … {max(singles):.2f} |"
                )
    lines += ["", "| environment | seeds | m | round, learns | does not |", "|---" * 5 + "|"]
    for name in GRID:
        group = [row for row in rows if (row["environment"], row["variant"]) == (name, "latency")]
        if group:
            learns, does_not = 1e6 * np.mean([row["median"] for row in group], axis=0)
            size = np.mean([row["size"] for row in group])
            lines.append(f"| {name} | {len(group)} | {size:.0f} | {learns:.0f} µs | {does_not:.0f} µs |")
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
        elif part == "latency":
            measure_latency(arguments.results, seeds)
        else:
            play(part, arguments.results, seeds, arguments.horizon)
    print(tables(load(arguments.results)))


if __name__ == "__main__":
    main()
