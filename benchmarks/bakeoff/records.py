"""Cells and their records: one small JSON file per run, complete or absent.

Only the standard library is imported: this module runs in the environment of every peer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.libraries.base import Settings, digest
from bakeoff.problem import write_atomically


@dataclass(frozen=True)
class Cell:
    """One run to be played.

    Attributes:
        table: its name.
        library: the module that describes the library.
        entry: the name of the algorithm.
        settings: one point of its grid.
        seed: of the shuffle and of the player.
        horizon: T, the number of rows played.
    """

    table: str
    library: str
    entry: str
    settings: Settings
    seed: int
    horizon: int

    @property
    def path(self) -> Path:
        """The file of the record, relative to the folder of records."""
        entry = re.sub(r"[^a-z0-9]+", "_", self.entry.lower()).strip("_")
        return Path(self.table) / self.library / f"{entry}-{digest(self.settings)}-{self.horizon}-{self.seed}.json"


@dataclass(frozen=True)
class Record:
    """What is kept of a run.

    Attributes:
        cell: what was played.
        rounds: how many rows counted.
        reward: the mean reward of these rounds.
        seconds: processor time of choosing and learning.
        megabytes: growth of the process's memory while it played.
        curve: rounds and mean reward so far.
        facts: versions of packages, and of our own sources.
    """

    cell: Cell
    rounds: int
    reward: float
    seconds: float
    megabytes: float
    curve: list[list[float]] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        """Time per row: in a replayed log a player decides in every row."""
        return 1000 * self.seconds / self.cell.horizon


def write_record(folder: Path, record: Record) -> None:
    """Write a record under the path of its cell."""
    content = asdict(record) | {"cell": {**asdict(record.cell), "settings": dict(record.cell.settings)}}
    write_atomically(folder / record.cell.path, json.dumps(content, sort_keys=True).encode())


def read_record(path: Path) -> Record:
    """Read a record."""
    return record_of(json.loads(path.read_text()))


def record_of(content: dict[str, Any]) -> Record:
    """Return the record that a file holds."""
    return Record(**{**content, "cell": Cell(**content["cell"])})


def read_records(folder: Path, cells: Iterable[Cell]) -> Iterator[Record]:
    """Read the records of the cells that have one."""
    for cell in cells:
        path = folder / cell.path
        if path.exists():
            yield read_record(path)
