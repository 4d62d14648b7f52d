"""Rows of a table: wherever they come from, and as vectors and back.

Rows are dicts, pandas, polars or pyarrow frames and their rows, NumPy records, named tuples. None of these libraries is
imported: what a value is shows in what it offers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np

from kernel_bandits.arrays import FloatArray, require_finite
from kernel_bandits.errors import InputError, needs
from kernel_bandits.tables.columns import Column, ColumnGroup, Side
from kernel_bandits.tables.values import Level, nearest, shown

Row: TypeAlias = Mapping[str, Any]
# what one row, and several, may be given as; pandas and polars have no types of ours
RowLike: TypeAlias = Any
FrameLike: TypeAlias = Any

_EXPECTED_ROW = "a dict, a row of a pandas or polars frame, or a NumPy record"
_EXPECTED_ROWS = "a pandas or polars frame, a list of dicts, or a NumPy structured array"
# How each library lists the rows of its frames as dicts, in Python's own numbers, which are faster to read one by one.
_FRAMES = {"pandas": ("to_dict", "records"), "polars": ("to_dicts",), "pyarrow": ("to_pylist",)}


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
    if _library(value) == "pandas" and getattr(value, "ndim", 0) == 1:
        return dict(value.items())
    if is_frame(value) or (isinstance(value, (list, np.ndarray)) and len(value) == 1):
        rows = as_rows(place, value)
        if len(rows) == 1:
            return rows[0]
        raise InputError(
            f"{place}: expected one row, got {len(rows)}; pass one at a time, or use the methods for many."
        )
    raise InputError(f"{place}: expected {_EXPECTED_ROW}, got {shown(value)} ({type(value).__name__}).")


def as_rows(place: str, value: FrameLike) -> Sequence[Row]:
    """Return several rows, each as a mapping from column names to values."""
    if type(value) is list and set(map(type, value)) <= {dict}:
        return value
    if isinstance(value, np.ndarray) and value.dtype.names:
        return [{name: record[name] for name in value.dtype.names} for record in value.ravel()]
    if is_frame(value):
        method, *arguments = _FRAMES[_library(value)]
        rows: Sequence[Row] = getattr(value, method)(*arguments)
        return rows
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{place}: expected {_EXPECTED_ROWS}, got {shown(value)} ({type(value).__name__}).")
    return [as_row(f"{place}, row {number}", row) for number, row in enumerate(value)]


def is_frame(value: Any) -> bool:
    """Return whether a value is a whole table: a frame, a pyarrow table or a NumPy structured array."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.names)
    return _library(value) in _FRAMES and hasattr(value, "columns") and not isinstance(value, Mapping)


def _library(value: object) -> str:
    return type(value).__module__.partition(".")[0]


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


def _numbered(place: str, number: int | None) -> str:
    """Return what an error calls a row."""
    return place if number is None else f"{place}, row {number}"


