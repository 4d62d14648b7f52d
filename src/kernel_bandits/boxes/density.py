"""Densities over a box that are known exactly: cells of equal size, and a neighbourhood of one action.

Coordinates are fractions of the box, one for each setting. Densities are per unit of the columns of settings that are
numbers, and per level or whole number of the others; settings without a width count as fixed, and so do those that a
limit gives.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernel_bandits.actions import Box, Choice
from kernel_bandits.arrays import FloatArray
from kernel_bandits.rng import draw_row

# Cells of a box, about; a coordinate is divided into as many parts as leave that many cells in all.
CELLS = 256
# The action that a rule likes best is played within this share of the box to either side of it.
HALF_WIDTH = 0.01


def divisions(box: Box) -> tuple[int, ...]:
    """Return into how many parts each setting is divided: 1 where it is fixed, or where cells would be too many.

    Each level of a choice is a cell of its own; whole numbers are not divided.
    """
    levels = np.array([len(one.levels) if isinstance(one, Choice) else 1 for one in box.settings])
    left = max(1, CELLS // int(levels.prod()))
    free, most = np.flatnonzero(box.free & ~box.is_counted), int(np.log2(left))
    parts = levels.copy()
    if len(free) and most:
        parts[free[:most]] = max(2, int(left ** (1.0 / len(free)) + 1e-9))
    return tuple(parts.tolist())


@lru_cache(maxsize=32)
def centres(parts: tuple[int, ...]) -> FloatArray:
    """Return the centres of the cells, as fractions, shape (n, d_a); the last coordinate runs fastest."""
    grid = np.meshgrid(*((np.arange(count) + 0.5) / count for count in parts), indexing="ij")
    points = np.stack([axis.ravel() for axis in grid], axis=1)
    points.setflags(write=False)
    return points


@dataclass(frozen=True, slots=True)
class BoxDensity:
    """A mixture of uniform densities: one per cell, and one around a peak.

    Attributes:
        box: the box.
        cells: the probability of each cell of :func:`divisions`, shape (n,).
        peak: the fractions of the action that the rule likes best, shape (k,); unused if its probability is 0.
        peak_probability: the probability of its neighbourhood; 1 together with the cells.
    """

    box: Box
    cells: FloatArray
    peak: FloatArray
    peak_probability: float

    @classmethod
    def around(cls, box: Box, action: FloatArray, floor: float) -> "BoxDensity":
        """Return the neighbourhood of an action mixed with uniform play of probability ``floor``."""
        count = len(centres(divisions(box)))
        return cls(box, np.full(count, floor / count), box.fractions(action[None, :])[0], 1.0 - floor)

    def draw(self, generator: np.random.Generator) -> FloatArray:
        """Return an action of the box, shape (d_a,)."""
        row = draw_row(np.append(self.cells, self.peak_probability), generator)
        place = generator.random(len(self.box.settings))
        if row < len(self.cells):
            parts = divisions(self.box)
            fractions = centres(parts)[row] + (place - 0.5) / np.array(parts)
        else:
            low, high = self._neighbourhood()
            fractions = low + place * (high - low)
        return self.box.at(np.clip(fractions, 0.0, 1.0)[None, :])[0]

    def __call__(self, actions: FloatArray) -> FloatArray:
        """Return the density at actions (n, d_a) of the box, shape (n,)."""
        fractions = self.box.fractions(actions)
        parts = np.array(divisions(self.box))
        cell = np.minimum((fractions * parts).astype(int), parts - 1)
        row = np.ravel_multi_index(tuple(cell.T), tuple(parts.tolist()))
        low, high = self._neighbourhood()
        free = self.box.free
        inside = ((fractions >= low) & (fractions <= high))[:, free].all(axis=1)
        share = float(np.prod((high - low)[free]))
        in_cells = self.cells[row] * len(self.cells)
        return (in_cells + self.peak_probability * inside / share) / self.box.volumes(fractions)

    def _neighbourhood(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the peak's neighbourhood: a level or a whole number as such, else a share of the box."""
        low, high = (ends[0] for ends in self.box.alike(self.peak[None, :]))
        half = np.where(self.box.is_counted, 0.0, HALF_WIDTH)
        return np.maximum(low - half, 0.0), np.minimum(high + half, 1.0)
