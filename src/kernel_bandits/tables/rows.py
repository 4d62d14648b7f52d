"""Rows of a table: wherever they come from, and as vectors and back.

Rows are dicts, pandas, polars or pyarrow frames and their rows, NumPy records, named tuples. None of these libraries is
imported: what a value is shows in what it offers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np

from kernel_bandits.arrays import FloatArray, require_finite
from kernel_bandits.errors import InputError, needs
from kernel_bandits.tables.columns import Column, ColumnGroup, SideName
from kernel_bandits.tables.values import Level, is_gap, nearest, shown

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
    if type(value) is dict or isinstance(value, Mapping):
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


class Side(ABC):
    """The contexts of a table, or its actions: their encoding, a value that is replaced as levels are learned.

    What tells arms from described rows has defaults, those of rows.
    """

    __slots__ = ()

    @abstractmethod
    def groups(self, side: SideName) -> tuple[ColumnGroup, ...]:
        """Return the groups of columns of an encoded row, in order."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of columns of an encoded row."""

    @abstractmethod
    def encode(self, rows: Sequence[Any], place: str, numbered: bool = True) -> FloatArray:
        """Return vectors (n, width) of rows with what is known now; errors name the place and the number of the row."""

    def learned(self, row: Any, place: str = "row") -> Self:
        """Return the encoding that encodes a row for good as this one does, itself if it does so already.

        An error names the place. A row that is refused by :meth:`encode` alone may pass.
        """
        del row, place  # by default nothing is learned
        return self

    def learned_all(self, rows: Sequence[Any], place: str) -> Self:
        """Return the encoding that encodes all rows for good."""
        known = self
        for number, row in enumerate(rows):
            known = known.learned(row, f"{place}, row {number}")
        return known

    @abstractmethod
    def read(self, vector: FloatArray) -> Any:
        """Return what an encoded row stands for, as far as it can be told."""

    @property
    def described(self) -> Mapping[str, Column]:
        """The columns that are described, by name; none where names alone or a transformer encode."""
        return {}

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The levels that were found of each column that looks for them."""
        return {}

    @abstractmethod
    def portable(self, side: SideName, shift: int) -> list[dict[str, Any]]:
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


@dataclass(frozen=True, slots=True)
class Columns(Side):
    """Rows that are encoded column by column.

    Attributes:
        columns: of the table, by name, with what they have learned.
    """

    columns: Mapping[str, Column]
    # each column with its name, the columns of an encoded row from which and up to which it is written, and its gap
    _places: tuple[tuple[str, Column, int, int, list[float]], ...] = field(init=False, repr=False, compare=False)
    saved: ClassVar[tuple[str, ...]] = ("columns",)

    def __post_init__(self) -> None:
        places, start = [], 0
        for name, column in self.columns.items():
            stop = start + column.width
            places.append((name, column, start, stop, [*[column.gap] * (stop - start - 1), 1.0]))
            start = stop
        object.__setattr__(self, "_places", tuple(places))

    def groups(self, side: SideName) -> tuple[ColumnGroup, ...]:
        return tuple(group for name, column in self.columns.items() for group in column.groups(name, side))

    @property
    def width(self) -> int:
        return self._places[-1][3] if self._places else 0

    def numbers(self, row: RowLike, place: str, number: int | None = None) -> list[float]:
        """Return the numbers of a row, which is one of several if it has a number."""
        if type(row) is not dict:
            row = dict(as_row(_numbered(place, number), row))
        numbers: list[float] = []
        name = ""
        try:
            if len(row) != len(self._places):
                raise KeyError
            for name, column, _, _, gap in self._places:
                value = row[name]
                if not is_gap(value):
                    numbers += column.encode(value)
                    if column.missing:
                        numbers.append(0.0)
                elif column.missing:
                    numbers += gap
                else:
                    raise InputError(
                        "expected a value, got none; describe the column with missing=True if it may be missing."
                    )
        except (InputError, KeyError) as reason:
            require_columns(_numbered(place, number), row, tuple(self.columns))
            raise InputError(f"{_numbered(place, number)}, column {name!r}: {reason}") from reason
        return numbers

    def encode(self, rows: Sequence[RowLike], place: str, numbered: bool = True) -> FloatArray:
        vectors = [self.numbers(row, place, number if numbered else None) for number, row in enumerate(rows)]
        return np.array(vectors).reshape(len(rows), self.width)

    def learned(self, row: RowLike, place: str = "row") -> Self:
        row = as_row(place, row)
        try:
            known = {name: column.learned(row[name]) for name, column in self.columns.items() if name in row}
        except InputError:
            self.numbers(row, place)
            raise
        changed = any(self.columns[name] is not column for name, column in known.items())
        return replace(self, columns={**self.columns, **known}) if changed else self

    def read(self, vector: FloatArray) -> dict[str, Any]:
        return {name: column.read(vector[start:stop]) for name, column, start, stop, _ in self._places}

    @property
    def described(self) -> Mapping[str, Column]:
        return self.columns

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {name: column.found for name, column in self.columns.items() if column.found is not None}

    def portable(self, side: SideName, shift: int) -> list[dict[str, Any]]:
        nodes = []
        for name, column, start, stop, gap in self._places:
            place = {"name": name, "side": side, "columns": [shift + start, shift + stop]}
            nodes.append(place | column.portable() | {"missing": gap if column.missing else None})
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


@dataclass(frozen=True, slots=True, eq=False)
class Transformed(Side):
    """Rows that are encoded by a fitted transformer, which learns nothing more.

    Attributes:
        transformer: takes a pandas frame.
        names: of the columns that it takes.
        outputs: the names of the columns that it returns.
    """

    transformer: Transformer
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def by(cls, transformer: Transformer) -> Self:
        """Return the encoding of a fitted transformer."""
        kind, inputs = type(transformer).__name__, getattr(transformer, "feature_names_in_", None)
        if inputs is None:
            raise InputError(
                f"{kind}: expected a transformer that was fitted to a frame with column names; call fit(frame) first."
            )
        try:
            outputs = tuple(map(str, transformer.get_feature_names_out()))
        except Exception as reason:
            raise InputError(
                f"{kind}: it does not name its columns ({reason}); fit it first, and give a FunctionTransformer "
                "feature_names_out='one-to-one'."
            ) from reason
        return cls(transformer, tuple(map(str, inputs)), outputs)

    def groups(self, side: SideName) -> tuple[ColumnGroup, ...]:
        """Return one group for neighbouring columns that, by their names, come from one column of the table."""
        inputs = sorted(self.names, key=len, reverse=True)
        groups: list[ColumnGroup] = []
        for column in self.outputs:
            # a ColumnTransformer puts the name of the step before the name of the column, and levels behind it
            bare = column.partition("__")[2] or column
            variable = next((name for name in inputs if bare == name or bare.startswith(f"{name}_")), bare)
            if groups and groups[-1].variable == variable:
                groups[-1] = replace(groups[-1], kind="categorical", columns=(*groups[-1].columns, column))
            else:
                name = variable if variable not in [group.name for group in groups] else column
                groups.append(ColumnGroup(name, variable, "numeric", side, (column,)))
        return tuple(groups)

    @property
    def width(self) -> int:
        return len(self.outputs)

    def encode(self, rows: Sequence[RowLike], place: str, numbered: bool = True) -> FloatArray:
        if not len(rows):
            return np.empty((0, self.width))
        with needs("pandas", "kernel-bandits[sklearn]"):
            import pandas as pd
        kind, checked = type(self.transformer).__name__, []
        for number, row in enumerate(rows):
            where = _numbered(place, number if numbered else None)
            checked.append(as_row(where, row))
            require_columns(where, checked[-1], self.names)
        try:
            result = self.transformer.transform(pd.DataFrame(checked, columns=self.names))
            dense = np.asarray(result.toarray() if hasattr(result, "toarray") else result, dtype=np.float64)
        except Exception as reason:
            raise InputError(f"{place}: {kind} refused it ({reason}).") from reason
        expected = (len(rows), self.width)
        if dense.shape != expected:
            raise InputError(f"{place}: {kind} returned shape {dense.shape}, expected {expected}.")
        require_finite(f"{place}, transformed", dense)
        return dense

    def read(self, vector: FloatArray) -> dict[str, Any]:
        return dict(zip(self.outputs, vector.tolist(), strict=True))

    def portable(self, side: SideName, shift: int) -> list[dict[str, Any]]:
        del side, shift
        raise InputError(
            "export: a transformer is code and cannot be written to a file; export the policy over arrays, "
            "policy.inner.export(path), and apply the transformer yourself."
        )
