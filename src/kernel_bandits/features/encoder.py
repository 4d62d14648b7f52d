"""Rows of one side to vectors and back, with what was learned on the way."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.features.cells import CategoricalCell, Cell, NumericCell
from kernel_bandits.features.columns import Column
from kernel_bandits.features.layout import ColumnGroup, Side
from kernel_bandits.features.rows import Row, RowLike, as_row, require_columns
from kernel_bandits.features.values import LARGEST, Level

_DICTS, _NUMBERS = {dict}, {float, int}
# Rows from which on all columns of numbers are written together.
FEWEST_TOGETHER = 4


def numbered(place: str, number: int | None) -> str:
    """Return what an error calls a row."""
    return place if number is None else f"{place}, row {number}"


class _LinearColumns(NamedTuple):
    """The columns of numbers that are encoded by their difference from a known origin.

    Attributes:
        getter: returns their values in a row.
        columns: of an encoded row that they are written to.
        origins: what they are counted from.
        lengths: that they are divided by.
        others: the cells of all other columns.
    """

    getter: Callable[[Row], tuple[Any, ...]]
    columns: list[int]
    origins: FloatArray
    lengths: FloatArray
    others: tuple[tuple[str, Cell], ...]


# The encoder itself holds what is saved with a policy, and nothing else.
@lru_cache(maxsize=256)
def _linear_columns(cells: tuple[tuple[str, Cell], ...]) -> _LinearColumns | None:
    """Return the columns that are written together; None if these are fewer than two."""
    linear = {name: cell for name, cell in cells if isinstance(cell, NumericCell) and cell.is_linear}
    if len(linear) < 2:
        return None
    found = [(one.start, one.origin, one.length) for one in linear.values()]
    columns, origins, lengths = (list(values) for values in zip(*found, strict=True))
    others = tuple(one for one in cells if one[0] not in linear)
    return _LinearColumns(itemgetter(*linear), columns, np.array(origins), np.array(lengths), others)


class RowEncoder(ABC):
    """Encodes rows of one side. What it learns never changes the encoding of a row that was learned before.

    Attributes:
        width: the number of columns of an encoded row.
    """

    width: int

    @abstractmethod
    def write(self, out: FloatArray, row: RowLike, place: str, number: int | None = None) -> bool:
        """Write a row to zeros of shape (width,); whether it will be encoded like this for good.

        Args:
            out: to be written to; if the row is refused, what stands in it means nothing.
            row: as it came.
            place: what an error calls the row.
            number: of the row, where there are several.
        """

    @abstractmethod
    def encode(self, rows: Sequence[RowLike], place: str) -> tuple[FloatArray, bool]:
        """Return vectors (n, width) of rows with what is known now, and whether all are settled."""

    @abstractmethod
    def learn(self, row: RowLike) -> None:
        """Settle the encoding of a row that :meth:`write` took."""

    @abstractmethod
    def read(self, vector: FloatArray) -> dict[str, Any]:
        """Return the row that an encoded row stands for, as far as it can be told."""

    @abstractmethod
    def copy(self) -> RowEncoder:
        """Return an encoder that learns apart from this one."""

    @property
    @abstractmethod
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The levels that were met of each column that finds them on the way."""


class ColumnEncoder(RowEncoder):
    """Encodes rows column by column.

    Args:
        columns: what each of them is, by name.
        start: the column of an encoded row to begin at.
    """

    def __init__(self, columns: Mapping[str, Column], start: int = 0) -> None:
        self.names = tuple(columns)
        cells: list[tuple[str, Cell]] = []
        position = start
        for name, column in columns.items():
            cells.append((name, column.cell(position)))
            position += cells[-1][1].width
        self.width = position - start
        self.cells = tuple(cells)

    def write(self, out: FloatArray, row: RowLike, place: str, number: int | None = None) -> bool:
        if type(row) is not dict:
            row = dict(as_row(numbered(place, number), row))
        settled, name = True, ""
        try:
            if len(row) != len(self.cells):
                raise KeyError
            for name, cell in self.cells:
                if not cell.write(out, row[name]):
                    settled = False
        except (InputError, KeyError) as reason:
            require_columns(numbered(place, number), row, self.names)
            raise InputError(f"{numbered(place, number)}, column {name!r}: {reason}") from reason
        return settled

    def encode(self, rows: Sequence[RowLike], place: str) -> tuple[FloatArray, bool]:
        # as many columns as are known, and every known one: no others
        if set(map(type, rows)) != _DICTS or set(map(len, rows)) != {len(self.cells)}:
            return self._encode_with_care(rows, place)
        out, settled = np.zeros((len(rows), self.width)), True
        try:
            for name, cell in self._write_numbers(out, rows):
                if not cell.write_column(out, rows, name):
                    settled = False
        except (InputError, KeyError):
            return self._encode_with_care(rows, place)
        return out, settled

    def _write_numbers(self, out: FloatArray, rows: Sequence[Row]) -> Sequence[tuple[str, Cell]]:
        """Write all columns of numbers at once if there are no gaps; return the cells that are left to be written."""
        linear = _linear_columns(self.cells) if len(rows) >= FEWEST_TOGETHER else None
        if linear is None:
            return self.cells
        values = list(chain.from_iterable(map(linear.getter, rows)))
        if not set(map(type, values)) <= _NUMBERS:
            return self.cells
        try:
            # a third of the time that NumPy takes to look at each number
            packed = struct.pack(f"{len(values)}d", *values)
        except struct.error:
            # a whole number too large for a float
            return self.cells
        numbers = np.frombuffer(packed).reshape(len(rows), -1)
        if not (np.abs(numbers) <= LARGEST).all():
            return self.cells
        out[:, linear.columns] = (numbers - linear.origins) / linear.lengths
        return linear.others

    def _encode_with_care(self, rows: Sequence[RowLike], place: str) -> tuple[FloatArray, bool]:
        """Encode rows that are no dicts, or have an error to be named."""
        out = np.zeros((len(rows), self.width))
        settled = [self.write(out[number], row, place, number) for number, row in enumerate(rows)]
        return out, all(settled)

    def learn(self, row: RowLike) -> None:
        row = as_row("row", row)
        for name, cell in self.cells:
            cell.learn(row[name])

    def read(self, vector: FloatArray) -> dict[str, Any]:
        return {name: cell.read(vector) for name, cell in self.cells}

    def copy(self) -> ColumnEncoder:
        twin = object.__new__(ColumnEncoder)
        twin.__dict__.update(self.__dict__)
        twin.cells = tuple((name, cell.copy()) for name, cell in self.cells)
        return twin

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {name: cell.codebook.levels for name, cell in self.cells if isinstance(cell, CategoricalCell)}


def groups_of(columns: Mapping[str, Column], side: Side) -> tuple[ColumnGroup, ...]:
    """Return the groups that columns are encoded by, in order."""
    return tuple(group for name, column in columns.items() for group in column.groups(name, side))


def as_columns(name: str, value: Mapping[Any, Any]) -> dict[str, Column]:
    """Return a description of columns, checked."""
    columns: dict[str, Column] = {}
    for variable, column in value.items():
        if not isinstance(variable, str) or not variable:
            raise InputError(f"{name}: expected the name of a column, got {variable!r}; names are text.")
        if isinstance(column, type) and issubclass(column, Column):
            raise InputError(f"{name}: expected {column.__name__}(), an instance, for column {variable!r}.")
        if not isinstance(column, Column):
            raise InputError(
                f"{name}: expected a description such as kb.Numeric() for column {variable!r}, got {column!r}."
            )
        columns[variable] = column
    return columns
