"""Large logs: rows per second and memory of ``logs.learn`` and ``offpolicy.evaluate``, beside the floor of BLAS.

    python benchmarks/log_learning.py learn 1e7 [--repeats 3]     one process
    python benchmarks/log_learning.py cluster 1e6                 two Dask workers, of which one is killed
    python benchmarks/log_learning.py evaluate 1e6                a fixed action, by the API and by the command line
    python benchmarks/log_learning.py scan 1e6                    text, gaps and dates: in parts, on Dask, as a whole

The floor is what the sums cannot do without: k(points, anchors), one triangular and one symmetric product per row, on
arrays in memory. Reading Parquet is not in it. Both are measured in alternation, in processor time.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer
from time import perf_counter, process_time
from typing import Any

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


def learned(path: Path, client: Any = None) -> tuple[kb.Policy, float]:
    """Return a policy that has learned the dataset, and the processor time of this process."""
    policy = kb.ek_ucb(KERNEL, dictionary=kb.Kors(history="none", max_size=ANCHORS), seed=0)
    started = process_time()
    kb.logs.learn(policy, path, most_passes=1, client=client)
    return policy, process_time() - started


def compare_with_update_many(policy: Any, rows: int) -> None:
    """Print how far the posterior is from that of ``update_many`` with the same anchors."""
    fixed: Any = kb.ek_ucb(KERNEL, dictionary=kb.Fixed(policy.posterior.dictionary_points, history="none"), seed=0)
    for number, start in enumerate(range(0, rows, GROUP)):
        table = block(min(GROUP, rows - start), number)
        fixed.update_many(table[:, : COLUMNS - 1], table[:, COLUMNS - 1 : COLUMNS], table[:, -1])
    print(f"update_many with these anchors differs by {distance(policy, fixed):.1e}")


def distance(one: Any, other: Any) -> float:
    """Return the largest difference of means and standard deviations at 200 points."""
    probe = block(200, 7)[:, :-1]
    first, second = one.posterior.predict(probe), other.posterior.predict(probe)
    return float(max(np.abs(first.mean - second.mean).max(), np.abs(first.std - second.std).max()))


def learning(path: Path, rows: int, repeats: int) -> None:
    write(path, rows)
    before, ratios = memory(), []
    for _ in range(repeats):
        policy, seconds = learned(path)
        model = policy.posterior.model  # type: ignore[attr-defined]
        floor = floor_seconds(model.basis.anchors, model.basis.factor, GROUP) * rows / GROUP
        ratios.append(floor / seconds)
        print(
            f"{rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s, {floor / seconds:.2f} floor", flush=True
        )
    print(f"of the floor: {np.median(ratios):.2f} (median of {repeats}), anchors {policy.dictionary_size}")
    print(f"largest resident memory {memory():,.0f} MiB; {before:,.0f} MiB before learning", flush=True)
    compare_with_update_many(policy, rows)


def on_cluster(path: Path, rows: int) -> None:
    from distributed import Client, LocalCluster

    write(path, rows)
    started = perf_counter()
    alone, _ = learned(path)
    seconds = perf_counter() - started
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        undisturbed = perf_counter()
        shared, _ = learned(path, client)
        undisturbed = perf_counter() - undisturbed
        victim = next(iter(client.run(os.getpid).values()))
        killer = Timer(undisturbed / 2, os.kill, (victim, signal.SIGKILL))
        killer.start()
        started = perf_counter()
        disturbed, _ = learned(path, client)
        ended = perf_counter() - started
        in_time = killer.finished.is_set()
        killer.cancel()
    print(f"{rows:,} rows: alone {seconds:.1f} s, two workers {undisturbed:.1f} s, one of them killed {ended:.1f} s")
    print(f"the worker was {'killed while it learned' if in_time else 'not killed in time'}")
    print(f"differences from alone: {distance(shared, alone):.1e}, one killed {distance(disturbed, alone):.1e}")
    compare_with_update_many(disturbed, rows)


def evaluation(path: Path, rows: int) -> None:
    generator = np.random.default_rng(0)
    contexts, played = generator.random((rows, 5)), generator.integers(10, size=rows)
    rewards = (generator.random(rows) < 0.1 + 0.1 * contexts[:, 0]).astype(float)
    columns = {**{f"context_{i}": contexts[:, i].copy() for i in range(5)}, "action": played, "reward": rewards}
    file = path / "log.parquet"
    parquet.write_table(pa.table({**columns, "propensity": np.full(rows, 0.1)}), file)
    before = memory()
    log = kb.offpolicy.Log(contexts, played, rewards, np.full(rows, 0.1))
    models = {
        "without a model": None,
        "with a given kernel": kb.offpolicy.RewardModel(kb.Gaussian(1.0)),
        "with nothing set": kb.offpolicy.RewardModel(),
    }
    for name, model in models.items():
        started = process_time()
        found = kb.offpolicy.evaluate(log, 3, model=model)
        print(f"evaluate {name}: {rows:,} rows in {process_time() - started:.1f} s, {found.recommended.value:.5f}")
        print(f"  largest resident memory {memory():,.0f} MiB; {before:,.0f} MiB before", flush=True)
    for option in ("--no-model", "--model"):
        command = ["-m", "kernel_bandits_lab", "evaluate", str(file), "--policy", "3", "--learned-share", "0", option]
        used = child_seconds()
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        used, peak = child_seconds() - used, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"kernel-bandits evaluate {option}: {used:.1f} s, largest resident memory {peak:,.0f} MiB", flush=True)


def scanning(path: Path, rows: int) -> None:
    """A table in row groups of 100,000: as a whole, in parts, and on Dask, with an arm and a function of rows."""
    generator, arms = np.random.default_rng(0), np.array(["red", "blue", "green"])
    ages, cities = (
        generator.normal(40.0, 10.0, rows),
        np.array(["Oslo", "Bern", "Rome"])[generator.integers(3, size=rows)],
    )
    played = generator.choice(3, rows, p=[0.5, 0.3, 0.2])
    clicks = generator.random(rows) < 0.1 + 0.1 * (cities == "Oslo") * (played == 1)
    columns = {
        "age": pa.array(ages, mask=generator.random(rows) < 0.05),
        "city": cities,
        "day": np.datetime64("2026-01-01") + generator.integers(90, size=rows).astype("timedelta64[D]"),
        "arm": arms[played],
        "reward": clicks.astype(float),
        "propensity": np.array([0.5, 0.3, 0.2])[played],
    }
    file = path / "log.parquet"
    parquet.write_table(pa.table(columns), file, row_group_size=GROUP)
    roles: Any = {"context": ["age", "city", "day"], "action": "arm"}

    def by_city(row: Any) -> str:
        return "blue" if row["city"] == "Oslo" else "red"

    def report(name: str, log: Any) -> None:
        for candidate in ("blue", by_city):
            started, waited = process_time(), perf_counter()
            found = kb.verdict(log, candidate, model=None)
            value = kb.offpolicy.evaluate(log, candidate, model=None).recommended
            seconds = f"{process_time() - started:.1f} s of processor time, {perf_counter() - waited:.1f} s"
            print(f"{name}: {value.value:.6f}, {found.decision} {found.low:.6f} to {found.high:.6f}; {seconds}")
        print(f"  largest resident memory {memory():,.0f} MiB", flush=True)

    print(f"{rows:,} rows; {memory():,.0f} MiB before")
    started = process_time()
    parts = kb.logs.scan(file, **roles)
    print(f"scan: {process_time() - started:.1f} s of processor time")
    report("in parts", parts)
    import dask.dataframe
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        frame = dask.dataframe.read_parquet(file, split_row_groups=True)
        report("Dask", kb.logs.scan(frame, client=client, features=parts.features, **roles))
    started = process_time()
    whole = kb.logs.read(file, features=parts.features, action="arm")
    print(f"read: {process_time() - started:.1f} s of processor time")
    report("as a whole", whole)


def child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory() -> float:
    """Return the largest resident memory so far in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("learn", "cluster", "evaluate", "scan"))
    parser.add_argument("rows", type=lambda text: int(float(text)))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        if options.what == "learn":
            learning(path, options.rows, options.repeats)
        elif options.what == "cluster":
            on_cluster(path, options.rows)
        elif options.what == "evaluate":
            evaluation(path, options.rows)
        else:
            scanning(path, options.rows)


if __name__ == "__main__":
    main()