class SideCodec(ABC):
    """Encodes the contexts of a table, or its actions: a value that is replaced as levels are learned.

    What tells arms from described rows has defaults, those of rows.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of columns of an encoded row."""

    @abstractmethod
    def encode(self, rows: Sequence[Any], place: str) -> tuple[FloatArray, bool]:
        """Return vectors (n, width) of rows with what is known now, and whether all are settled for good."""

    @abstractmethod
    def learned(self, row: Any) -> Self:
        """Return the codec that encodes a row, which :meth:`encode` took, for good."""

    @abstractmethod
    def read(self, vector: FloatArray) -> Any:
        """Return what an encoded row stands for, as far as it can be told."""

    @property
    @abstractmethod
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The levels that were found of each column that looks for them."""

    @abstractmethod
    def portable(self, side: Side, shift: int) -> list[dict[str, Any]]:
        """Return the encoding of each column as :meth:`TablePolicy.export` writes it, on columns moved by a shift."""

    def offered(self, offer: Any) -> Sequence[Any]:
        """Return the actions of an offer, one by one; by default rows, which every round describes."""
        if type(offer) is list:
            return offer
        if offer is None:
            raise InputError("actions: expected the rows on offer, got none; every round describes its own actions.")
        if isinstance(offer, Mapping):
            raise InputError(f"actions: expected several rows, got one ({shown(offer)}); write [row, …].")
        return as_rows("actions", offer)

    def name_of(self, action: Any) -> Level | None:
        """Return the name of an action's arm; None where actions are described by features alone."""
        del action
        return None

    def row_of(self, action: Any) -> dict[str, Any]:
        """Return the features of an action as a row, with the name of its arm under ``"arm"`` where it has one."""
        return dict(as_row("action", action))

    @property
    def arms(self) -> tuple[Level, ...]:
        """The arms that are known; none where actions are described by features alone."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class ColumnCodec(SideCodec):
    """Encodes rows column by column.

    Attributes:
        columns: each column with its name, and the columns of an encoded row from which and up to which it is written.
        start: the first column of an encoded row.
    """

    columns: tuple[tuple[str, Column, int, int], ...]
    start: int

    @classmethod
    def of(cls, columns: Mapping[str, Column], start: int = 0) -> ColumnCodec:
        """Return the codec of described columns, whose encoded rows begin at a column."""
        places, position = [], start
        for name, column in columns.items():
            places.append((name, column, position, position + column.width))
            position += column.width
        return cls(tuple(places), start)

    @property
    def width(self) -> int:
        return self.columns[-1][3] - self.start if self.columns else 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of the table."""
        return tuple(name for name, *_ in self.columns)

    def write(self, out: FloatArray, row: RowLike, place: str, number: int | None = None) -> bool:
        """Write a row to zeros; return whether it will be encoded like this for good.

        Args:
            out: to be written to; if the row is refused, what stands in it means nothing.
            row: as it came.
            place: what an error calls the row.
            number: of the row, where there are several.
        """
        if type(row) is not dict:
            row = dict(as_row(_numbered(place, number), row))
        settled, name = True, ""
        try:
            if len(row) != len(self.columns):
                raise KeyError
            for name, column, start, stop in self.columns:
                if not column.write(out, start, stop, row[name]):
                    settled = False
        except (InputError, KeyError) as reason:
            require_columns(_numbered(place, number), row, self.names)
            raise InputError(f"{_numbered(place, number)}, column {name!r}: {reason}") from reason
        return settled

    def encode(self, rows: Sequence[RowLike], place: str) -> tuple[FloatArray, bool]:
        out, settled = np.zeros((len(rows), self.width)), True
        # as many columns as are known, and every known one: no others
        if set(map(type, rows)) == {dict} and set(map(len, rows)) == {len(self.columns)}:
            try:
                for name, column, start, stop in self.columns:
                    settled &= column.write_many(out, start, stop, [row[name] for row in rows])
                return out, settled
            except (InputError, KeyError):
                out[:] = 0.0
        # rows that are no dicts, or have an error to be named
        written = [self.write(vector, row, place, number) for number, (vector, row) in enumerate(zip(out, rows))]  # noqa: B905
        return out, all(written)

    def learned(self, row: RowLike) -> Self:
        row = as_row("row", row)
        columns = tuple((name, column.learned(row[name]), *place) for name, column, *place in self.columns)
        return replace(self, columns=columns)  # type: ignore[arg-type]

    def read(self, vector: FloatArray) -> dict[str, Any]:
        return {name: column.read(vector[start:stop]) for name, column, start, stop in self.columns}

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {name: column.found for name, column, *_ in self.columns if column.found is not None}

    def portable(self, side: Side, shift: int) -> list[dict[str, Any]]:
        nodes = []
        for name, column, start, stop in self.columns:
            gap = None
            if column.missing:
                vector = np.zeros(stop - start)
                column.write_gap(vector, 0, stop - start)
                gap = vector.tolist()
            place = {"name": name, "side": side, "columns": [shift + start, shift + stop]}
            nodes.append(place | column.portable() | {"missing": gap})
        return nodes


@runtime_checkable
class Transformer(Protocol):
    """What is needed of a transformer; scikit-learn's have it once they are fitted."""

    def transform(self, X: Any) -> Any:
        """Turn rows of a table into rows of numbers, dense or sparse."""
        ...

    def get_feature_names_out(self) -> Any:
        """Return the names of the columns that :meth:`transform` returns."""
        ...


