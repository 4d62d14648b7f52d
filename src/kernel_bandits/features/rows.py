"""Rows of a table, wherever they come from: dicts, pandas, polars, pyarrow, NumPy records, named tuples.

Nothing is imported: what a value is shows in what it offers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.errors import InputError
from kernel_bandits.features.values import nearest, shown

Row: TypeAlias = Mapping[str, Any]
# what one row, and several, may be given as; pandas and polars have no types of ours
RowLike: TypeAlias = Any
FrameLike: TypeAlias = Any

_DICTS = {dict}
_EXPECTED_ROW = "a dict, a row of a pandas or polars frame, or a NumPy record"
_EXPECTED_ROWS = "a pandas or polars frame, a list of dicts, or a NumPy structured array"


def as_row(place: str, value: RowLike) -> Row:
    """Return one row as a mapping from column names to values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, np.void) and value.dtype.names:
        return {name: value[name] for name in value.dtype.names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        row: dict[str, Any] = value._asdict()
        # what pandas calls the index when it lists rows as tuples
        row.pop("Index", None)
        return row
    if type(value).__module__.partition(".")[0] == "pandas" and getattr(value, "ndim", 0) == 1:
        return dict(value.items())
    if is_frame(value) or (isinstance(value, (list, np.ndarray)) and len(value) == 1):
        rows = as_rows(place, value)
        if len(rows) == 1:
            return rows[0]
        raise InputError(
            f"{place}: expected one row, got {len(rows)}; pass one at a time, or use the methods for many."
        )
    raise InputError(f"{place}: expected {_EXPECTED_ROW}, got {shown(value)} ({type(value).__name__}).")


def is_frame(value: Any) -> bool:
    """Return whether a value is a whole table: a frame, a pyarrow table or a NumPy structured array."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.names)
    module = type(value).__module__.partition(".")[0]
    return module in ("pandas", "polars", "pyarrow") and hasattr(value, "columns") and not isinstance(value, Mapping)


def as_rows(place: str, value: FrameLike) -> Sequence[Row]:
    """Return several rows, each as a mapping from column names to values."""
    if type(value) is list and set(map(type, value)) <= _DICTS:
        return value
    if isinstance(value, np.ndarray) and value.dtype.names:
        return [{name: record[name] for name in value.dtype.names} for record in value.ravel()]
    if is_frame(value):
        module = type(value).__module__.partition(".")[0]
        if module == "pandas":
            # to_dict turns columns of NumPy numbers into Python's, which are faster to read one by one
            return value.to_dict("records")
        return value.to_dicts() if module == "polars" else value.to_pylist()
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{place}: expected {_EXPECTED_ROWS}, got {shown(value)} ({type(value).__name__}).")
    return [as_row(f"{place}, row {number}", row) for number, row in enumerate(value)]


def require_columns(place: str, row: Row, names: Sequence[str]) -> None:
    """Raise unless a row has exactly the columns of these names; the error names one and the closest known one."""
    for name in row:
        if name not in names:
            raise InputError(
                f"{place}: unknown column {shown(name)}"
                f"{nearest(name, [n for n in names if n not in row]) or '; leave it out, or describe it.'} "
                f"Expected {', '.join(names) or 'no columns'}."
            )
    for name in names:
        if name not in row:
            raise InputError(
                f"{place}: column {name!r} is missing; give it a value, or None if it is described with missing=True."
            )
