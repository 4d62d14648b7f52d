"""A plant to be tuned: settings in a box, sensors as context, a plateau with one peak or several.

    python benchmarks/process.py                      # the process of the documentation, in 2 to 6 dimensions
    python benchmarks/process.py --set development    # variants that the design was chosen on
    python benchmarks/process.py --set held-out       # variants written down before, and looked at once
    python benchmarks/process.py --variants 2d 6d --seeds 20

The yield is 50 on the plateau and 90 at the peak, which a quarter of the box feels (its bump is above 10 % there) and
which moves with the sensors; the noise has a standard deviation of 1. Each run has 120 experiments with nothing set.
The shortfall is the mean of best yield less yield over the last 30, in units in which the peak is 40 high.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

import kernel_bandits as kb

EXPERIMENTS, LAST = 120, 30
PEAK = 40.0
# The part of its height that still counts as felt.
FELT = 0.1
# Steps towards the highest yield where peaks overlap or the plateau is tilted.
STEPS = 20


@dataclass(frozen=True)
class Plant:
    """A variant of the plant.

    Attributes:
        settings: the dimension of the box.
        sensors: the dimension of the context.
        batch: experiments in parallel.
        together: whether a batch is asked for by one ``ask_many`` rather than one by one.
        share: of the box that feels the peak.
        moves: how far the sensors move the peak, in widths of the box per standard deviation.
        margin: how near the peak may be to a wall, in widths of the box.
        corner: in how many settings the peak is at a wall.
        low: the lower corner, repeated over the settings.
        width: of the box, likewise.
        relevant: settings that matter; None for all of them.
        tilt: of the plateau, from one corner to the opposite one.
        plateau: its yield.
        unit: what one unit of yield counts in rewards.
        noise: its standard deviation, in units of yield.
        peaks: heights of further peaks over that of the highest.
        aspect: how much wider the peak is in its last setting than in its first.
        oblique: whether the axes of the peak are turned at random, which makes a ridge across the settings. The peak
            then stays in the box.
        level: how far the sensors move the whole yield, in units of yield per standard deviation.
        sensing: how sensors vary: independently, as flags, or as a slow walk.
        sensor_units: centre and spread of the sensors.
    """

    settings: int = 3
    sensors: int = 4
    batch: int = 4
    together: bool = False
    share: float = 0.25
    moves: float = 0.05
    margin: float = 0.2
    corner: int = 0
    low: tuple[float, ...] = (150.0, 1.0, 20.0)
    width: tuple[float, ...] = (100.0, 4.0, 60.0)
    relevant: int | None = None
    tilt: float = 0.0
    plateau: float = 50.0
    unit: float = 1.0
    noise: float = 1.0
    peaks: tuple[float, ...] = ()
    aspect: float = 1.0
    oblique: bool = False
    level: float = 0.0
    sensing: Literal["independent", "flags", "walk"] = "independent"
    sensor_units: tuple[float, float] = (0.0, 1.0)

    @property
    def matter(self) -> int:
        return self.settings if self.relevant is None else self.relevant

    @property
    def widths(self) -> np.ndarray:
        """The standard deviations of the bump: an ellipsoid of the given volume ends where it falls to FELT."""
        count = self.matter
        radius = (self.share * math.gamma(count / 2 + 1) / math.pi ** (count / 2)) ** (1 / count)
        stretch = self.aspect ** np.linspace(-0.5, 0.5, count) if count > 1 else np.ones(1)
        return stretch * radius / math.sqrt(2 * math.log(1 / FELT))

    @property
    def box(self) -> kb.Box:
        low = np.resize(self.low, self.settings)
        return kb.Box(low, low + np.resize(self.width, self.settings))


class Run:
    """One instance of a plant with its randomness."""

    def __init__(self, plant: Plant, seed: int) -> None:
        self.plant, self.box = plant, plant.box
        self.generator = np.random.default_rng([seed, 7])
        instance = np.random.default_rng([seed, 11])
        self.centres = instance.uniform(plant.margin, 1.0 - plant.margin, (1, plant.matter))
        directions = instance.standard_normal((plant.matter, plant.sensors))
        norms = np.linalg.norm(directions, axis=1, keepdims=True)
        self.directions = plant.moves * directions / np.maximum(norms, 1e-12)
        self.centres[0, : plant.corner] = instance.integers(0, 2, plant.corner)
        self.heights = PEAK * np.array([1.0, *plant.peaks])
        others = instance.uniform(plant.margin, 1.0 - plant.margin, (len(plant.peaks), plant.matter))
        self.centres = np.concatenate([self.centres, others])
        # a random rotation
        turned = np.linalg.qr(instance.standard_normal((plant.matter, plant.matter)))[0]
        self.axes = turned if plant.oblique else np.eye(plant.matter)
        slopes = instance.standard_normal(plant.sensors)
        self.slopes = plant.level * slopes / max(float(np.linalg.norm(slopes)), 1e-12)
        self.state = np.zeros(plant.sensors)

    def sense(self) -> np.ndarray:
        plant, drawn = self.plant, self.generator.standard_normal(self.plant.sensors)
        if plant.sensing == "walk":
            # a stationary walk that forgets half in about 14 rounds
            drawn = self.state = 0.95 * self.state + math.sqrt(1 - 0.95**2) * drawn
        elif plant.sensing == "flags":
            drawn = np.sign(drawn)
        return plant.sensor_units[0] + plant.sensor_units[1] * drawn

    def _sensed(self, context: np.ndarray) -> np.ndarray:
        return (context - self.plant.sensor_units[0]) / self.plant.sensor_units[1]

    def _peaks(self, context: np.ndarray) -> np.ndarray:
        """The centres of the peaks, shape (n, d)."""
        centres = self.centres + self.directions @ np.tanh(self._sensed(context))
        return np.clip(centres, 0.0, 1.0) if self.plant.oblique else centres

    def _bumps(self, context: np.ndarray, fractions: np.ndarray) -> np.ndarray:
        """What each peak adds at fractions (n, d_a) of the box, shape (n, peaks)."""
        plant = self.plant
        offsets = (fractions[:, None, : plant.matter] - self._peaks(context)) @ self.axes / plant.widths
        heights: np.ndarray = self.heights * np.exp(-0.5 * (offsets**2).sum(axis=2))
        return heights

    def _yield(self, context: np.ndarray, fractions: np.ndarray) -> np.ndarray:
        """Expected yields at fractions (n, d_a) of the box."""
        plant, bumps = self.plant, self._bumps(context, fractions).sum(axis=1)
        level = plant.plateau + float(self.slopes @ self._sensed(context))
        return level + bumps + plant.tilt * (fractions.mean(axis=1) - 0.5)

    def expected(self, context: np.ndarray, action: np.ndarray) -> float:
        return float(self._yield(context, self.box.fractions(action[None, :]))[0])

    def best(self, context: np.ndarray) -> float:
        """The highest yield in the box."""
        plant = self.plant
        # a slope of the plateau is steepest in settings that do not matter otherwise
        fractions = np.full((len(self.centres), plant.settings), 0.5 + 0.5 * np.sign(plant.tilt))
        peaks = self._peaks(context)
        fractions[:, : plant.matter] = np.clip(peaks, 0.0, 1.0)
        highest = float(self._yield(context, fractions).max())
        if plant.tilt or plant.peaks:
            # the gradient is 0 where x = (Σ b_i·c_i + C·slope)/Σ b_i, with the bumps b_i at x and their covariance C
            covariance = (self.axes * plant.widths**2) @ self.axes.T
            shift = covariance.sum(axis=1) * plant.tilt / plant.settings
            for _ in range(STEPS):
                bumps = self._bumps(context, fractions)
                towards = (bumps @ peaks + shift) / bumps.sum(axis=1, keepdims=True)
                fractions[:, : plant.matter] = np.clip(towards, 0.0, 1.0)
            highest = max(highest, float(self._yield(context, fractions).max()))
        return highest

    def play(self, policy: kb.Policy) -> tuple[np.ndarray, np.ndarray]:
        """Shortfalls (120,) and which of the plays were on a wall."""
        shortfalls: list[float] = []
        on_wall: list[bool] = []
        while len(shortfalls) < EXPERIMENTS:
            contexts = [self.sense() for _ in range(self.plant.batch)]
            if self.plant.together:
                decisions = policy.ask_many(np.array(contexts), self.box)
            else:
                decisions = [policy.ask(context, self.box) for context in contexts]
            for decision in decisions:
                expected = self.expected(decision.context, decision.action)
                shortfalls.append(self.best(decision.context) - expected)
                fractions = self.box.fractions(decision.action[None, :])[0]
                on_wall.append(bool(((fractions < 1e-3) | (fractions > 1 - 1e-3)).any()))
                measured = expected + self.plant.noise * self.generator.standard_normal()
                policy.tell(int(decision.id or 0), self.plant.unit * measured)
        return np.array(shortfalls), np.array(on_wall)


BASE = Plant()
DIMENSIONS = {"2d": 2, "3d": 3, "4d": 4, "6d": 6}
SETS = {
    "process": {
        f"{name}{suffix}": replace(BASE, settings=settings, batch=batch, together=together)
        for name, settings in DIMENSIONS.items()
        for suffix, batch, together in (("-single", 1, False), ("", 4, False), ("-many", 4, True))
    },
    "development": {
        "narrow": replace(BASE, share=0.12),
        "moving": replace(BASE, moves=0.1),
        "no-sensors": replace(BASE, sensors=0),
        "5d": replace(BASE, settings=5),
        "unit-box": replace(BASE, low=(0.0,), width=(1.0,)),
        "anywhere": replace(BASE, margin=0.0),
        "ten-sensors": replace(BASE, sensors=10),
        "wide": replace(BASE, share=0.5),
        "batch-8": replace(BASE, batch=8),
        "tilted": replace(BASE, tilt=5.0),
        "irrelevant": replace(BASE, settings=4, relevant=2),
        "6d-no-sensors": replace(BASE, settings=6, sensors=0),
        "1d": replace(BASE, settings=1),
        "low-plateau": replace(BASE, plateau=0.0, batch=1),
        "two-peaks": replace(BASE, share=0.2, peaks=(0.75,)),
        "wall": replace(BASE, corner=1),
        "kelvin-pascal": replace(
            BASE, low=(423.15, 1e5, 1e-3), width=(100.0, 4e5, 2e-3), sensor_units=(101325.0, 500.0)
        ),
        "noisy": replace(BASE, noise=3.0),
        "walking": replace(BASE, sensing="walk", aspect=2.0),
    },
    "held-out": {
        "costs": replace(BASE, sensors=0, plateau=-90.0, unit=1e-3),
        "corner": replace(BASE, settings=2, corner=2, batch=1),
        "offset": replace(BASE, low=(1e6,), width=(1.0,), noise=3.0, batch=1),
        "flags": replace(BASE, sensing="flags", sensors=6, moves=0.1),
        "four-peaks": replace(BASE, settings=4, relevant=2, peaks=(0.8, 0.7, 0.6), share=0.1, plateau=500.0),
        "long": replace(BASE, settings=4, aspect=4.0, sensing="walk", sensors=2, sensor_units=(300.0, 2.0)),
        "5d-wall-noisy": replace(BASE, settings=5, corner=1, noise=3.0, together=True),
    },
}


def measure(name: str, plant: Plant, seeds: int) -> None:
    ends, walls, started = [], [], time.process_time()
    for seed in range(seeds):
        shortfalls, on_wall = Run(plant, seed).play(kb.ek_ucb(seed=seed))
        ends.append(shortfalls[-LAST:].mean())
        walls.append(on_wall.sum())
    seconds = (time.process_time() - started) / seeds
    short = np.array(ends)
    stuck = np.flatnonzero(short > 5.0)
    print(
        f"{name:14s} over 5 short: {len(stuck):2d} of {seeds}   median {np.median(short):5.2f}   "
        f"worst {short.max():5.2f}   plays on a wall {np.mean(walls):5.1f}   {seconds:5.2f} s a run"
        + (f"   seeds {stuck.tolist()}" if len(stuck) else ""),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--variants", nargs="*")
    parser.add_argument("--set", choices=list(SETS), default="process")
    arguments = parser.parse_args()
    known = {name: plant for variants in SETS.values() for name, plant in variants.items()}
    for name in arguments.variants or list(SETS[arguments.set]):
        measure(name, known[name], arguments.seeds)


if __name__ == "__main__":
    main()
