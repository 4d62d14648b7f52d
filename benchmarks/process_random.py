"""Plants drawn at random, tuned with nothing set: how many end more than 5 short?

    python benchmarks/process_random.py results.jsonl                        # 40 plants for development
    python benchmarks/process_random.py results.jsonl --set held-out         # 45 plants to judge by
    python benchmarks/process_random.py results.jsonl --batches 1 --policies here oracle

A plant has 1 to 6 settings and 0 to 4 sensors. Peak, noise, units and what the sensors do are drawn, see ``draw``. The
oracle is EK-UCB that is given the widths of the peak, how the sensors move it, and the noise, but not where it is:
where it fails too, 120 experiments are too few. Each run is a line of the file; runs that stand there already are not
repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from process import LAST, PEAK, Plant, Run

import kernel_bandits as kb
from kernel_bandits.kernels import Shear

SHORT = 5.0
SETS = {"development": range(40), "seen": range(10_000, 10_105), "held-out": range(10_105, 10_150)}


def _log_uniform(generator: np.random.Generator, low: float, high: float, size: int | None = None) -> np.ndarray:
    return np.exp(generator.uniform(math.log(low), math.log(high), size))


def draw(number: int) -> Plant:
    """Return the plant of a number; experiments one at a time."""
    generator = np.random.default_rng([number, 13])
    settings, sensors = int(generator.integers(1, 7)), int(generator.integers(0, 5))
    relevant = int(generator.integers(1, settings + 1)) if generator.random() < 0.25 else settings
    corner = int(generator.choice([0, 0, 0, 0, 0, 0, 0, 1, 1, 2]))
    others = int(generator.choice([0, 0, 0, 1, 2]))
    oblique = bool(generator.random() < 0.2)
    plant = Plant(
        settings=settings,
        sensors=sensors,
        batch=1,
        share=float(_log_uniform(generator, 0.12, 0.5)),
        # in widths of the peak for now
        moves=float(generator.uniform(0.0, 1.0)),
        margin=float(generator.uniform(0.0, 0.3)),
        corner=0 if oblique else min(corner, relevant),
        low=tuple(generator.choice([0.0, 1.0, 150.0, -1e4], settings)),
        width=tuple(_log_uniform(generator, 1e-3, 1e4, settings)),
        relevant=relevant,
        tilt=float(generator.choice([0.0, 0.0, 5.0, -5.0])),
        plateau=float(generator.choice([50.0, 0.0, -90.0, 1000.0])),
        unit=float(_log_uniform(generator, 1e-3, 1e3)),
        noise=float(_log_uniform(generator, 0.3, 3.0)),
        peaks=tuple(generator.uniform(0.4, 0.8, others)),
        aspect=float(_log_uniform(generator, 1.0, 4.0)) if generator.random() < 0.5 else 1.0,
        oblique=oblique,
        level=float(generator.choice([0.0, 0.0, 2.0, 5.0])),
        sensing=str(generator.choice(["independent", "independent", "flags", "walk"])),  # type: ignore[arg-type]
        sensor_units=(float(generator.choice([0.0, 300.0])), float(_log_uniform(generator, 1e-2, 1e3))),
    )
    # the sensors move the peak by up to its own width in all, about half of that in the process of the documentation
    width = float(np.exp(np.log(plant.widths).mean()))
    return replace(plant, moves=plant.moves * width / math.sqrt(plant.matter))


def oracle(plant: Plant, number: int) -> kb.Policy:
    """Return a policy that knows all of a plant but where its peaks are."""
    widths = np.full(plant.settings, 1e3)
    # turned axes mix the widths
    widths[: plant.matter] = np.exp(np.log(plant.widths).mean()) if plant.oblique else plant.widths
    box = plant.box.high - plant.box.low
    kernel: kb.Kernel = kb.Gaussian(widths * box)
    if plant.sensors:
        centre, spread = plant.sensor_units
        slopes = np.zeros((plant.settings, plant.sensors))
        # tanh has a slope of 0.6 over a standard normal
        slopes[: plant.matter] = 0.6 * Run(plant, number).directions / spread
        sensors = kb.Gaussian(np.full(plant.sensors, 4.0 * spread * math.sqrt(plant.sensors)))
        shear = Shear(slopes * box[:, None], np.full(plant.sensors, centre))
        kernel = kb.TensorProduct(sensors, kernel, plant.sensors, shear)
    variance = (0.5 * PEAK * plant.unit) ** 2
    return kb.ek_ucb(
        variance * kernel,
        regularization=(plant.noise * plant.unit) ** 2,
        confidence=kb.StandardDeviations(1.5),
        seed=number,
    )


POLICIES: dict[str, Callable[[Plant, int], kb.Policy]] = {
    "here": lambda _, seed: kb.ek_ucb(seed=seed),
    "oracle": oracle,
}


def play(number: int, batch: int, policy: str) -> dict[str, object]:
    plant = replace(draw(number), batch=batch)
    if policy == "oracle":
        # its kernel has mean 0, and knows of no slopes
        plant = replace(plant, plateau=0.0)
    started = time.process_time()
    shortfalls, on_wall = Run(plant, number).play(POLICIES[policy](plant, number))
    return {
        "plant": number,
        "batch": batch,
        "policy": policy,
        "end": float(shortfalls[-LAST:].mean()),
        "all": float(shortfalls.mean()),
        "lowest": float(shortfalls.min()),
        "walls": int(on_wall.sum()),
        "seconds": time.process_time() - started,
    }


def summary(rows: list[dict[str, object]], batch: int, policy: str) -> str:
    found = {row["plant"]: row for row in rows if row["batch"] == batch and row["policy"] == policy}
    ends = np.array([float(row["end"]) for row in found.values()])  # type: ignore[arg-type]
    if not len(ends):
        return ""
    failed = {number: round(float(row["end"]), 1) for number, row in found.items() if row["end"] > SHORT}  # type: ignore[arg-type, operator]
    seconds = np.mean([float(row["seconds"]) for row in found.values()])  # type: ignore[arg-type]
    return (
        f"{policy:8s} batch {batch}: over {SHORT:g} short {len(failed):3d} of {len(ends)}   "
        f"median {np.median(ends):5.2f}   mean {ends.mean():5.2f}   worst {ends.max():5.2f}   "
        f"{seconds:.1f} s a run   {failed}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--set", choices=list(SETS), default="development")
    parser.add_argument("--plants", type=int, help="only the first so many")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--policies", nargs="*", default=["here"], choices=list(POLICIES))
    parser.add_argument("--describe", action="store_true", help="print the plants that failed")
    arguments = parser.parse_args()
    numbers = SETS[arguments.set][: arguments.plants]
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["plant"], row["batch"], row["policy"]) for row in rows}
    wanted = [(n, b, p) for n in numbers for b in arguments.batches for p in arguments.policies]
    for count, run in enumerate(wanted, 1):
        if run not in done:
            rows.append(play(*run))
            with arguments.results.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(f"{count} of {len(wanted)}: {run} {rows[-1]['end']:.2f}", flush=True)
    rows = [row for row in rows if row["plant"] in numbers]
    for batch in arguments.batches:
        for policy in arguments.policies:
            print(summary(rows, batch, policy))
    if arguments.describe:
        for number in sorted({row["plant"] for row in rows if row["end"] > SHORT}):
            print(number, draw(number))


if __name__ == "__main__":
    main()
