"""The kinds of columns: what each holds, how it becomes numbers and back, and its form in TOML and in exported files.

A kind is one class. Its fields describe the column; further ones hold what it learns from rows: levels, the origin of a
column with gaps. Columns are frozen: :meth:`Column.learned` returns another one, which encodes every value that was
learned before as this one does.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.errors import InputError
from kernel_bandits.tables.values import (
    LARGEST,
    Level,
    is_gap,
    is_number,
    level_of,
    moment_of,
    nearest,
    number_of,
    shown,
)
from kernel_bandits.values import evolve

Kind: TypeAlias = Literal["numeric", "ordered", "boolean", "cyclic", "categorical", "embedding", "missing", "arm"]
SideName: TypeAlias = Literal["context", "action"]

# As many levels have a column of their own; further ones share these columns.
CAPACITY = 30
# This many names of levels beyond the capacity are kept, to be shown again.
REMEMBERED = 10_000
_TURN = 2.0 * math.pi
_DAY = 86400.0
_YEAR = 365.25 * _DAY
_EPOCH = datetime(2000, 1, 1)


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Neighbouring columns of a joint point that have one lengthscale and one spread.

    Attributes:
        name: unique on its side; the variable itself, or one aspect of it, such as ``"when: time of day"``.
        variable: the column of the table that it encodes; several groups may share one.
        kind: ``"numeric"``, ``"ordered"`` and ``"boolean"`` have one column; ``"cyclic"`` has a sine and a cosine;
            ``"categorical"`` has unit vectors, one for each level, or random unit vectors beyond its capacity;
            ``"embedding"`` has vectors of unit norm; ``"missing"`` is 1 where the variable is missing, else 0;
            ``"arm"`` is as ``"categorical"``, with arms for levels: actions of one arm agree in these columns.
        side: whether it describes contexts or actions.
        columns: the names of its columns.
    """

    name: str
    variable: str
    kind: Kind
    side: SideName
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of joint points, group by group: those of contexts first, then those of actions.

    Attributes:
        groups: in the order of their columns.
        labels: the group of each column, shape (d,): labels 0, 1, … without a gap.
    """

    groups: tuple[ColumnGroup, ...]
    labels: NDArray[np.intp] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [(group.side, group.name) for group in self.groups]
        repeated = [name for side, name in names if names.count((side, name)) > 1]
        if repeated:
            raise InputError(f"groups: expected different names, got {repeated[0]!r} twice.")
        widths = [len(group.columns) for group in self.groups]
        object.__setattr__(self, "labels", np.repeat(np.arange(len(widths)), widths))

    @property
    def dimension(self) -> int:
        """d, the number of columns."""
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each column."""
        return tuple(name for group in self.groups for name in group.columns)

    @property
    def variables(self) -> tuple[tuple[SideName, str], ...]:
        """Side and name of each variable, in order."""
        return tuple(dict.fromkeys((group.side, group.variable) for group in self.groups))

    def columns_of(self, side: SideName, variable: str) -> NDArray[np.intp]:
        """Return the columns of all groups of a variable."""
        chosen = [i for i, group in enumerate(self.groups) if (group.side, group.variable) == (side, variable)]
        return np.flatnonzero(np.isin(self.labels, chosen))


