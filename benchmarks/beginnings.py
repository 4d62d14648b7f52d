"""A dictionary that is chosen from a whole history at once against one that KORS draws along it: size, error and time.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/beginnings.py

The error is measured against the exact posterior at other points: the mean ratio of standard deviations, and the mean
distance of the means in exact standard deviations.
"""

from __future__ import annotations

import time

import numpy as np
from measure import markdown

import kernel_bandits as kb
from kernel_bandits.dictionaries import Kors
from kernel_bandits.posterior import ExactPosterior, NystromPosterior

ROUNDS, CANDIDATES = 2048, 256
CASES = [
    (columns, lengthscale, noise) for columns, lengthscale in ((2, 0.4), (2, 0.1), (5, 0.7)) for noise in (0.02, 1, 20)
]


def compare(columns: int, lengthscale: float, noise: float) -> dict[str, object]:
    """A row of the table."""
    generator = np.random.default_rng(0)
    points = generator.random((ROUNDS, columns))
    rewards = np.sin(5.0 * points[:, :2].sum(axis=1)) + noise**0.5 * generator.normal(size=ROUNDS)
    queries, kernel = generator.random((200, columns)), kb.Matern(lengthscale)
    exact = ExactPosterior(kernel, noise).learned(points, rewards)
    dimension = f"{exact.effective_dimension:.0f}"
    row: dict[str, object] = {"d": columns, "ℓ": lengthscale, "λ": noise, "effective dimension": dimension}
    theirs = exact.predict(queries)
    for label in ("chosen", "drawn"):
        posterior = NystromPosterior(kernel, noise, Kors(oversampling=1.0), np.random.default_rng(0))
        started = time.process_time()
        if label == "chosen":
            posterior = posterior.of_history(points, rewards, points[:CANDIDATES])
        else:
            posterior = posterior.learned(points, rewards)
        seconds = time.process_time() - started
        ours = posterior.predict(queries)
        row[f"m, {label}"] = posterior.dictionary_size
        row[f"std, {label}"] = f"{(ours.std / theirs.std).mean():.3f}"
        row[f"mean, {label}"] = f"{(np.abs(ours.mean - theirs.mean) / theirs.std).mean():.3f}"
        row[f"time, {label}"] = f"{1e3 * seconds:.0f} ms"
    return row


if __name__ == "__main__":
    print(markdown([compare(*case) for case in CASES]))
