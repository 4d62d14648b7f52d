"""What the columns of a table are: frozen descriptions, which encode nothing and remember nothing themselves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from kernel_bandits.arrays import as_count, as_positive
from kernel_bandits.errors import InputError
from kernel_bandits.features.cells import (
    BooleanCell,
    CategoricalCell,
    Cell,
    CyclicCell,
    DateCell,
    EmbeddingCell,
    GivenLevelsCell,
    NumericCell,
    OrderedCell,
)
from kernel_bandits.features.codebook import Codebook
from kernel_bandits.features.layout import ColumnGroup, Kind, Side
from kernel_bandits.features.values import LARGEST, Level, level_of, shown

# As many levels have a column of their own; further ones share these columns.
CAPACITY = 30


class Column(ABC):
    """What a column of a table holds. Subclasses are frozen and final; ``missing`` says whether it may have gaps."""

    missing: bool

    @abstractmethod
    def cell(self, start: int) -> Cell:
        """Return a fresh cell that encodes the column, from a column of the encoded row on."""

    @abstractmethod
    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        """Return suffix, kind and column names of each group that encodes the column, without the flag of a gap."""

    def groups(self, variable: str, side: Side) -> tuple[ColumnGroup, ...]:
        """Return the groups of columns that a variable of this kind is encoded by, in order."""
        groups = [
            ColumnGroup(f"{variable}{suffix}", variable, kind, side, columns)
            for suffix, kind, columns in self.aspects(variable)
        ]
        if self.missing and groups[-1].kind != "categorical":
            name = f"{variable}: missing"
            groups.append(ColumnGroup(name, variable, "missing", side, (name,)))
        return tuple(groups)

    def options(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults, by name."""
        given = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, (value, default) in given.items() if value != default}

    def __repr__(self) -> str:
        options = ", ".join(
            f"{name}={list(value) if name == 'levels' else value!r}" for name, value in self.options().items()
        )
        return f"{type(self).__name__}({options})"


def as_levels(levels: Iterable[Any], least: int) -> tuple[Level, ...]:
    """Return the levels in order; raise unless they are different."""
    if isinstance(levels, (str, bytes)) or not isinstance(levels, Iterable):
        raise InputError(f"levels: expected a list of levels, got {shown(levels)}; write ['small', 'large'].")
    known: dict[Level, None] = {}
    for value in levels:
        try:
            level = level_of(value)
        except InputError as reason:
            raise InputError(f"levels: {reason}") from reason
        if level is None:
            raise InputError("levels: expected text or numbers, got a gap; set missing=True instead.")
        if level in known:
            raise InputError(f"levels: expected different levels, got {level!r} twice.")
        known[level] = None
    if len(known) < least:
        raise InputError(f"levels: expected at least {least}, got {len(known)}.")
    return tuple(known)


def _as_missing(value: object) -> None:
    if not isinstance(value, bool):
        raise InputError(f"missing: expected True or False, got {shown(value)}.")


@dataclass(frozen=True, repr=False)
class Numeric(Column):
    """Numbers, passed on as they are: the model learns the unit of the column.

    Args:
        range: the values from which and up to which to expect numbers, which then become 0 and 1. Numbers beyond it are
            allowed and lie beyond 0 and 1.
        logarithm: whether ratios matter, not differences; all numbers must be above 0 then.
        missing: whether there may be gaps. A gap sets a flag and counts as the middle of the range; without a range
            the numbers are counted from the first that was learned, and a gap is 0.
    """

    range: tuple[float, float] | None = None
    logarithm: bool = False
    missing: bool = False

    def __post_init__(self) -> None:
        _as_missing(self.missing)
        if self.range is None:
            return
        try:
            low, high = (float(limit) for limit in self.range)
        except (TypeError, ValueError) as reason:
            raise InputError(f"range: expected two numbers (low, high), got {shown(self.range)}.") from reason
        if not (-LARGEST <= low < high <= LARGEST and math.isfinite(high - low)):
            raise InputError(f"range: expected low < high, both finite, got {low} and {high}.")
        if self.logarithm and low <= 0.0:
            raise InputError(f"range: expected limits above 0, whose logarithms are taken, got {low}.")
        object.__setattr__(self, "range", (low, high))

    def cell(self, start: int) -> Cell:
        return NumericCell(start, self.range, self.logarithm, self.missing)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        return (("", "numeric", (variable,)),)


