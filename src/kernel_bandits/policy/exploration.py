"""The exploration floor: uniform play mixed into a rule, with known probabilities."""

from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.rng import Seed, reseeded, stream


@dataclass(slots=True)
class Exploration:
    """Uniform play mixed into any rule.

    Attributes:
        floor: ε; every one of A offered actions has a probability of at least ε/A. 0 changes nothing.
        generator: of the draws.
    """

    floor: float
    generator: np.random.Generator

    def mixed(self, probabilities: FloatArray) -> FloatArray:
        """Return (1 − ε)·p + ε/A, shape (A,), or (n, A) for n rounds."""
        return (1.0 - self.floor) * probabilities + self.floor / probabilities.shape[-1]

    def draw(self, row: int, count: int) -> int:
        """Return the given row with probability 1 − ε, otherwise any of ``count`` rows."""
        if self.floor and self.generator.random() < self.floor:
            return int(self.generator.integers(count))
        return row

    def on_reseed(self, entropy: int) -> None:
        """Restart the stream of the draws."""
        self.generator.bit_generator.state = reseeded(self.generator, entropy).bit_generator.state


def as_exploration(floor: float, seed: Seed) -> Exploration | None:
    """Return what an ``exploration_floor=`` argument asks for; None for 0."""
    checked = as_floor(floor)
    return Exploration(checked, stream(seed, "exploration")) if checked else None


def as_floor(floor: float) -> float:
    """Return an exploration floor as a plain number."""
    if isinstance(floor, bool) or not (isinstance(floor, (int, float, np.number)) and 0.0 <= floor <= 1.0):
        raise InputError(f"exploration_floor: expected a probability from 0 to 1, got {floor!r}.")
    return float(floor)


def floor_words(exploration: Exploration | None) -> str:
    """Return how a rule's representation names its floor."""
    return "" if exploration is None or not exploration.floor else f", exploration_floor={exploration.floor:g}"
