"""Columns by name, wherever they come from: frames, Parquet, CSV, JSON lines, lists of dicts."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, needs
from kernel_bandits.logs.log import refuse
from kernel_bandits.tables.rows import as_rows, is_frame
from kernel_bandits.tables.values import is_gap


@dataclass(frozen=True)
class Columns:
    """Columns of equal length: a mapping from names to sequences, or a pandas, polars or pyarrow frame.

    Attributes:
        data: the mapping or the frame.
        names: of the columns.
    """

    data: Any
    names: tuple[str, ...]

    @classmethod
    def of(cls, data: Any) -> Columns:
        """Return the columns of a frame, of rows, or of a mapping from names to sequences."""
        if is_frame(data) and not isinstance(data, np.ndarray):
            names = data.column_names if hasattr(data, "column_names") else data.columns
            return cls(data, tuple(map(str, names)))
        if isinstance(data, Mapping):
            return cls(data, tuple(data))
        rows = as_rows("log", data)
        names = dict.fromkeys(name for row in rows for name in row)
        return cls({name: [row.get(name) for row in rows] for name in names}, tuple(names))

    def __len__(self) -> int:
        return len(self.data) if self.is_frame else len(next(iter(self.data.values()), ()))

    @property
    def is_frame(self) -> bool:
        """Whether the columns are a frame."""
        return not isinstance(self.data, Mapping)

    def get(self, name: str, role: str = "") -> Any:
        """Return a column: an array where all are numbers, and otherwise a list."""
        if name not in self.names:
            hint = f"; name it with {role}=…." if role else "."
            raise InputError(f"{role or name}: expected a column {name!r}, got {', '.join(self.names)}{hint}")
        column = self.data[name]
        if hasattr(column, "null_count") and column.null_count and not hasattr(column, "iloc"):
            return column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
        if hasattr(column, "to_numpy"):
            array = column.to_numpy()
            if array.dtype.kind in "fiub":
                return array
            return column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
        return column

    def table(self, names: Mapping[str, str]) -> Any:
        """Return some columns as a table, under other names."""
        if not self.is_frame:
            rows = zip(*(self.data[name] for name in names), strict=True)
            return [dict(zip(names.values(), row, strict=True)) for row in rows]
        if hasattr(self.data, "rename_columns"):
            return self.data.select(list(names)).rename_columns(list(names.values()))
        part = self.data[list(names)]
        return part.rename(columns=dict(names)) if hasattr(part, "iloc") else part.rename(dict(names))

    def numbers(self, names: Sequence[str]) -> FloatArray | None:
        """Return columns as numbers (n, d); None if one of them has text, dates or gaps."""
        found = [as_numbers(self.get(name)) for name in names]
        if any(column is None or not np.isfinite(column).all() for column in found):
            return None
        return np.column_stack(found) if found else np.empty((len(self), 0))  # type: ignore[arg-type]


def as_numbers(values: Any) -> FloatArray | None:
    """Return a column as numbers, or None if it does not read as such."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if any(is_gap(value) for value in values):
        return None
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.ndim == 1 else None


def numbers(name: str, values: Any) -> FloatArray:
    """Return a column as numbers, or an error that names the row."""
    found = as_numbers(values)
    if found is not None:
        return found
    for row, value in enumerate(values):
        if is_gap(value):
            raise refuse(name, row, "a value", "none")
        try:
            float(value)
        except (TypeError, ValueError):
            raise refuse(name, row, "a number", repr(value)) from None
    raise InputError(f"{name}: expected one number in each row, got {values!r}.")


def lists(name: str, values: Sequence[Any], width: int | None = None) -> FloatArray:
    """Return a column of lists of equal length as numbers (n, k), or an error that names the row."""
    width = np.size(values[0]) if width is None else width
    table = np.empty((len(values), width))
    for row, value in enumerate(values):
        if np.ndim(value) != 1 or len(value) != width:
            raise refuse(name, row, f"a list of {width} numbers", repr(value))
        try:
            table[row] = value
        except (TypeError, ValueError):
            raise refuse(name, row, f"a list of {width} numbers", repr(value)) from None
    return table


def require_plain(name: str, values: Sequence[Any]) -> None:
    """Raise unless every value of a column is one text, one number, or nothing."""
    for row, value in enumerate(values):
        if isinstance(value, Mapping):
            raise refuse(name, row, "a number or a text", repr(value))


def read_parquet(path: Path) -> Columns:
    """Read a Parquet file, or a folder of them."""
    with needs("pyarrow", "kernel-bandits[arrow]"):
        from pyarrow import dataset
    return Columns.of(dataset.dataset(path, format="parquet").to_table())


def read_csv(path: Path) -> Columns:
    """Read a CSV file with a header; cells without text are gaps, and columns of numbers become numbers."""
    # spreadsheets begin a file with a byte order mark, and some end it with an empty line
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if not header:
            raise InputError(f"{path}: expected a line of column names, got an empty file.")
        twice = [name for name in dict.fromkeys(header) if name and header.count(name) > 1]
        if twice:
            raise InputError(f"{path}: expected columns with different names, got {twice[0]!r} twice; rename one.")
        rows: list[list[str]] = []
        for row in filter(None, reader):
            if len(row) != len(header):
                raise refuse("columns", len(rows), f"{len(header)} values", len(row))
            rows.append(row)
    # a column without a name numbers the rows, as pandas writes them
    return Columns.of({name: _parsed([row[place] for row in rows]) for place, name in enumerate(header) if name})


def _parsed(cells: list[str]) -> list[Any]:
    """Return cells as numbers if all but the empty ones are, and otherwise as text; empty ones are gaps."""
    try:
        return [None if cell == "" else float(cell) for cell in cells]
    except ValueError:
        return [None if cell == "" else cell for cell in cells]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read one JSON object per line."""
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as reason:
                raise refuse("line", len(rows), "a JSON object", reason) from reason
            if not isinstance(row, dict):
                raise refuse("line", len(rows), "a JSON object", type(row).__name__)
            rows.append(row)
    return rows


def of_records(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Turn records into columns: lists of numbers as ``name_0``, ``name_1``, …, nested contexts as ``context_key``.

    Probabilities stay lists, since they are one value. A column of a context may have gaps; others are the same in
    every record, where empty values, as the id of a decision without one, are left out.
    """
    flat = [_flat(row) for row in rows]
    shared = [{name for name in row if not name.startswith("context_")} for row in flat]
    for number, names in enumerate(shared):
        if names != shared[0]:
            odd = sorted(names ^ shared[0])
            raise refuse("columns", number, "the same as in row 0", f"a difference in {', '.join(odd)}")
    every = dict.fromkeys(name for row in flat for name in row)
    return Columns.of({name: [row.get(name) for row in flat] for name in every})


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            found |= {f"{name}_{key}": item for key, item in value.items()}
        elif isinstance(value, list) and name != "probabilities":
            found |= {f"{name}_{place}": item for place, item in enumerate(value)}
        else:
            found[name] = value
    return found
