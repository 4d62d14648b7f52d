"""One cell of a table at a time: how its value is written into an encoded row, and read back from it.

A cell knows its columns of the row. What it has learned (levels, the origin of a column with gaps) changes only in
:meth:`Cell.learn`, and never what a value that was learned before is written as.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.features.codebook import Codebook
from kernel_bandits.features.rows import Row
from kernel_bandits.features.values import (
    LARGEST,
    Level,
    flag_of,
    level_of,
    moment_at,
    moment_of,
    nearest,
    number_of,
    seconds_of,
    shown,
    unit_vector_of,
    years_of,
)

_TURN = 2.0 * math.pi
_DAY = 86400.0


class Cell(ABC):
    """The columns of a row that encode one variable.

    Args:
        start: the first of them.
        width: how many there are; the last one is the flag of a gap, where ``missing`` says that there may be gaps.
        missing: whether a gap has an encoding.
    """

    def __init__(self, start: int, width: int, missing: bool) -> None:
        self.start, self.width, self.missing = start, width, missing
        self.flag = start + width - 1

    @abstractmethod
    def write(self, out: FloatArray, value: Any) -> bool:
        """Write a value to a row of zeros; whether it will be written like this for good.

        Raises:
            InputError: that says what was expected instead of the value.
        """

    def write_column(self, out: FloatArray, rows: Sequence[Row], name: str) -> bool:
        """Write the values of a column to zeros (n, width of a row), as :meth:`write` does; whether all stay so."""
        # iterating over an array makes its rows faster than indexing does
        settled = [self.write(vector, row[name]) for vector, row in zip(out, rows, strict=True)]
        return all(settled)

    @abstractmethod
    def read(self, row: FloatArray) -> Any:
        """Return the value that an encoded row stands for; None for a gap, and where it cannot be told."""

    def learn(self, value: Any) -> None:  # noqa: B027 (most cells have nothing to learn)
        """Settle the encoding of a value that :meth:`write` took."""

    def copy(self) -> Cell:
        """Return a cell that learns apart from this one."""
        return self

    def _write_gap(self, out: FloatArray) -> bool:
        if not self.missing:
            raise InputError("expected a value, got none; describe the column with missing=True if it may be missing.")
        out[self.flag] = 1.0
        return True

    def _is_gap(self, row: FloatArray) -> bool:
        return self.missing and row[self.flag] == 1.0


class NumericCell(Cell):
    """(y − low)/(high − low), where y is the number or its logarithm; without a range y itself.

    A gap is the middle of the range. Without one, numbers are counted from the first that was learned, and a gap is 0.
    """

    def __init__(self, start: int, limits: tuple[float, float] | None, logarithm: bool, missing: bool) -> None:
        super().__init__(start, 1 + missing, missing)
        self.logarithm = logarithm
        low, high = (0.0, 1.0) if limits is None else limits
        if logarithm and limits is not None:
            low, high = math.log(low), math.log(high)
        self.length = high - low
        self.neutral = 0.0 if limits is None else 0.5
        # what y is counted from; None until the first number of a column with gaps is learned
        self.origin: float | None = None if missing and limits is None else low

    @property
    def is_linear(self) -> bool:
        """Whether a number is encoded by its difference from a known origin."""
        return self.origin is not None and not self.logarithm

    def _number(self, value: Any) -> float:
        """Return y, NaN for a gap."""
        number = number_of(value)
        if self.logarithm and number == number:
            if number <= 0.0:
                raise InputError(f"expected a number above 0, whose logarithm is taken, got {number:g}.")
            return math.log(number)
        return number

    def write(self, out: FloatArray, value: Any) -> bool:
        # the common cases, without a call
        if type(value) is float and -LARGEST <= value <= LARGEST and (value > 0.0 or not self.logarithm):
            number = math.log(value) if self.logarithm else value
        else:
            number = self._number(value)
        if number != number:
            out[self.start] = self.neutral
            return self._write_gap(out)
        if self.origin is None:
            return False
        out[self.start] = (number - self.origin) / self.length
        return True

    def write_column(self, out: FloatArray, rows: Sequence[Row], name: str) -> bool:
        low, length, most = self.origin, self.length, LARGEST
        if low is not None and not self.logarithm:
            numbers = [(v - low) / length for row in rows if type(v := row[name]) is float and -most <= v <= most]
            if len(numbers) == len(rows):
                out[:, self.start] = numbers
                return True
        return super().write_column(out, rows, name)

    def learn(self, value: Any) -> None:
        if self.origin is None:
            number = self._number(value)
            self.origin = None if number != number else number

    def read(self, row: FloatArray) -> float | None:
        if self._is_gap(row):
            return None
        number = float(row[self.start]) * self.length + (self.origin or 0.0)
        return math.exp(number) if self.logarithm else number

    def copy(self) -> Cell:
        if self.origin is not None:
            return self
        twin = object.__new__(NumericCell)
        twin.__dict__.update(self.__dict__)
        return twin


class OrderedCell(Cell):
    """The place of a level from 0 to 1, in equal steps; a gap is ½."""

    def __init__(self, start: int, levels: Sequence[Level], missing: bool) -> None:
        super().__init__(start, 1 + missing, missing)
        steps = max(len(levels) - 1, 1)
        self.places = {level: place / steps for place, level in enumerate(levels)}

    def write(self, out: FloatArray, value: Any) -> bool:
        level = level_of(value)
        if level is None:
            out[self.start] = 0.5
            return self._write_gap(out)
        place = self.places.get(level)
        if place is None:
            levels = ", ".join(shown(known) for known in self.places)
            raise InputError(f"expected one of {levels}, got {shown(level)}{nearest(level, self.places)}")
        out[self.start] = place
        return True

    def read(self, row: FloatArray) -> Level | None:
        if self._is_gap(row):
            return None
        return min(self.places, key=lambda level: abs(self.places[level] - float(row[self.start])))


class CategoricalCell(Cell):
    """The vector of a level in a codebook that learns; a gap has a column of its own, as one more level."""

    def __init__(self, start: int, codebook: Codebook, missing: bool) -> None:
        super().__init__(start, codebook.capacity + missing, missing)
        self.codebook = codebook

    def write(self, out: FloatArray, value: Any) -> bool:
        level = level_of(value)
        return self._write_gap(out) if level is None else self.codebook.write(out, self.start, level)

    def learn(self, value: Any) -> None:
        level = level_of(value)
        if level is not None:
            self.codebook.learn(level)

    def read(self, row: FloatArray) -> Level | None:
        if self._is_gap(row):
            return None
        return self.codebook.read(row[self.start : self.start + self.codebook.capacity])

    def copy(self) -> Cell:
        return CategoricalCell(self.start, self.codebook.copy(), self.missing)


class GivenLevelsCell(Cell):
    """One column for each of the given levels and one for all others; a gap has a column of its own."""

    def __init__(self, start: int, levels: Sequence[Level], missing: bool) -> None:
        super().__init__(start, len(levels) + 1 + missing, missing)
        self.columns = {level: start + place for place, level in enumerate(levels)}
        self.other = start + len(levels)

    def write(self, out: FloatArray, value: Any) -> bool:
        level = value if type(value) is str else level_of(value)
        if level is None:
            return self._write_gap(out)
        out[self.columns.get(level, self.other)] = 1.0
        return True

    def write_column(self, out: FloatArray, rows: Sequence[Row], name: str) -> bool:
        place_of, other, width = self.columns.get, self.other, out.shape[1]
        places = [number * width + place_of(v, other) for number, row in enumerate(rows) if type(v := row[name]) is str]
        if len(places) == len(rows):
            out.put(places, 1.0)
            return True
        return super().write_column(out, rows, name)

    def read(self, row: FloatArray) -> Level | None:
        return next((level for level, column in self.columns.items() if row[column] == 1.0), None)


class BooleanCell(Cell):
    """0 or 1; a gap is ½."""

    def __init__(self, start: int, missing: bool) -> None:
        super().__init__(start, 1 + missing, missing)

    def write(self, out: FloatArray, value: Any) -> bool:
        flag = flag_of(value)
        if flag != flag:
            out[self.start] = 0.5
            return self._write_gap(out)
        out[self.start] = flag
        return True

    def read(self, row: FloatArray) -> bool | None:
        return None if self._is_gap(row) else bool(row[self.start] >= 0.5)


class CyclicCell(Cell):
    """Sine and cosine of the phase 2π·value/period; a gap is the centre of the circle."""

    def __init__(self, start: int, period: float, missing: bool) -> None:
        super().__init__(start, 2 + missing, missing)
        self.period = period

    def write(self, out: FloatArray, value: Any) -> bool:
        number = value if type(value) is float and -LARGEST <= value <= LARGEST else number_of(value)
        if number != number:
            return self._write_gap(out)
        phase = _TURN * (number % self.period) / self.period
        out[self.start] = math.sin(phase)
        out[self.start + 1] = math.cos(phase)
        return True

    def read(self, row: FloatArray) -> float | None:
        if self._is_gap(row):
            return None
        turns = math.atan2(float(row[self.start]), float(row[self.start + 1])) / _TURN
        return (turns % 1.0) * self.period


class DateCell(Cell):
    """Years since 2000, then sine and cosine of the time of day and of the day of the week; gaps as elsewhere."""

    def __init__(self, start: int, missing: bool) -> None:
        super().__init__(start, 5 + missing, missing)
        self.origin: float | None = None if missing else 0.0

    def write(self, out: FloatArray, value: Any) -> bool:
        moment = value if type(value) is datetime else moment_of(value)
        if moment is None:
            return self._write_gap(out)
        start = self.start
        clock, day = _TURN * seconds_of(moment) / _DAY, _TURN * moment.weekday() / 7.0
        out[start + 1], out[start + 2] = math.sin(clock), math.cos(clock)
        out[start + 3], out[start + 4] = math.sin(day), math.cos(day)
        if self.origin is None:
            return False
        out[start] = years_of(moment) - self.origin
        return True

    def learn(self, value: Any) -> None:
        if self.origin is None:
            moment = moment_of(value)
            self.origin = None if moment is None else years_of(moment)

    def read(self, row: FloatArray) -> datetime | None:
        return None if self._is_gap(row) else moment_at(float(row[self.start]) + (self.origin or 0.0))

    def copy(self) -> Cell:
        return self if self.origin is not None else DateCell(self.start, self.missing)


class EmbeddingCell(Cell):
    """A vector scaled to norm one; a gap is 0."""

    def __init__(self, start: int, dimension: int, missing: bool) -> None:
        super().__init__(start, dimension + missing, missing)
        self.stop = start + dimension

    def write(self, out: FloatArray, value: Any) -> bool:
        vector = unit_vector_of(value, self.stop - self.start)
        if vector is None:
            return self._write_gap(out)
        out[self.start : self.stop] = vector
        return True

    def read(self, row: FloatArray) -> FloatArray | None:
        return None if self._is_gap(row) else np.array(row[self.start : self.stop])
