"""Arms: actions with names, with features or without, which may appear and disappear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.tables.columns import Codebook, Column, ColumnGroup, SideName, as_columns, as_levels
from kernel_bandits.tables.rows import Columns, Row, Side, as_row, as_rows, is_frame
from kernel_bandits.tables.values import Level, level_of, shown
from kernel_bandits.values import evolve

# An action as it was offered: the name of an arm, or a row of features, with the name of the arm among them or without.
Action: TypeAlias = Level | Row
# What several actions may be offered as.
Offer: TypeAlias = Any

# What the name of an arm is called among its features.
ARM = "arm"
SPARE = 8


@dataclass(frozen=True, slots=True, repr=False)
class Arms(Side):
    """Actions with names.

    Each arm has its own column, and ``room`` further columns are reserved for arms that appear later. Arms beyond those
    are fixed random vectors in the same columns, nearly orthogonal to all others.

    Args:
        names: of the arms that are known from the beginning, or a mapping from names to the row of features of each.
        columns: what the features are, by name; None for arms without features.
        room: how many arms may appear later and still have a column of their own.
        indicator: whether the model knows which arm an action is. Without it, arms with the same features are the same
            to it.
    """

    names: Sequence[Level] | Mapping[Level, Row] = ()
    columns: Mapping[str, Column] | None = None
    room: int = SPARE
    indicator: bool = True
    # What is learned: the vectors of the names; the encoding of features, in the columns after those of the name; every
    # arm that was given or learned, in order, with the row of its vector if it may be named alone; these vectors.
    _book: Codebook = field(init=False, compare=False)
    _features: Columns | None = field(init=False, compare=False)
    _met: dict[Level, int | None] = field(init=False, compare=False)
    _vectors: FloatArray = field(init=False, compare=False)

    def __post_init__(self) -> None:
        try:
            labels = as_levels(self.names, 0)
        except InputError as reason:
            raise InputError(
                f"names: expected a list of different names, got {shown(self.names)} ({reason})"
            ) from reason
        columns = None if self.columns is None else as_columns("columns", self.columns)
        if columns is not None and ARM in columns:
            raise InputError(f"columns: {ARM!r} is the name of the arm itself; call the feature something else.")
        rows: dict[Level, Row] = {}
        if isinstance(self.names, Mapping):
            if columns is None:
                raise InputError("columns: expected a description of the features that the arms were given with.")
            rows = {name: dict(as_row(f"arm {name!r}", row)) for name, row in self.names.items()}
            for name, row in rows.items():
                Columns(columns).encode([row], f"arm {name!r}")
        if isinstance(self.room, bool) or not isinstance(self.room, int) or self.room < 0:
            raise InputError(f"room: expected a whole number of at least 0, got {self.room!r}.")
        if not self.indicator and columns is None:
            raise InputError("indicator: arms without features are known by their names alone; leave indicator out.")
        if not labels and not self.room:
            raise InputError("names: expected at least one arm, or room for arms that appear later.")
        if not hasattr(self, "_book"):  # what was loaded has learned more
            self._begin(rows or labels, columns)

    def _begin(self, names: Sequence[Level] | Mapping[Level, Row], columns: dict[str, Column] | None) -> None:
        """Learn the arms that are known from the beginning."""
        book = Codebook.of((), len(names) + self.room if self.indicator else 0)
        features = None if columns is None else Columns(columns)
        vectors = np.empty((0, book.capacity + (0 if features is None else features.width)))
        first = {"names": names, "columns": columns, "_book": book, "_features": features, "_vectors": vectors}
        for slot, value in (first | {"_met": dict.fromkeys(names)}).items():
            object.__setattr__(self, slot, value)
        known = self
        for name in known.labels:
            if columns is None or name in known.rows:
                known = known.learned({ARM: name, **known.rows.get(name, {})})
            else:
                known = evolve(known, _book=known._book.learned(name))
        for part in fields(self):
            object.__setattr__(self, part.name, getattr(known, part.name))

    @property
    def labels(self) -> tuple[Level, ...]:
        """The names of the arms that are known from the beginning."""
        return tuple(self.names)

    @property
    def rows(self) -> Mapping[Level, Row]:
        """The features of arms that have them for good."""
        return self.names if isinstance(self.names, Mapping) else {}

    def groups(self, side: SideName) -> tuple[ColumnGroup, ...]:
        groups: tuple[ColumnGroup, ...] = ()
        if self.indicator:
            names = [*map(str, self.labels), *map(str, range(len(self.labels), self._book.capacity))]
            groups = (ColumnGroup(ARM, ARM, "arm", side, tuple(f"{ARM}={name}" for name in names)),)
        return groups if self._features is None else groups + self._features.groups(side)

    @property
    def width(self) -> int:
        return self._vectors.shape[1]

    def offered(self, offer: Offer | None) -> Sequence[Action]:
        if type(offer) is list or type(offer) is tuple:
            return offer
        if offer is None:
            if not self._met:
                raise InputError("actions: expected the names of the arms on offer; none is known yet.")
            return self.arms
        if isinstance(offer, Mapping):
            return [{ARM: name, **as_row(f"actions, arm {name!r}", row)} for name, row in offer.items()]
        if is_frame(offer):
            return as_rows("actions", offer)
        if isinstance(offer, (str, bytes)) or not isinstance(offer, Iterable):
            raise InputError(f"actions: expected a list of arms, got {shown(offer)}; write [{shown(offer)}].")
        return list(offer)

    def encode(self, actions: Sequence[Action], place: str, numbered: bool = True) -> FloatArray:
        try:
            return self._vectors.take([self._met[name] for name in actions], axis=0)  # type: ignore[index, arg-type]
        except (KeyError, TypeError, IndexError):
            # an arm that was never met, one with features of its own, no arms at all, or an error
            places = [f"{place}, row {number}" if numbered else place for number in range(len(actions))]
            numbers = [self._numbers(action, place) for action, place in zip(actions, places, strict=True)]
            return np.array(numbers).reshape(len(actions), self.width)

    def _numbers(self, action: Action, place: str) -> Sequence[float]:
        """Return the numbers of an action."""
        name, row = self._parts(action, place)
        own = self._book.encode(name) if self.indicator else ()
        if self._features is None:
            return own
        if row is None:
            row = self.rows.get(name)
        if row is None and (known := self._met.get(name)) is not None:
            return self._vectors[known].tolist()
        if row is None:
            raise InputError(
                f"{place}: expected the features of the arm {name!r}, which are not known; offer {{name: row, …}}, "
                f"or rows with a column {ARM!r}."
            )
        return [*own, *self._features.numbers(row, f"{place}, arm {name!r}")]

    def _parts(self, action: Action, place: str) -> tuple[Level, Row | None]:
        """Return name and features of an action, the latter None where only a name was given."""
        row: dict[str, Any] = {}
        given: Any = action
        if type(action) is not str and not np.isscalar(action):
            try:
                row = dict(as_row(place, action))
            except InputError as reason:
                raise InputError(
                    f"{place}: expected the name of an arm, or a row with a column {ARM!r}, got {shown(action)}."
                ) from reason
            if ARM not in row:
                raise InputError(f"{place}: expected the name of an arm under {ARM!r}, got {shown(action)}.")
            given = row.pop(ARM)
        try:
            name = level_of(given)
        except InputError as reason:
            raise InputError(f"{place}: {reason}") from reason
        if name is None:
            raise InputError(f"{place}: expected the name of an arm, got {shown(given)}.")
        if self._features is None and row:
            raise InputError(
                f"{place}: unknown column {shown(next(iter(row)))}; these arms have no features, describe them in "
                "kb.Arms(…, columns=…)."
            )
        # {"arm": "red"} alone names an arm whose features are known
        return name, row or None

    def learned(self, action: Action, place: str = "actions") -> Self:
        name, row = self._parts(action, place)
        features = self._features
        if features is not None and row is not None:
            features = features.learned(row, f"{place}, arm {name!r}")
        after = evolve(self, _book=self._book.learned(name), _features=features)
        if self._met.get(name) is None:
            # a later arm is known from now on by the features that it was first learned with
            fixed = features is None or name in self.rows
            numbers = after._numbers(name if fixed else action, place)
            met = {**self._met, name: len(self._vectors)}
            return evolve(after, _met=met, _vectors=np.vstack([self._vectors, numbers]))
        return self if after._book is self._book and features is self._features else after

    def read(self, vector: FloatArray) -> Action | None:
        width = self._book.capacity
        name = self._book.read(vector[:width]) if self.indicator else None
        if self._features is None:
            return name
        row = self._features.read(vector[width:])
        return row if name is None else {ARM: name, **row}

    def name_of(self, action: Action) -> Level:
        return self._parts(action, "actions")[0]

    def row_of(self, action: Action) -> dict[str, Any]:
        name, row = self._parts(action, "action")
        known = self._met.get(name)
        if row is None and self._features is not None and name not in self.rows and known is not None:
            row = self._features.read(self._vectors[known, self._book.capacity :])
        return {ARM: name, **(row or self.rows.get(name, {}))}

    @property
    def arms(self) -> tuple[Level, ...]:
        return tuple(self._met)

    @property
    def described(self) -> Mapping[str, Column]:
        return self.columns or {}

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {ARM: self.arms, **({} if self._features is None else self._features.levels)}

    def portable(self, side: SideName, shift: int) -> list[dict[str, Any]]:
        nodes, width = [], self._book.capacity
        if self.indicator:
            place = {"name": ARM, "side": side, "columns": [shift, shift + width]}
            nodes.append(place | self._book.portable(width) | {"missing": None})
        return nodes if self._features is None else nodes + self._features.portable(side, shift + width)

    def __repr__(self) -> str:
        names = dict(self.names) if isinstance(self.names, Mapping) else list(self.names)
        options = [f"columns={self.columns!r}"] if self.columns is not None else []
        options += [f"room={self.room}"] if self.room != SPARE else []
        options += ["indicator=False"] if not self.indicator else []
        return f"Arms({', '.join([repr(names), *options])})"
