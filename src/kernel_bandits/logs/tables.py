"""Files as columns: Parquet, CSV and JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, needs
from kernel_bandits.logs.log import refuse

Columns: TypeAlias = Mapping[str, Sequence[Any]]
# A column of text becomes one column per level; more levels than this are rather identifiers.
MOST_LEVELS = 1000


def read_parquet(path: Path) -> Columns:
    """Read a Parquet file, or a folder of them, as columns."""
    with needs("pyarrow", "kernel-bandits[arrow]"):
        from pyarrow import dataset
    table = dataset.dataset(path, format="parquet").to_table()
    columns = {}
    for name in table.column_names:
        column = table[name]
        if column.null_count:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise refuse(name, row, "a value", "none")
        numeric = str(column.type) in ("double", "float") or str(column.type).startswith(("int", "uint"))
        columns[name] = column.to_numpy() if numeric else column.to_pylist()
    return columns


def read_csv(path: Path) -> Columns:
    """Read a CSV file with a header as columns of text."""
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
    return {name: [row[place] for row in rows] for place, name in enumerate(header) if name}


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


def as_columns(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Turn rows into columns: lists of numbers as ``name_0``, ``name_1``, …, and nested objects as ``name_key``.

    Probabilities stay lists, since they are one value. Empty values, as the id of a decision without one, are left out.
    """
    flat = [_flat(row) for row in rows]
    columns: dict[str, list[Any]] = {name: [] for name in flat[0]} if flat else {}
    for number, row in enumerate(flat):
        if row.keys() != columns.keys():
            odd = sorted(row.keys() ^ columns.keys())
            raise refuse("columns", number, "the same as in row 0", f"a difference in {', '.join(odd)}")
        for name, value in row.items():
            columns[name].append(value)
    return columns


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


def numbers(name: str, values: Sequence[Any]) -> FloatArray:
    """Return a column as numbers, or an error that names the row."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        for row, value in enumerate(values):
            try:
                float(value)
            except (TypeError, ValueError):
                raise refuse(name, row, "a number", repr(value)) from None
        raise


def lists(name: str, values: Sequence[Any]) -> FloatArray:
    """Return a column of lists of equal length as numbers (n, k), or an error that names the row."""
    width = np.size(values[0])
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
    """Raise unless every value of a column is one text or one number."""
    for row, value in enumerate(values):
        if isinstance(value, (Mapping, list)):
            raise refuse(name, row, "a number or a text", repr(value))


def is_numeric(values: Sequence[Any]) -> bool:
    """Return whether a column reads as numbers."""
    try:
        np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def encoded(columns: Columns, names: Sequence[str]) -> FloatArray:
    """Return columns as numbers (n, d): those of text with one column per level, in order of first appearance."""
    parts: list[FloatArray] = []
    for name in names:
        values = columns[name]
        if is_numeric(values):
            parts.append(numbers(name, values)[:, None])
            continue
        require_plain(name, values)
        levels = list(dict.fromkeys(values))
        if len(levels) > MOST_LEVELS:
            raise InputError(
                f"{name}: expected at most {MOST_LEVELS} different texts, got {len(levels)}; leave the column out."
            )
        places = {level: place for place, level in enumerate(levels)}
        parts.append(np.eye(len(levels))[[places[value] for value in values]])
    count = len(next(iter(columns.values())))
    return np.hstack(parts) if parts else np.empty((count, 0))
