"""Thousands of replicas on one accelerator: time, traffic and arithmetic per round, the grid, large dictionaries.

Run: python benchmarks/accelerated.py [SECTION …] [--out FOLDER]; numbers are kept in FOLDER/accelerated.json.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from kernel_bandits_lab import Study, Sweep, accelerated, executor, load_study
from kernel_bandits_lab.accelerated.engine import Trajectories, traces
from kernel_bandits_lab.accelerated.models import BLOCK
from kernel_bandits_lab.accelerated.replicas import Precision, Replica, computing, simulate_batch
from kernel_bandits_lab.execution import Executor, Outcome
from measure import markdown

import kernel_bandits as kb
from kernel_bandits.dictionaries.base import HistoryMode

RIDGE = 0.01
HORIZON, REPLICAS, ACTIONS, FEW = 2000, 1024, 10, 16
GRID_RIDGES, GRID_OVERSAMPLINGS, GRID_SEEDS = (0.01, 0.1, 1.0), (0.5, 1.0, 2.0), 256
ENVIRONMENTS = (kb.environments.Bump, kb.environments.Chessboard, kb.environments.StepDiagonal)

compile_seconds: list[float] = []


def _note_compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:  # noqa: ARG001 (JAX calls it so)
    if event == "/jax/core/compile/backend_compile_duration":
        compile_seconds.append(duration_secs)


def seconds_of(call: Callable[[], jax.Array], repeats: int = 5) -> float:
    """Median over repeats, after one that compiles and warms up."""
    call().block_until_ready()
    times = []
    for _ in range(repeats):
        started = perf_counter()
        call().block_until_ready()
        times.append(perf_counter() - started)
    return float(np.median(times))


def ceilings() -> list[dict[str, object]]:
    """What the card reaches: reading and writing a large array, and a large product."""
    with computing("float64", None):
        array = jnp.arange(2.0**30)
        increment = jax.jit(lambda array: array + 1.0)
        bandwidth = 2 * array.nbytes / seconds_of(lambda: increment(array))
        square = jax.random.normal(jax.random.key(0), (8192, 8192))
        multiply = jax.jit(lambda matrix: matrix @ matrix)
        rate = 2 * 8192**3 / seconds_of(lambda: multiply(square))
    return [{"": str(jax.devices()[0]), "bandwidth, TB/s": bandwidth / 1e12, "float64 product, TFLOP/s": rate / 1e12}]


def timed_run(
    replicas: list[Replica], environment: kb.environments.Environment, horizon: int, dtype: Precision = "float64"
) -> dict[str, Any]:
    """Run once; return the seconds in all and per round at the end, where matrices are largest."""
    marks: list[tuple[int, float]] = []
    seeds = [replica.seed for replica in replicas]
    with computing(dtype, None):
        started = perf_counter()
        marks.append((0, started))
        tables, trajectories = simulate_batch(
            replicas, environment, horizon, seeds, dtype, progress=lambda done: marks.append((done, perf_counter()))
        )
        ended = perf_counter()
    late = [mark for mark in marks if mark[0] >= 0.75 * horizon]
    per_round = (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0])
    state = trajectories.state
    capacity = (state.weights if hasattr(state, "weights") else state.whitened).shape[1]
    del tables
    return {"seconds": ended - started, "late round": per_round, "capacity": capacity, "trajectories": trajectories}


def speed() -> list[dict[str, object]]:
    """1,024 replicas on Chessboard, T = 2000: the median of seven runs, with all the host does, after compilation."""
    bandwidth = float(ceilings()[0]["bandwidth, TB/s"])  # type: ignore[arg-type]  # a number in a row of a table
    rows: list[dict[str, object]] = []
    history: HistoryMode
    for history in ("none", "all"):
        replicas = [
            accelerated.ek_ucb(kb.Gaussian(0.1), regularization=RIDGE, dictionary=kb.Kors(history=history), seed=seed)
            for seed in range(REPLICAS)
        ]
        compile_seconds.clear()
        first = timed_run(replicas, kb.environments.Chessboard(), HORIZON)
        compiled = sum(compile_seconds)
        runs = sorted((timed_run(replicas, kb.environments.Chessboard(), HORIZON) for _ in range(7)), key=_seconds)
        timed = runs[len(runs) // 2]
        # what a round takes when there is next to nothing to compute: launching its kernels
        few = [timed_run(replicas[:FEW], kb.environments.Chessboard(), HORIZON) for _ in range(2)][1]
        capacity = timed["capacity"]
        # J, P and Q are read once a round, J once more for its further row; P and Q are rewritten once a block
        reads = (4 if history == "none" else 3) + 4 / BLOCK
        traffic = 8.0 * REPLICAS * capacity**2 * reads
        # φ and Pφ of every action, Qφ and, without the history, φᵀJ; two rank-one terms
        flops = REPLICAS * capacity**2 * (4.0 * ACTIONS + 2 * (reads - 2 - 4 / BLOCK) + 4)
        rate = traffic / timed["late round"]
        rows.append(
            {
                "history": history,
                "first run, s": first["seconds"],
                "of it compilation, s": compiled,
                "run, s": timed["seconds"],
                "fastest, s": runs[0]["seconds"],
                "slowest, s": runs[-1]["seconds"],
                "late round, µs": 1e6 * timed["late round"],
                f"that of {FEW} replicas, µs": 1e6 * few["late round"],
                "capacity": capacity,
                "largest m": int(timed["trajectories"].sizes.max()),
                "traffic, MB": traffic / 1e6,
                "GFLOP": flops / 1e9,
                "TB/s": rate / 1e12,
                "share of bandwidth": rate / 1e12 / bandwidth,
                "TFLOP/s": flops / timed["late round"] / 1e12,
            }
        )
    return rows


def _seconds(timed: dict[str, Any]) -> float:
    return float(timed["seconds"])


def grid_replicas(
    environment: kb.environments.Environment, ridges: tuple[float, ...], oversamplings: tuple[float, ...], seeds: int
) -> list[Replica]:
    """Every setting with every seed, setting by setting."""
    assert environment.lengthscale is not None
    kernel = kb.Gaussian(environment.lengthscale)
    return [
        accelerated.ek_ucb(kernel, regularization=ridge, dictionary=kb.Kors(oversampling=oversampling), seed=seed)
        for ridge, oversampling, seed in product(ridges, oversamplings, range(seeds))
    ]


def grid() -> list[dict[str, object]]:
    """9 settings × 3 environments × 256 seeds, T = 2000, with what compiling takes and without."""
    rows: list[dict[str, object]] = []
    for attempt in ("first", "again"):
        begun = perf_counter()
        for build in ENVIRONMENTS:
            environment = build()
            replicas = grid_replicas(environment, GRID_RIDGES, GRID_OVERSAMPLINGS, GRID_SEEDS)
            compile_seconds.clear()
            started = perf_counter()
            results = accelerated.run_many(replicas, environment, HORIZON)
            rows.append(
                {
                    "": attempt,
                    "environment": environment.name,
                    "seconds": perf_counter() - started,
                    "compiling, also in the background": sum(compile_seconds),
                    "programs": len([seconds for seconds in compile_seconds if seconds > 0.5]),
                    "runs": len(results),
                    "largest m": int(max(result.dictionary_size[-1] for result in results)),
                }
            )
        total = perf_counter() - begun
        rows.append({"": attempt, "environment": "all", "seconds": total, **dict.fromkeys(list(rows[0])[3:], "")})
    return rows


def large() -> list[dict[str, object]]:
    """64 replicas with 1,000 actions and up to 1,024 anchors."""
    environment = kb.environments.MovingOptimum(number_of_actions=1000)
    replicas = [
        accelerated.ek_ucb(kb.Gaussian(0.25), regularization=RIDGE, dictionary=kb.Kors(max_size=1024), seed=seed)
        for seed in range(64)
    ]
    compile_seconds.clear()
    first = timed_run(replicas, environment, HORIZON)
    compiled = sum(compile_seconds)
    timed = timed_run(replicas, environment, HORIZON)
    capacity = timed["capacity"]
    flops = 64 * 1000 * 4.0 * capacity**2
    return [
        {
            "first run, s": first["seconds"],
            "of it compilation, s": compiled,
            "run, s": timed["seconds"],
            "late round, ms": 1e3 * timed["late round"],
            "largest m": int(timed["trajectories"].sizes.max()),
            "GFLOP": flops / 1e9,
            "TFLOP/s": flops / timed["late round"] / 1e12,
        }
    ]


def exact() -> list[dict[str, object]]:
    """K-UCB, 256 replicas on Chessboard, T = 1000."""
    replicas = [accelerated.k_ucb(kb.Gaussian(0.1), regularization=RIDGE, seed=seed) for seed in range(256)]
    first = timed_run(replicas, kb.environments.Chessboard(), 1000)
    timed = timed_run(replicas, kb.environments.Chessboard(), 1000)
    return [{"first run, s": first["seconds"], "run, s": timed["seconds"], "late round, ms": 1e3 * timed["late round"]}]


def precision() -> list[dict[str, object]]:
    """float32 against float64, T = 2000: decisions on Chessboard, and predictions where there is nothing to decide."""
    rows: list[dict[str, object]] = []
    cells: list[tuple[HistoryMode, float]] = [("none", 0.01), ("none", 1.0), ("all", 0.01), ("all", 1.0)]
    for history, ridge in cells:
        replicas = [
            accelerated.ek_ucb(kb.Gaussian(0.1), regularization=ridge, dictionary=kb.Kors(history=history), seed=seed)
            for seed in range(REPLICAS)
        ]
        double, single = (
            min((timed_run(replicas, kb.environments.Chessboard(), HORIZON, dtype) for _ in range(2)), key=_seconds)
            for dtype in ("float64", "float32")
        )
        rows.append(
            {"history": history, "λ": ridge, "float64, s": double["seconds"], "float32, s": single["seconds"]}
            | regret_difference(double["trajectories"], single["trajectories"])
            | prediction_error(history, ridge)
        )
    return rows


def regret_difference(reference: Trajectories, other: Trajectories) -> dict[str, object]:
    """What other decisions do to the regret, paired over replicas."""
    difference = other.regrets.sum(axis=1) - reference.regrets.sum(axis=1)
    return {
        "regret": float(reference.regrets.sum(axis=1).mean()),
        "float32 adds": float(difference.mean()),
        "± 95 %": float(1.96 * difference.std(ddof=1) / np.sqrt(len(difference))),
    }


def one_action_rewards(context: jax.Array, actions: jax.Array) -> jax.Array:
    return jnp.sin(4.0 * context[0]) * jnp.cos(3.0 * context[1]) + actions[:, 0]


def prediction_error(history: HistoryMode, ridge: float) -> dict[str, object]:
    """Errors of mean and std in float32 after runs with one action, in which both precisions see the same points."""
    environment = accelerated.PureEnvironment(one_action_rewards, np.zeros((1, 1)), 2)
    replicas = [
        accelerated.ek_ucb(kb.Gaussian(0.3), regularization=ridge, dictionary=kb.Kors(history=history), seed=seed)
        for seed in range(64)
    ]
    points = np.random.default_rng(0).random((500, 3)) * [1.0, 1.0, 0.0]
    beliefs = []
    dtype: Precision
    for dtype in ("float64", "float32"):
        with computing(dtype, None):
            _, trajectories = simulate_batch(
                replicas, environment, HORIZON, [replica.seed for replica in replicas], dtype
            )
            offered = jnp.broadcast_to(jnp.asarray(points, dtype), (len(replicas), *points.shape))
            _, believed = replicas[0].model.bounds(trajectories.state, offered)
            beliefs.append((np.asarray(believed.mean, np.float64), np.asarray(believed.std, np.float64)))
    mean_error, std_error = (single - double for double, single in zip(*beliefs, strict=True))
    return {
        "mean, RMS": float(np.sqrt(np.mean(mean_error**2))),
        "mean, most": float(np.abs(mean_error).max()),
        "std, RMS": float(np.sqrt(np.mean(std_error**2))),
        "std, most": float(np.abs(std_error).max()),
    }


def sweep() -> list[dict[str, object]]:
    """examples/settings.toml on the GPU and on the processors beside it.

    Give JAX_COMPILATION_CACHE_DIR and run it a second time for programs that come from disk.
    """
    study = load_study(Path(__file__).parents[1] / "examples" / "settings.toml")
    accelerated_executor, processes = executor(device="gpu"), os.cpu_count() or 1
    quarter = study.capped(seeds=16)
    return [
        timed_sweep("GPU, the first sweep of this process, records not written", accelerated_executor(study.runs)),
        timed_sweep("GPU, programs in memory, records not written", accelerated_executor(study.runs)),
        written_sweep("GPU, programs in memory, records written", study, accelerated_executor),
        written_sweep(f"{processes} processes, a quarter of the runs, records written", quarter, executor(processes)),
    ]


def timed_sweep(what: str, outcomes: Iterator[Outcome]) -> dict[str, object]:
    """How long it takes until all outcomes are there."""
    started = perf_counter()
    runs = sum(1 for _ in outcomes)
    seconds = perf_counter() - started
    return {"": what, "runs": runs, "seconds": seconds, "runs per second": runs / seconds}


def written_sweep(what: str, study: Study, execute_runs: Executor) -> dict[str, object]:
    """The same with a record of each run in a folder."""
    with TemporaryDirectory() as folder:
        return timed_sweep(what, Sweep(study, folder).run(execute_runs))


SECTIONS: dict[str, Callable[[], list[dict[str, object]]]] = {
    "ceilings": ceilings,
    "speed": speed,
    "grid": grid,
    "large": large,
    "exact": exact,
    "precision": precision,
    "sweep": sweep,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    jax.monitoring.register_event_duration_secs_listener(_note_compilation)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "accelerated.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept["versions"] = {"jax": jax.__version__, "numpy": np.__version__, "device": str(jax.devices()[0].device_kind)}
    for name in arguments.sections:
        section = SECTIONS[name]
        rows = section()
        kept[name] = rows
        path.write_text(json.dumps(kept, indent=1))
        print(f"\n{inspect.getdoc(section)}\n\n{markdown(rows)}\n", flush=True)
    print(f"{len(traces())} programs were compiled.")


if __name__ == "__main__":
    main()