@dataclass(frozen=True, repr=False)
class Ordered(Column):
    """Levels in an order, such as small, medium and large; one column from 0 to 1 in equal steps.

    Args:
        levels: at least two, from first to last. Another level is an error: it has no place in the order.
        missing: whether there may be gaps: a flag, and the middle.
    """

    levels: Sequence[Level]
    missing: bool = False

    def __post_init__(self) -> None:
        _as_missing(self.missing)
        object.__setattr__(self, "levels", as_levels(self.levels, 2))

    def cell(self, start: int) -> Cell:
        return OrderedCell(start, self.levels, self.missing)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        return (("", "ordered", (variable,)),)


@dataclass(frozen=True, repr=False)
class Categorical(Column):
    """Levels without an order, such as countries.

    With up to 30 levels given: one column each, and one for all other levels. Otherwise 30 columns: the first 30 levels
    that are learned have one each, and a later level is a fixed random unit vector in these columns, nearly as far from
    every level as levels are from each other. An unknown level is never an error.

    Args:
        levels: all that are expected; None to find them as rows arrive.
        missing: whether there may be gaps; a gap is one more level, with a column of its own.
    """

    levels: Sequence[Level] | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        _as_missing(self.missing)
        if self.levels is not None:
            object.__setattr__(self, "levels", as_levels(self.levels, 1))

    @property
    def _given(self) -> tuple[Level, ...] | None:
        """The levels that have a column each for good."""
        return None if self.levels is None or len(self.levels) > CAPACITY else tuple(self.levels)

    def cell(self, start: int) -> Cell:
        if self._given is not None:
            return GivenLevelsCell(start, self._given, self.missing)
        return CategoricalCell(start, Codebook(CAPACITY, (self.levels or ())[:CAPACITY]), self.missing)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        names = [*map(str, self._given), "other"] if self._given is not None else [*map(str, range(CAPACITY))]
        gap = ["missing"] if self.missing else []
        return (("", "categorical", tuple(f"{variable}={name}" for name in [*names, *gap])),)


@dataclass(frozen=True, repr=False)
class Boolean(Column):
    """True or False, written also as 1 and 0.

    Args:
        missing: whether there may be gaps: a flag, and the middle.
    """

    missing: bool = False

    def __post_init__(self) -> None:
        _as_missing(self.missing)

    def cell(self, start: int) -> Cell:
        return BooleanCell(start, self.missing)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        return (("", "boolean", (variable,)),)


@dataclass(frozen=True, repr=False)
class Cyclic(Column):
    """Numbers that start again after a period, such as hours of a day: a place on a circle, two columns.

    Args:
        period: the period, such as 24 for hours.
        missing: whether there may be gaps: a flag, and the centre of the circle.
    """

    period: float
    missing: bool = False

    def __post_init__(self) -> None:
        _as_missing(self.missing)
        object.__setattr__(self, "period", as_positive("period", self.period))

    def cell(self, start: int) -> Cell:
        return CyclicCell(start, self.period, self.missing)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        return (("", "cyclic", (f"{variable}: sine", f"{variable}: cosine")),)


@dataclass(frozen=True, repr=False)
class Date(Column):
    """Dates and points in time: a trend in years, the time of day and the day of the week, five columns.

    A trend counts the time zone, where there is one; time and day are those on the clock of that zone.

    Args:
        missing: whether there may be gaps. Dates are then counted from the first one learned; a gap sets a flag and
            counts as that date, at the centre of the clock and of the week.
    """

    missing: bool = False

    def __post_init__(self) -> None:
        _as_missing(self.missing)

    def cell(self, start: int) -> Cell:
        return DateCell(start, self.missing)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        clock, week = f"{variable}: time of day", f"{variable}: day of week"
        return (
            (": trend", "numeric", (f"{variable}: trend",)),
            (": time of day", "cyclic", (f"{clock}, sine", f"{clock}, cosine")),
            (": day of week", "cyclic", (f"{week}, sine", f"{week}, cosine")),
        )


@dataclass(frozen=True, repr=False)
class Embedding(Column):
    """Vectors of one length, such as those of a language model, scaled to norm one; they share one lengthscale.

    Args:
        dimension: of the vectors.
        missing: whether there may be gaps: a flag, and a vector of zeros.
    """

    dimension: int
    missing: bool = False

    def __post_init__(self) -> None:
        _as_missing(self.missing)
        object.__setattr__(self, "dimension", as_count("dimension", self.dimension))

    def cell(self, start: int) -> Cell:
        return EmbeddingCell(start, self.dimension, self.missing)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        return (("", "embedding", tuple(f"{variable}[{j}]" for j in range(self.dimension))),)


COLUMNS: dict[str, type[Column]] = {
    column.__name__: column for column in (Numeric, Ordered, Categorical, Boolean, Cyclic, Date, Embedding)
}