class Column(ABC):
    """What a column of a table holds, and its encoding. A kind is a frozen dataclass, known by the name of its class.

    A kind of your own implements :meth:`encode` and :meth:`decode`, and :meth:`names` unless one number stands for a
    value. One that learns from rows overrides :meth:`learned` too.

    Attributes:
        missing: whether there may be gaps; a last column is then 1 for a gap, else 0.
        kind: what the model takes its numbers for, as in :class:`ColumnGroup`.
        gap: what the other columns hold for a gap.
        kinds: every kind, by name.
    """

    __slots__ = ()
    missing: bool
    kind: ClassVar[Kind] = "numeric"
    gap: ClassVar[float] = 0.0
    kinds: ClassVar[dict[str, type[Column]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # a kind of column may have gaps; the names of arms have none
        if "missing" in cls.__annotations__:
            Column.kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        if not isinstance(self.missing, bool):
            raise InputError(f"missing: expected True or False, got {shown(self.missing)}.")

    @abstractmethod
    def encode(self, value: Any) -> Sequence[float]:
        """Return the numbers of a value that is no gap; raise an :class:`InputError` that says what was expected."""

    @abstractmethod
    def decode(self, numbers: FloatArray) -> Any:
        """Return the value that numbers stand for; None where it cannot be told."""

    def names(self, variable: str) -> tuple[str, ...]:
        """Return what the encoded columns of a variable are called, without the one for gaps."""
        return (variable,)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        """Return suffix, kind and column names of each group that encodes the variable, without the one for gaps."""
        return (("", self.kind, self.names(variable)),)

    def groups(self, variable: str, side: SideName) -> tuple[ColumnGroup, ...]:
        """Return the groups of columns that a variable of this kind is encoded by, in order."""
        aspects = list(self.aspects(variable))
        if self.missing and self.kind == "categorical":
            # one more level
            aspects = [("", self.kind, (*self.names(variable), f"{variable}=missing"))]
        elif self.missing:
            aspects.append((": missing", "missing", (f"{variable}: missing",)))
        return tuple(ColumnGroup(f"{variable}{suffix}", variable, kind, side, names) for suffix, kind, names in aspects)

    @property
    def width(self) -> int:
        """The number of encoded columns."""
        return sum(len(names) for *_, names in self.aspects("")) + self.missing

    def read(self, numbers: FloatArray) -> Any:
        """Return the value that the encoded columns stand for; None for a gap, and where it cannot be told."""
        if not self.missing:
            return self.decode(numbers)
        return None if numbers[-1] == 1.0 else self.decode(numbers[:-1])

    def learned(self, value: Any) -> Self:
        """Return the column that encodes a value or a gap for good as this one does, itself if it does so already."""
        del value  # by default nothing is learned
        return self

    @property
    def values(self) -> Sequence[Any] | None:
        """All values that are expected, in order, where they are few; otherwise None."""
        return None

    @property
    def found(self) -> tuple[Level, ...] | None:
        """The levels that were found so far; None where none are looked for."""
        return None

    def options(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults, by name, as they are written in TOML."""
        # what was learned does not count in comparisons, and is no argument
        given = [each for each in fields(self) if each.compare]  # type: ignore[arg-type]
        return {each.name: value for each in given if (value := getattr(self, each.name)) != each.default}

    def portable(self) -> dict[str, Any]:
        """Return the encoding with what is known now, as an exported file describes it, without that of gaps."""
        if self.values is None:
            raise InputError(f"export: {type(self).__name__} has no portable form; write its method portable().")
        gap = [0.0] * self.missing
        return _listed(self.values, [[*self.encode(value), *gap] for value in self.values])

    def __repr__(self) -> str:
        options = ", ".join(
            f"{name}={list(value) if name == 'levels' else value!r}" for name, value in self.options().items()
        )
        return f"{type(self).__name__}({options})"


def _listed(
    levels: Iterable[Level], vectors: Iterable[list[float]], other: list[float] | None = None
) -> dict[str, Any]:
    """Return the portable form of values that are listed with their vectors, and the vector of all others."""
    listed = [[level, vector] for level, vector in zip(levels, vectors, strict=True)]
    return {"kind": "levels", "levels": listed, "other": other}


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


@dataclass(frozen=True, slots=True, repr=False)
class Numeric(Column):
    """Numbers, passed on as they are: the model learns the unit of the column.

    With y the number or its logarithm, the column is (y − low)/(high − low), or y where no range is given.

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
    # what y is counted from, None until the first number of a column with gaps is learned; and what it is divided by
    origin: float | None = field(default=None, init=False, compare=False)
    length: float = field(default=1.0, init=False, compare=False)

    def __post_init__(self) -> None:
        Column.__post_init__(self)
        if self.range is None:
            if not self.missing:
                object.__setattr__(self, "origin", 0.0)
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
        if self.logarithm:
            low, high = math.log(low), math.log(high)
        object.__setattr__(self, "origin", low)
        object.__setattr__(self, "length", high - low)

    @property
    def gap(self) -> float:  # type: ignore[override]
        return 0.0 if self.range is None else 0.5

    def _number(self, value: Any) -> float:
        """Return y, NaN for a gap."""
        number = number_of(value)
        if not self.logarithm:
            return number
        if number <= 0.0:
            raise InputError(f"expected a number above 0, whose logarithm is taken, got {number:g}.")
        return math.log(number)

    def encode(self, value: Any) -> Sequence[float]:
        number = self._number(value)
        # the first number of a column with gaps will be what the others are counted from
        return (0.0 if self.origin is None else (number - self.origin) / self.length,)

    def decode(self, numbers: FloatArray) -> float:
        number = float(numbers[0]) * self.length + (self.origin or 0.0)
        return math.exp(number) if self.logarithm else number

    def learned(self, value: Any) -> Self:
        return self if self.origin is not None or is_gap(value) else evolve(self, origin=self._number(value))

    def portable(self) -> dict[str, Any]:
        return {"kind": "number", "logarithm": self.logarithm, "origin": self.origin, "length": self.length}


@dataclass(frozen=True, slots=True, repr=False)
class Ordered(Column):
    """Levels in an order, such as small, medium and large; one column from 0 to 1 in equal steps.

    Args:
        levels: at least two, from first to last. Another level is an error: it has no place in the order.
        missing: whether there may be gaps: a flag, and the middle.
    """

    levels: Sequence[Level]
    missing: bool = False
    kind: ClassVar[Kind] = "ordered"
    gap: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        Column.__post_init__(self)
        object.__setattr__(self, "levels", as_levels(self.levels, 2))

    def encode(self, value: Any) -> Sequence[float]:
        level = level_of(value)
        if level not in self.levels:
            levels = ", ".join(shown(known) for known in self.levels)
            raise InputError(f"expected one of {levels}, got {shown(level)}{nearest(level, self.levels)}")
        return (self.levels.index(level) / (len(self.levels) - 1),)

    def decode(self, numbers: FloatArray) -> Level:
        return self.levels[round(float(numbers[0]) * (len(self.levels) - 1))]

    @property
    def values(self) -> Sequence[Level]:
        return self.levels


@dataclass(frozen=True, slots=True)
class Codebook:
    """Which vector stands for which level. A level that was learned once keeps its vector for good.

    The first ``capacity`` levels are unit vectors, in the order in which they were learned. Later ones are fixed random
    vectors in the same columns (:func:`sign_code`), which need no memory. A level that was not learned yet has the next
    free unit vector until another level is learned; in a closed codebook, for good.

    Attributes:
        capacity: the width of the vectors, and the number of levels with unit vectors.
        slots: the unit vector of each level that has one.
        late: the levels beyond the capacity.
        closed: whether no level is learned.
    """

    capacity: int
    slots: dict[Level, int]
    late: dict[Level, None] = field(default_factory=dict)
    closed: bool = False

    @classmethod
    def of(cls, levels: Sequence[Level], capacity: int, closed: bool = False) -> Codebook:
        """Return the codebook of levels that are known from the beginning."""
        return cls(capacity, {level: slot for slot, level in enumerate(levels)}, closed=closed)

    def encode(self, level: Level) -> Sequence[float]:
        """Return the vector of a level, shape (capacity,)."""
        slot = self.slots.get(level, len(self.slots))
        return unit(slot, self.capacity) if slot < self.capacity else sign_code(level, self.capacity)

    def learned(self, level: Level) -> Codebook:
        """Return the codebook in which a level has its vector for good."""
        if self.closed or level in self.slots or level in self.late or len(self.late) >= REMEMBERED:
            return self
        if len(self.slots) < self.capacity:
            return evolve(self, slots=self.slots | {level: len(self.slots)})
        return evolve(self, late=self.late | {level: None})

    def read(self, vector: FloatArray) -> Level | None:
        """Return the level of a vector of shape (capacity,); None if it is not known any more."""
        if np.count_nonzero(vector) <= 1:
            slot = int(np.argmax(vector))
            return next((level for level, other in self.slots.items() if other == slot), None)
        return next((level for level in self.late if np.array_equal(sign_code(level, self.capacity), vector)), None)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Every level that was learned or given, in order."""
        return (*self.slots, *self.late)


@lru_cache(maxsize=4096)
def unit(place: int, width: int) -> tuple[float, ...]:
    """Return the unit vector of a place, shape (width,)."""
    return tuple(np.eye(width)[place].tolist())


@lru_cache(maxsize=4096)
def sign_code(level: Level, width: int) -> tuple[float, ...]:
    """Return a unit vector with entries ±1/√width that depends on nothing but the level, shape (width,).

    The codes of two levels, and a code and a unit vector, have a scalar product of about ±1/√width: they are nearly as
    far apart as two unit vectors.
    """
    # 1, 1.0 and True are one level, as they are one key of a dictionary
    text = f"text {level}" if isinstance(level, str) else f"number {int(level) if level == int(level) else level!r}"
    source = blake2b(text.encode("utf-8", "surrogatepass")).digest()
    while 8 * len(source) < width:
        source += blake2b(source).digest()
    bits = np.unpackbits(np.frombuffer(source, dtype=np.uint8))[:width].astype(np.float64)
    return tuple(((2.0 * bits - 1.0) / math.sqrt(width)).tolist())


class Coded(Column):
    """Levels without an order, each with its vector in a codebook."""

    __slots__ = ()
    codebook: Codebook

    @abstractmethod
    def names(self, variable: str) -> tuple[str, ...]:
        """Return what the columns of the codebook are called."""

    def encode(self, value: Any) -> Sequence[float]:
        level = level_of(value)
        assert level is not None
        return self.codebook.encode(level)

    def decode(self, numbers: FloatArray) -> Level | None:
        return self.codebook.read(numbers)

    def learned(self, value: Any) -> Self:
        level = level_of(value)
        book = self.codebook if level is None else self.codebook.learned(level)
        return self if book is self.codebook else evolve(self, codebook=book)

    @property
    def found(self) -> tuple[Level, ...] | None:
        return None if self.codebook.closed else self.codebook.levels

    def portable(self) -> dict[str, Any]:
        book, gap = self.codebook, [0.0] * self.missing
        # the vector of all levels that are not known, if they share it
        free = len(book.slots)
        other = [*unit(free, book.capacity), *gap] if free < book.capacity else None
        return _listed(book.levels, [[*book.encode(level), *gap] for level in book.levels], other)


@dataclass(frozen=True, slots=True, repr=False)
class Categorical(Coded):
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
    codebook: Codebook = field(init=False, compare=False)
    kind: ClassVar[Kind] = "categorical"

    def __post_init__(self) -> None:
        Column.__post_init__(self)
        levels = None if self.levels is None else as_levels(self.levels, 1)
        object.__setattr__(self, "levels", levels)
        # a loaded column has a codebook already, and what it has learned
        if not hasattr(self, "codebook"):
            closed = levels is not None and len(levels) <= CAPACITY
            known = (levels or ())[:CAPACITY]
            object.__setattr__(self, "codebook", Codebook.of(known, len(known) + 1 if closed else CAPACITY, closed))

    def names(self, variable: str) -> tuple[str, ...]:
        book = self.codebook
        names = [*map(str, book.slots), "other"] if book.closed else [*map(str, range(book.capacity))]
        return tuple(f"{variable}={name}" for name in names)

    @property
    def values(self) -> Sequence[Level] | None:
        return self.levels


@dataclass(frozen=True, slots=True, repr=False)
class ArmName(Coded):
    """The names of arms.

    Attributes:
        labels: of the arms that are known from the beginning.
    """

    labels: tuple[Level, ...]
    codebook: Codebook
    missing = False
    kind: ClassVar[Kind] = "arm"

    def names(self, variable: str) -> tuple[str, ...]:
        known = [*self.labels, *range(len(self.labels), self.codebook.capacity)]
        return tuple(f"{variable}={name}" for name in known)


@dataclass(frozen=True, slots=True, repr=False)
class Boolean(Column):
    """True or False, written also as 1 and 0.

    Args:
        missing: whether there may be gaps: a flag, and the middle.
    """

    missing: bool = False
    kind: ClassVar[Kind] = "boolean"
    gap: ClassVar[float] = 0.5

    def encode(self, value: Any) -> Sequence[float]:
        if is_number(value) and value in (0, 1):
            return (float(value),)
        raise InputError(f"expected True or False (or 1 and 0), got {shown(value)} ({type(value).__name__}).")

    def decode(self, numbers: FloatArray) -> bool:
        return bool(numbers[0] >= 0.5)

    @property
    def values(self) -> Sequence[bool]:
        return (False, True)


@dataclass(frozen=True, slots=True, repr=False)
class Cyclic(Column):
    """Numbers that start again after a period, such as hours of a day: a place on a circle, two columns.

    Args:
        period: the period, such as 24 for hours.
        missing: whether there may be gaps: a flag, and the centre of the circle.
    """

    period: float
    missing: bool = False
    kind: ClassVar[Kind] = "cyclic"

    def __post_init__(self) -> None:
        Column.__post_init__(self)
        object.__setattr__(self, "period", as_positive("period", self.period))

    def names(self, variable: str) -> tuple[str, ...]:
        return (f"{variable}: sine", f"{variable}: cosine")

    def encode(self, value: Any) -> Sequence[float]:
        phase = _TURN * (number_of(value) % self.period) / self.period
        return math.sin(phase), math.cos(phase)

    def decode(self, numbers: FloatArray) -> float:
        return (math.atan2(float(numbers[0]), float(numbers[1])) / _TURN % 1.0) * self.period

    def portable(self) -> dict[str, Any]:
        return {"kind": "cyclic", "period": self.period}


@dataclass(frozen=True, slots=True, repr=False)
class Date(Column):
    """Dates and points in time: a trend in years, the time of day and the day of the week, five columns.

    A trend counts the time zone, where there is one; time and day are those on the clock of that zone.

    Args:
        missing: whether there may be gaps. Dates are then counted from the first one learned; a gap sets a flag and
            counts as that date, at the centre of the clock and of the week.
    """

    missing: bool = False
    # in years since 2000; None until the first date of a column with gaps is learned
    origin: float | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        Column.__post_init__(self)
        if not self.missing:
            object.__setattr__(self, "origin", 0.0)

    def aspects(self, variable: str) -> tuple[tuple[str, Kind, tuple[str, ...]], ...]:
        clock, week = f"{variable}: time of day", f"{variable}: day of week"
        return (
            (": trend", "numeric", (f"{variable}: trend",)),
            (": time of day", "cyclic", (f"{clock}, sine", f"{clock}, cosine")),
            (": day of week", "cyclic", (f"{week}, sine", f"{week}, cosine")),
        )

    def encode(self, value: Any) -> Sequence[float]:
        moment = value if type(value) is datetime else moment_of(value)
        assert moment is not None
        seconds = 3600.0 * moment.hour + 60.0 * moment.minute + moment.second + 1e-6 * moment.microsecond
        clock, day = _TURN * seconds / _DAY, _TURN * moment.weekday() / 7.0
        trend = 0.0 if self.origin is None else _years(moment) - self.origin
        return trend, math.sin(clock), math.cos(clock), math.sin(day), math.cos(day)

    def decode(self, numbers: FloatArray) -> datetime:
        seconds = round((float(numbers[0]) + (self.origin or 0.0)) * _YEAR) + _EPOCH.replace(tzinfo=UTC).timestamp()
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)

    def learned(self, value: Any) -> Self:
        moment = None if self.origin is not None else moment_of(value)
        return self if moment is None else evolve(self, origin=_years(moment))

    def portable(self) -> dict[str, Any]:
        return {"kind": "date", "origin": self.origin}


def _years(moment: datetime) -> float:
    """Return years of 365.25 days since the beginning of 2000; a time zone counts, where there is one."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH).total_seconds() / _YEAR


@dataclass(frozen=True, slots=True, repr=False)
class Embedding(Column):
    """Vectors of one length, such as those of a language model, scaled to norm one; they share one lengthscale.

    Args:
        dimension: of the vectors.
        missing: whether there may be gaps: a flag, and a vector of zeros.
    """

    dimension: int
    missing: bool = False
    kind: ClassVar[Kind] = "embedding"

    def __post_init__(self) -> None:
        Column.__post_init__(self)
        object.__setattr__(self, "dimension", as_count("dimension", self.dimension))

    def names(self, variable: str) -> tuple[str, ...]:
        return tuple(f"{variable}[{j}]" for j in range(self.dimension))

    def encode(self, value: Any) -> Sequence[float]:
        size = self.dimension
        try:
            vector = np.asarray(value)
            numbers = vector.astype(np.float64) if vector.dtype.kind in "biuf" else np.array([float(x) for x in value])
        except (TypeError, ValueError, OverflowError) as reason:
            raise InputError(f"expected {size} numbers, got {shown(value)} ({type(value).__name__}).") from reason
        if numbers.shape != (size,):
            raise InputError(f"expected {size} numbers, got an array of shape {numbers.shape}.")
        largest = float(np.abs(numbers).max())
        if not largest <= LARGEST:
            raise InputError(f"expected {size} finite numbers, got {largest} among them.")
        return (numbers / np.linalg.norm(numbers) if largest > 0.0 else numbers).tolist()

    def decode(self, numbers: FloatArray) -> FloatArray:
        return np.array(numbers)

    def portable(self) -> dict[str, Any]:
        return {"kind": "direction"}


# Columns whose name ends like this and whose whole numbers lie in this range go round in a circle of this period.
_CYCLES = {
    "hour": (0, 24, 24),
    "weekday": (0, 7, 7),
    "dayofweek": (0, 7, 7),
    "month": (1, 12, 12),
    "dayofyear": (1, 366, 365.25),
}


def infer_columns(place: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Return what each column of a sample of rows most likely is."""
    if not rows:
        raise InputError(f"{place}: expected a sample of rows, got none.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _infer(place, name, [row.get(name) for row in rows]) for name in names}


def _infer(place: str, name: str, values: list[Any]) -> Column:
    present = [value for value in values if not is_gap(value)]
    missing = len(present) < len(values)
    if not present:
        raise InputError(f"{place}: column {name!r} is empty; leave it out, or describe it yourself.")
    if all(isinstance(value, (bool, np.bool_)) for value in present):
        return Boolean(missing)
    if all(map(is_number, present)):
        return _infer_numbers(name, np.array([float(value) for value in present]), missing)
    if all(isinstance(value, (date, np.datetime64)) for value in present):
        return Date(missing)
    if all(isinstance(value, (list, tuple, np.ndarray)) for value in present):
        lengths = {len(value) for value in present}
        if len(lengths) > 1:
            raise InputError(f"{place}: column {name!r} holds vectors of lengths {sorted(lengths)}, expected one.")
        return Embedding(lengths.pop(), missing)
    if all(isinstance(value, str) and _reads_as(moment_of, value) and not value.isdigit() for value in present):
        # an eight-digit number reads as a date, too, but nobody writes dates of contexts like that
        return Date(missing)
    if all(isinstance(value, str) and _reads_as(float, value) for value in present):
        warnings.warn(
            f"{place}: column {name!r} is text that reads as numbers, such as {present[0]!r}; it is taken for names. "
            "If it is a quantity, convert it with float(…) first.",
            stacklevel=4,
        )
    try:
        levels = list(dict.fromkeys(level for value in present if (level := level_of(value)) is not None))
    except InputError as reason:
        raise InputError(f"{place}: column {name!r}: {reason}") from reason
    return Categorical(sorted(levels, key=str) if len(levels) <= CAPACITY else None, missing)


def _infer_numbers(name: str, numbers: FloatArray, missing: bool) -> Column:
    if set(np.unique(numbers)) == {0.0, 1.0}:
        return Boolean(missing)
    bare = name.lower().replace("_", "").replace(" ", "")
    for ending, (low, high, period) in _CYCLES.items():
        if bare.endswith(ending) and low <= numbers.min() and numbers.max() <= high:
            return Cyclic(period, missing)
    return Numeric(missing=missing)


def _reads_as(reader: Any, text: str) -> bool:
    try:
        reader(text)
    except (InputError, ValueError):
        return False
    return True
