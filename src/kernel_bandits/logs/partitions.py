"""Datasets larger than memory, part by part: Parquet files and Dask DataFrames, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernel_bandits.arrays import LARGEST_REWARD, FloatArray
from kernel_bandits.errors import InputError, needs
from kernel_bandits.logs.columns import Columns
from kernel_bandits.logs.log import refuse
from kernel_bandits.posterior.basis import AnchorBasis
from kernel_bandits.posterior.sums import Sums, sums_of

# Rows that are read at once.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Layout:
    """Which columns of a dataset are what.

    Attributes:
        context: the columns of the context.
        action: the columns of the action.
        reward: the column of the reward.
    """

    context: tuple[str, ...]
    action: tuple[str, ...]
    reward: str

    @property
    def columns(self) -> list[str]:
        """All of them, in this order."""
        return [*self.context, *self.action, self.reward]

    @classmethod
    def of(
        cls, names: Sequence[str], context: Sequence[str] | None, action: Sequence[str] | None, reward: str
    ) -> Layout:
        """Return the layout of a dataset with these columns; by default ``context_…`` and ``action_0``, ….."""
        if context is None:
            context = [name for name in names if name.startswith("context_")]
        if action is None:
            action = [name for name in names if name.removeprefix("action_").isdigit()]
        layout = cls(tuple(context), tuple(action), reward)
        missing = [name for name in layout.columns if name not in names]
        if missing or not action:
            wanted = missing[0] if missing else "action_0"
            raise InputError(f"dataset: expected a column {wanted!r}, got {', '.join(names)}; name the columns.")
        return layout

    def split(self, table: FloatArray, part: str, start: int) -> tuple[FloatArray, FloatArray]:
        """Return joint points and rewards of rows in the order of :attr:`columns`, or an error that names the row."""
        sound = np.isfinite(table).all(axis=1) & (np.abs(table[:, -1]) <= LARGEST_REWARD)
        if not sound.all():
            row = int(np.flatnonzero(~sound)[0])
            raise refuse(f"{part}, values", start + row, "finite numbers", table[row].tolist())
        return np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1])


@dataclass(frozen=True)
class ParquetPart:
    """One row group of a Parquet file."""

    path: str
    group: int
    rows: int

    @property
    def name(self) -> str:
        """What an error calls it."""
        return f"{Path(self.path).name}, row group {self.group}"

    def columns(self) -> Columns:
        """Return all columns."""
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            return Columns.of(file.read_row_group(self.group))

    def batches(self, layout: Layout) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield points and rewards, a batch at a time."""
        from pyarrow import parquet

        start = 0
        with parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[self.group], columns=layout.columns):
                table = np.empty((batch.num_rows, len(layout.columns)))
                for place, name in enumerate(layout.columns):
                    # gaps become NaN, which the layout refuses
                    table[:, place] = batch.column(name).to_numpy(zero_copy_only=False)
                yield layout.split(table, self.name, start)
                start += batch.num_rows


@dataclass(frozen=True)
class FramePart:
    """One partition of a DataFrame, as pandas holds it."""

    frame: Any
    number: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.frame)

    @property
    def name(self) -> str:
        """What an error calls it."""
        return f"partition {self.number}"

    def columns(self) -> Columns:
        """Return all columns."""
        return Columns.of(self.frame)

    def batches(self, layout: Layout) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield points and rewards, a batch at a time."""
        for start in range(0, len(self.frame), BATCH_ROWS):
            rows = self.frame.iloc[start : start + BATCH_ROWS]
            yield layout.split(rows[layout.columns].to_numpy(dtype=np.float64), self.name, start)


def part_sums(part: ParquetPart | FramePart, basis: AnchorBasis, layout: Layout) -> Sums:
    """Return the sums of a part; runs wherever the part is."""
    width = len(layout.columns) - 1
    total = Sums(np.zeros((len(basis), len(basis))), np.zeros(len(basis)), 0.0, 0, np.empty((0, width)), np.empty(0))
    for points, rewards in part.batches(layout):
        total = total + sums_of(basis, points, rewards)
    return total


def part_sample(part: ParquetPart | FramePart, layout: Layout, count: int, seed: int) -> tuple[FloatArray, int]:
    """Return at most ``count`` points of the first batch of a part, drawn at random, and the number of its rows."""
    points, _ = next(part.batches(layout), (np.empty((0, len(layout.columns) - 1)), np.empty(0)))
    rows = np.random.default_rng(seed).permutation(len(points))[:count]
    return points[np.sort(rows)], part.rows


def parquet_parts(path: str | Path) -> tuple[list[ParquetPart], list[str]]:
    """Return the row groups of a Parquet file or of a folder of them, in order of their names, and the columns."""
    with needs("pyarrow", "kernel-bandits[arrow]"):
        from pyarrow import dataset, parquet
    if not Path(path).exists():
        raise InputError(f"dataset: {path} does not exist.")
    found = dataset.dataset(path, format="parquet")
    files = sorted(found.files)
    parts = []
    for file in files:
        metadata = parquet.ParquetFile(file).metadata
        name = str(Path(file).resolve())
        parts += [
            ParquetPart(name, group, metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)
        ]
    if not parts:
        raise InputError(f"dataset: {path} holds no rows.")
    return parts, list(found.schema.names)


def frame_parts(frame: Any, client: Any) -> list[Any]:
    """Return the partitions of a Dask DataFrame, each as a future :class:`FramePart`."""
    if not hasattr(frame, "to_delayed"):
        raise InputError(f"dataset: expected a path or a Dask DataFrame, got {type(frame).__name__}.")
    if client is None:
        raise InputError("client: expected the Dask client whose workers hold the DataFrame, got none.")
    delayed = client.compute(list(frame.to_delayed()))
    return [client.submit(FramePart, part, number, pure=False) for number, part in enumerate(delayed)]


def here(function: Callable[..., Any], parts: Sequence[Any], *arguments: Any) -> Iterator[Any]:
    """Apply a function to parts one after the other."""
    return (function(part, *arguments) for part in parts)


def on_cluster(client: Any) -> Callable[..., Iterator[Any]]:
    """Return a function like :func:`here` on the workers of a Dask client, with results in the order of the parts.

    What a killed worker had in hand is computed again by another.
    """

    def apply(function: Callable[..., Any], parts: Sequence[Any], *arguments: Any) -> Iterator[Any]:
        shared = [client.scatter(argument, broadcast=True, hash=False) for argument in arguments]
        futures = [client.submit(function, part, *shared, pure=False) for part in parts]
        for place, future in enumerate(futures):
            yield future.result()
            # the sums of a part are not kept once they are added
            futures[place] = None

    return apply
