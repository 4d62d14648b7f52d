"""A million rounds: latency and memory by windows, and the posterior at the end against one from scratch.

Run: make soak, or python benchmarks/soak.py [ROUNDS]
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from time import thread_time

import numpy as np
from joblib import Parallel, delayed
from measure import markdown
from memory import resident_bytes
from scipy.linalg import cho_factor, cho_solve

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.policy import UpperConfidenceBound
from kernel_bandits.rng import stream

WINDOWS = 100
QUANTILES = (50.0, 99.0, 99.9, 100.0)


@dataclass(frozen=True)
class Soak:
    """One environment's million rounds; arrays have one entry per window."""

    name: str
    rounds: FloatArray
    latency: FloatArray
    resident: FloatArray
    dictionary_size: FloatArray
    largest_gap: float
    slowest_added_an_anchor: bool


def build(name: str) -> tuple[UpperConfidenceBound, kb.environments.Environment]:
    if name == "Chessboard":
        return kb.ek_ucb(kb.Gaussian(0.1), seed=0), kb.environments.Chessboard()
    return kb.ek_ucb(kb.Gaussian(0.5), dictionary=kb.Kors(max_size=256), seed=0), kb.environments.MovingOptimum()


def inverse_factor(gram: FloatArray) -> FloatArray:
    """L⁻¹ with LLᵀ = K, by elimination in extended precision: K has a condition of up to 1e13 here."""
    left, right = gram.astype(np.longdouble), np.eye(len(gram), dtype=np.longdouble)
    for j in range(len(gram)):
        pivot = np.sqrt(left[j, j])
        left[j], right[j] = left[j] / pivot, right[j] / pivot
        for matrix in (right, left):
            matrix[j + 1 :] -= left[j + 1 :, j, None] / pivot * matrix[j]
    return right.astype(np.float64)


def from_scratch(policy: UpperConfidenceBound, queries: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and std by Proposition 4.2 in the Cholesky basis of K_ZZ, written apart from the library's own code."""
    kernel, ridge, anchors = policy.posterior.kernel, policy.posterior.regularization, policy.dictionary_points
    basis = inverse_factor(kernel(anchors, anchors))
    points, rewards = policy.observed_points, policy.posterior.observed_rewards
    second, first = ridge * np.eye(len(anchors)), np.zeros(len(anchors))
    for start in range(0, len(points), 4096):
        features = basis @ kernel(anchors, points[start : start + 4096])
        second += features @ features.T
        first += features @ rewards[start : start + 4096]
    factor = cho_factor(second)
    features = basis @ kernel(anchors, queries)
    residual = np.maximum(kernel.diag(queries) - (features**2).sum(axis=0), 0.0)
    variance = residual + ridge * (features * cho_solve(factor, features)).sum(axis=0)
    return features.T @ cho_solve(factor, first), np.sqrt(variance)


def soak(name: str, rounds: int) -> Soak:
    policy, environment = build(name)
    contexts, noise = stream(0, "contexts"), stream(0, "noise")
    window = rounds // WINDOWS
    seconds = np.empty(window)
    latency, resident, sizes = [], [], []
    slowest, slowest_grew = 0.0, False
    for t in range(rounds):
        offer = environment.next_round(contexts)
        before = policy.dictionary_size
        started = thread_time()
        decision = policy.select(offer.context, offer.actions)
        between = thread_time()
        reward = environment.expected_rewards(offer.context, offer.rows)[decision.index] + environment.noise(noise)
        resumed = thread_time()
        policy.update(offer.context, decision.action, float(reward))
        seconds[t % window] = (between - started) + (thread_time() - resumed)
        if seconds[t % window] > slowest:
            slowest, slowest_grew = seconds[t % window], policy.dictionary_size > before
        if (t + 1) % window == 0:
            latency.append(np.percentile(seconds, QUANTILES))
            resident.append(resident_bytes())
            sizes.append(policy.dictionary_size)
    generator = np.random.default_rng(1)
    queries = generator.random((200, policy.dictionary_points.shape[1]))
    mean, std = from_scratch(policy, queries)
    prediction = policy.posterior.predict(queries)
    gap = max(float(np.abs(prediction.mean - mean).max()), float(np.abs(prediction.std - std).max()))
    assert np.isfinite(prediction.mean).all()
    return Soak(
        name,
        window * np.arange(1.0, WINDOWS + 1),
        1e6 * np.array(latency),
        np.array(resident, dtype=float),
        np.array(sizes, dtype=float),
        gap,
        slowest_grew,
    )


def figure(results: list[Soak], path: Path) -> None:
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(9, 2.7 * len(results)), layout="constrained")
    axes = canvas.subplots(len(results), 2, squeeze=False)
    for (left, right), result in zip(axes, results, strict=True):
        for column, (label, style) in enumerate(
            zip(("p50", "p99", "p99.9", "max"), ("-", "--", ":", "."), strict=True)
        ):
            left.plot(
                result.rounds, result.latency[:, column], style, color="0.15", label=label, linewidth=1.2, markersize=3
            )
        left.set(yscale="log", xlabel="round", ylabel="µs per round", title=result.name)
        left.legend(frameon=False, ncols=4, fontsize="small")
        right.plot(result.rounds, result.resident / 1e6, color="0.15")
        right.set(xlabel="round", ylabel="resident memory, MB", ylim=(0, None))
        twin = right.twinx()
        twin.plot(result.rounds, result.dictionary_size, "--", color="0.5")
        twin.set(ylabel="anchors (dashed)", ylim=(0, None))
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=110)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    results = Parallel(n_jobs=2)(delayed(soak)(name, rounds) for name in ("Chessboard", "MovingOptimum"))
    rows: list[dict[str, object]] = []
    for result in results:
        for label, part in (("first tenth", slice(1, 10)), ("last tenth", slice(90, 100))):
            medians = np.median(result.latency[part], axis=0)
            rows.append(
                {
                    "environment": result.name,
                    "windows": label,
                    "p50, µs": medians[0],
                    "p99, µs": medians[1],
                    "p99.9, µs": medians[2],
                    "max, ms": float(result.latency[part, 3].max()) / 1e3,
                    "m": int(result.dictionary_size[part][-1]),
                    "MB": result.resident[part][-1] / 1e6,
                }
            )
    print(markdown(rows))
    for result in results:
        cause = "added an anchor" if result.slowest_added_an_anchor else "added no anchor"
        print(f"{result.name}: gap to a posterior from scratch {result.largest_gap:.1e}; the slowest round {cause}")
    figure(results, Path("results/soak.png"))
    Path("results/soak.json").write_text(json.dumps(rows, indent=1, default=float))
    print("written to results/soak.png and results/soak.json")


if __name__ == "__main__":
    main()