def _input_names(transformer: Transformer) -> tuple[str, ...]:
    names = getattr(transformer, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"{type(transformer).__name__}: expected a transformer that was fitted to a frame with column names; call "
            "fit(frame) first."
        )
    return tuple(str(name) for name in names)


def _output_names(transformer: Transformer) -> tuple[str, ...]:
    try:
        return tuple(str(name) for name in transformer.get_feature_names_out())
    except Exception as reason:
        raise InputError(
            f"{type(transformer).__name__}: it does not name its columns ({reason}); fit it first, and give a "
            "FunctionTransformer feature_names_out='one-to-one'."
        ) from reason


def transformer_groups(transformer: Transformer, side: Side) -> tuple[ColumnGroup, ...]:
    """Return one group for neighbouring columns that, by their names, come from one column of the table."""
    inputs = sorted(_input_names(transformer), key=len, reverse=True)
    groups: list[ColumnGroup] = []
    for column in _output_names(transformer):
        # a ColumnTransformer puts the name of the step before the name of the column, and levels behind it
        bare = column.partition("__")[2] or column
        variable = next((name for name in inputs if bare == name or bare.startswith(f"{name}_")), bare)
        if groups and groups[-1].variable == variable:
            groups[-1] = replace(groups[-1], kind="categorical", columns=(*groups[-1].columns, column))
        else:
            name = variable if variable not in [group.name for group in groups] else column
            groups.append(ColumnGroup(name, variable, "numeric", side, (column,)))
    return tuple(groups)


@dataclass(frozen=True, slots=True, eq=False)
class TransformerCodec(SideCodec):
    """Encodes rows by a fitted transformer, which learns nothing more.

    Attributes:
        transformer: takes a pandas frame.
        names: of the columns that it takes.
        outputs: the names of the columns that it returns.
    """

    transformer: Transformer
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, transformer: Transformer) -> TransformerCodec:
        """Return the codec of a fitted transformer."""
        return cls(transformer, _input_names(transformer), _output_names(transformer))

    @property
    def width(self) -> int:
        return len(self.outputs)

    def write(self, out: FloatArray, row: RowLike, place: str, number: int | None = None) -> bool:
        out[:] = self.encode([row], _numbered(place, number), numbered=False)[0][0]
        return True

    def encode(self, rows: Sequence[RowLike], place: str, numbered: bool = True) -> tuple[FloatArray, bool]:
        if not len(rows):
            return np.empty((0, self.width)), True
        with needs("pandas", "kernel-bandits[sklearn]"):
            import pandas as pd
        checked = []
        for number, row in enumerate(rows):
            where = _numbered(place, number if numbered else None)
            checked.append(as_row(where, row))
            require_columns(where, checked[-1], self.names)
        try:
            result = self.transformer.transform(pd.DataFrame(checked, columns=self.names))
            dense = np.asarray(result.toarray() if hasattr(result, "toarray") else result, dtype=np.float64)
        except Exception as reason:
            raise InputError(f"{place}: {type(self.transformer).__name__} refused it ({reason}).") from reason
        if dense.shape != (len(rows), self.width):
            raise InputError(
                f"{place}: {type(self.transformer).__name__} returned shape {dense.shape}, expected "
                f"({len(rows)}, {self.width})."
            )
        require_finite(f"{place}, transformed", dense)
        return dense, True

    def learned(self, row: RowLike) -> Self:
        del row  # a fitted transformer stays as it is
        return self

    def read(self, vector: FloatArray) -> dict[str, Any]:
        return dict(zip(self.outputs, vector[-self.width :].tolist(), strict=True))

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {}

    def portable(self, side: Side, shift: int) -> list[dict[str, Any]]:
        del side, shift
        raise InputError(
            "export: a transformer is code and cannot be written to a file; export the policy over arrays, "
            "policy.inner.export(path), and apply the transformer yourself."
        )


RowCodec: TypeAlias = ColumnCodec | TransformerCodec
