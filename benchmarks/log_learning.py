"""Large logs: rows per second and memory of ``logs.learn`` and ``offpolicy.evaluate``, beside the floor of BLAS.

The floor is what the sums cannot do without: k(points, anchors), one triangular and one symmetric product per row, on
arrays in memory. Reading Parquet comes on top. Both are measured in alternation.

Run: python benchmarks/log_learning.py [rows]
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.numerics import linalg

COLUMNS, ANCHORS, GROUP = 20, 256, 100_000
KERNEL = kb.Gaussian(3.0)


def block(rows: int, seed: int) -> FloatArray:
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(rows, COLUMNS))
    reward = np.sin(points[:, 0]) * points[:, -1] + 0.1 * generator.normal(size=rows)
    return np.column_stack([points, reward])


def write(path: Path, rows: int) -> None:
    names = [*(f"context_{i}" for i in range(COLUMNS - 1)), "action_0", "reward"]
    for number, start in enumerate(range(0, rows, GROUP)):
        table = block(min(GROUP, rows - start), number)
        parquet.write_table(
            pa.table(dict(zip(names, table.T.copy(), strict=True))), path / f"{number:04}.parquet", compression="none"
        )


def floor_seconds(anchors: FloatArray, factor: FloatArray, rows: int) -> float:
    points = block(rows, 99)[:, :-1]
    total = np.zeros((len(anchors), len(anchors)))
    started = process_time()
    for start in range(0, rows, 2048):
        features = linalg.times_upper(KERNEL(points[start : start + 2048], anchors), factor)
        linalg.add_gram(total, features, 1.0)
    return process_time() - started


def learned(path: Path) -> tuple[kb.Policy, float]:
    policy = kb.ek_ucb(KERNEL, dictionary=kb.Kors(history="none", max_size=ANCHORS), seed=0)
    started = process_time()
    kb.logs.learn(policy, path, most_passes=1)
    return policy, process_time() - started


def learning(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        write(path, rows)
        ratios = []
        for _ in range(3):
            policy, seconds = learned(path)
            model = policy.posterior.model  # type: ignore[attr-defined]
            floor = floor_seconds(model.basis.anchors, model.basis.factor, GROUP) * rows / GROUP
            ratios.append(floor / seconds)
            print(f"learn: {rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s, {floor / seconds:.2f} floor")
        fixed = kb.ek_ucb(KERNEL, dictionary=kb.Fixed(policy.posterior.dictionary_points, history="none"), seed=0)  # type: ignore[attr-defined]
        for number, start in enumerate(range(0, rows, GROUP)):
            table = block(min(GROUP, rows - start), number)
            fixed.update_many(table[:, : COLUMNS - 1], table[:, COLUMNS - 1 : COLUMNS], table[:, -1])
        probe = block(200, 7)[:, :-1]
        one, other = policy.posterior.predict(probe), fixed.posterior.predict(probe)  # type: ignore[attr-defined]
        print(f"update_many with these anchors differs by {np.abs(one.mean - other.mean).max():.1e}")
    print(f"of the floor: {np.median(ratios):.2f} (median of {len(ratios)}), anchors {policy.dictionary_size}")


def evaluation(rows: int) -> None:
    generator = np.random.default_rng(0)
    contexts, played = generator.random((rows, 5)), generator.integers(10, size=rows)
    rewards = (generator.random(rows) < 0.1 + 0.1 * contexts[:, 0]).astype(float)
    log = kb.offpolicy.Log(contexts, played, rewards, np.full(rows, 0.1))
    for name, model in {"without a model": None, "with a model": kb.offpolicy.RewardModel(kb.Gaussian(1.0))}.items():
        started = process_time()
        kb.offpolicy.evaluate(log, 3, model=model)
        print(f"evaluate {name}: {rows:,} rows in {process_time() - started:.1f} s of processor time")


if __name__ == "__main__":
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    learning(rows)
    evaluation(min(rows, 1_000_000))
    print(f"largest resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
