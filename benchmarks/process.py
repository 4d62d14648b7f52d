"""A plant to be tuned: settings in a box, sensors as context, a plateau with one peak.

    python benchmarks/process.py                      # the variants for development
    python benchmarks/process.py --held-out           # those that nothing was chosen on
    python benchmarks/process.py --variants 2d 6d --seeds 20 --peer botorch

The yield is 50 on the plateau and 90 at the peak, which a quarter of the box feels (its bump is above 10 % there) and
which moves with the sensors; the noise has a standard deviation of 1. Each run has 120 experiments with nothing set.
The shortfall is the mean of best yield less yield over the last 30.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace

import numpy as np

import kernel_bandits as kb

EXPERIMENTS, LAST = 120, 30
PLATEAU, PEAK, NOISE = 50.0, 40.0, 1.0
# The part of its height that still counts as felt.
FELT = 0.1


@dataclass(frozen=True)
class Plant:
    """A variant of the plant.

    Attributes:
        settings: the dimension of the box.
        sensors: the dimension of the context.
        batch: experiments in parallel.
        share: of the box that feels the peak.
        moves: how far the sensors move the peak, in widths of the box per standard deviation.
        margin: how near the peak may be to a wall, in widths of the box.
        units: whether settings have units of their own, as °C, bar and kg/h.
        relevant: settings that matter; None for all of them.
        tilt: of the plateau, from one corner to the opposite one.
    """

    settings: int = 3
    sensors: int = 4
    batch: int = 4
    share: float = 0.25
    moves: float = 0.05
    margin: float = 0.2
    units: bool = True
    relevant: int | None = None
    tilt: float = 0.0

    @property
    def matter(self) -> int:
        return self.settings if self.relevant is None else self.relevant

    @property
    def width(self) -> float:
        """The standard deviation of the bump: a ball of the given volume ends where it falls to FELT."""
        count = self.matter
        radius = (self.share * math.gamma(count / 2 + 1) / math.pi ** (count / 2)) ** (1 / count)
        return radius / math.sqrt(2 * math.log(1 / FELT))

    @property
    def box(self) -> kb.Box:
        if not self.units:
            return kb.Box(np.zeros(self.settings), np.ones(self.settings))
        low = np.resize([150.0, 1.0, 20.0], self.settings)
        return kb.Box(low, low + np.resize([100.0, 4.0, 60.0], self.settings))


class Run:
    """One instance of a plant with its randomness."""

    def __init__(self, plant: Plant, seed: int) -> None:
        self.plant, self.box = plant, plant.box
        self.generator = np.random.default_rng([seed, 7])
        instance = np.random.default_rng([seed, 11])
        self.centre = instance.uniform(plant.margin, 1.0 - plant.margin, plant.matter)
        directions = instance.standard_normal((plant.matter, plant.sensors))
        norms = np.linalg.norm(directions, axis=1, keepdims=True)
        self.directions = plant.moves * directions / np.maximum(norms, 1e-12)

    def sense(self) -> np.ndarray:
        return self.generator.standard_normal(self.plant.sensors)

    def expected(self, context: np.ndarray, action: np.ndarray) -> float:
        fractions = self.box.fractions(action[None, :])[0]
        offset = fractions[: self.plant.matter] - self.centre - self.directions @ np.tanh(context)
        bump = math.exp(-float(offset @ offset) / (2 * self.plant.width**2))
        return PLATEAU + PEAK * bump + self.plant.tilt * float(fractions.mean() - 0.5)

    @property
    def best(self) -> float:
        return PLATEAU + PEAK

    def play(self, policy: kb.Policy) -> tuple[np.ndarray, np.ndarray]:
        """Shortfalls (120,) and which of the plays were on a wall."""
        shortfalls: list[float] = []
        on_wall: list[bool] = []
        while len(shortfalls) < EXPERIMENTS:
            decisions = [policy.ask(self.sense(), self.box) for _ in range(self.plant.batch)]
            for decision in decisions:
                expected = self.expected(decision.context, decision.action)
                shortfalls.append(self.best - expected)
                fractions = self.box.fractions(decision.action[None, :])[0]
                on_wall.append(bool(((fractions < 1e-3) | (fractions > 1 - 1e-3)).any()))
                policy.tell(int(decision.id or 0), expected + NOISE * self.generator.standard_normal())
        return np.array(shortfalls), np.array(on_wall)


BASE = Plant()
VARIANTS = {
    "base": BASE,
    "single": replace(BASE, batch=1),
    "2d": replace(BASE, settings=2),
    "4d": replace(BASE, settings=4),
    "6d": replace(BASE, settings=6),
    "6d-single": replace(BASE, settings=6, batch=1),
    "narrow": replace(BASE, share=0.12),
    "moving": replace(BASE, moves=0.1),
    "no-sensors": replace(BASE, sensors=0),
}
HELD_OUT = {
    "5d": replace(BASE, settings=5),
    "2d-single": replace(BASE, settings=2, batch=1),
    "4d-single": replace(BASE, settings=4, batch=1),
    "unit-box": replace(BASE, units=False),
    "corner": replace(BASE, margin=0.0),
    "ten-sensors": replace(BASE, sensors=10),
    "wide": replace(BASE, share=0.5),
    "batch-8": replace(BASE, batch=8),
    "tilted": replace(BASE, tilt=5.0),
    "irrelevant": replace(BASE, settings=4, relevant=2),
    "6d-no-sensors": replace(BASE, settings=6, sensors=0),
    "1d": replace(BASE, settings=1),
}


def measure(name: str, plant: Plant, seeds: int) -> None:
    ends, walls, started = [], [], time.process_time()
    for seed in range(seeds):
        shortfalls, on_wall = Run(plant, seed).play(kb.ek_ucb(seed=seed))
        ends.append(shortfalls[-LAST:].mean())
        walls.append(on_wall.sum())
    seconds = (time.process_time() - started) / seeds
    short = np.array(ends)
    print(
        f"{name:14s} over 5 short: {int((short > 5).sum()):2d} of {seeds}   median {np.median(short):5.2f}   "
        f"worst {short.max():5.2f}   plays on a wall {np.mean(walls):5.1f}   {seconds:5.2f} s a run",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--variants", nargs="*")
    parser.add_argument("--held-out", action="store_true")
    arguments = parser.parse_args()
    known = VARIANTS | HELD_OUT
    chosen = arguments.variants or list(HELD_OUT if arguments.held_out else VARIANTS)
    for name in chosen:
        measure(name, known[name], arguments.seeds)


if __name__ == "__main__":
    main()
