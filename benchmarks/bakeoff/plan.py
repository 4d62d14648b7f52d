"""Which cells there are: tables × entries × settings × shuffles.

A grid is screened on the first shuffles; the settings that did best on a table go on to all of them. The best of those
in hindsight is what counts for a peer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.game import Shape, shape_of
from bakeoff.libraries.base import Entry, Library, Settings, digest
from bakeoff.problem import Problem
from bakeoff.records import Cell, Record


@dataclass(frozen=True)
class Extent:
    """How much is played.

    Attributes:
        horizon: at most this many rows of a table.
        shuffles: this many shuffles of a table.
        large: rows from which a table counts as large.
        shuffles_of_large: at most this many shuffles of a large table.
        screening: shuffles on which every setting of a grid is played.
        finalists: how many settings of a grid go on to the other shuffles.
    """

    horizon: int = 5000
    shuffles: int = 10
    large: int = 5000
    shuffles_of_large: int = 5
    screening: int = 2
    finalists: int = 2

    def seeds(self, rows: int) -> range:
        """Return the shuffles of a table."""
        return range(min(self.shuffles, self.shuffles_of_large) if rows >= self.large else self.shuffles)


QUICK = Extent(horizon=500, shuffles=2, screening=1, finalists=1)


def first_cells(table: str, problem: Problem, library: Library, extent: Extent) -> list[Cell]:
    """Return the cells that are played whatever happens: full grids on the first shuffles, small grids on all."""
    shape, seeds = shape_of(problem, extent.horizon), extent.seeds(problem.rows)[: library.most_shuffles]
    return [
        _cell(table, library, entry, settings, seed, shape)
        for seed in seeds
        for entry in library.entries
        if entry.plays(shape) and (seed < extent.screening or len(entry.grid) <= extent.finalists)
        for settings in entry.grid
    ]


def final_cells(
    table: str, problem: Problem, library: Library, extent: Extent, records: Sequence[Record]
) -> list[Cell]:
    """Return the cells of the finalists on the remaining shuffles, given the records of the screening."""
    shape, seeds = shape_of(problem, extent.horizon), extent.seeds(problem.rows)[: library.most_shuffles]
    chosen = {
        entry.name: finalists(entry, records, extent)
        for entry in library.entries
        if entry.plays(shape) and len(entry.grid) > extent.finalists
    }
    return [
        _cell(table, library, entry, settings, seed, shape)
        for seed in seeds
        if seed >= extent.screening
        for entry in library.entries
        for settings in chosen.get(entry.name, [])
    ]


def finalists(entry: Entry, records: Iterable[Record], extent: Extent) -> list[Settings]:
    """Return the settings of an entry with the largest mean reward over the screening; ties in grid order."""
    rewards: Mapping[str, list[float]] = defaultdict(list)
    for record in records:
        if record.cell.entry == entry.name and record.cell.seed < extent.screening:
            rewards[digest(record.cell.settings)].append(record.reward)
    played = [settings for settings in entry.grid if digest(settings) in rewards]
    means = np.array([np.mean(rewards[digest(settings)]) for settings in played])
    return [played[index] for index in np.argsort(-means, kind="stable")[: extent.finalists]]


def _cell(table: str, library: Library, entry: Entry, settings: Settings, seed: int, shape: Shape) -> Cell:
    return Cell(table, library.module, entry.name, dict(settings), seed, shape.horizon)
