"""Arms: actions with names, with features or without, which may appear and disappear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.errors import InputError
from kernel_bandits.tables.columns import ArmName, Codebook, Column, ColumnGroup, SideName, as_columns, as_levels
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
    # What is learned: the encoding of names and features; every arm that was given or learned, in order, with the row
    # of its vector if it may be named alone; these vectors.
    _code: Columns = field(init=False, compare=False)
    _met: dict[Level, int | None] = field(init=False, compare=False)
    _vectors: FloatArray = field(init=False, compare=False)

    def __post_init__(self) -> None:
        try:
            labels = as_levels(self.names, 0)
        except InputError as reason:
            raise InputError(
                f"names: expected a list of different names, got {shown(self.names)} ({reason})"
            ) from reason
        columns = as_columns("columns", self.columns or {})
        if ARM in columns:
            raise InputError(f"columns: {ARM!r} is the name of the arm itself; call the feature something else.")
        rows: dict[Level, Row] = {}
        if isinstance(self.names, Mapping):
            if self.columns is None:
                raise InputError("columns: expected a description of the features that the arms were given with.")
            rows = {name: dict(as_row(f"arm {name!r}", row)) for name, row in self.names.items()}
            for name, row in rows.items():
                Columns(columns).encode([row], f"arm {name!r}")
        as_count("room", self.room, least=0)
        if not self.indicator and self.columns is None:
            raise InputError("indicator: arms without features are known by their names alone; leave indicator out.")
        if not labels and not self.room:
            raise InputError("names: expected at least one arm, or room for arms that appear later.")
        if hasattr(self, "_code"):  # what was loaded has learned more
            return
        name_column = ArmName(labels, Codebook.of((), len(labels) + self.room))
        code = Columns({ARM: name_column, **columns} if self.indicator else columns)
        given = None if self.columns is None else columns
        first = {"names": rows or labels, "columns": given, "_code": code, "_met": dict.fromkeys(labels)}
        for slot, value in {**first, "_vectors": np.empty((0, code.width))}.items():
            object.__setattr__(self, slot, value)
        known = self
        for name in labels:
            if self.columns is None or name in rows:
                known = known.learned({ARM: name, **rows.get(name, {})})
            else:
                known = evolve(known, _code=known._code.learned({ARM: name}))
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
        return self._code.groups(side)

    @property
    def width(self) -> int:
        return self._code.width

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
        if row is None:
            row = self.rows.get(name)
        if row is None and (known := self._met.get(name)) is not None:
            return self._vectors[known].tolist()
        if row is None and self.columns is not None:
            raise InputError(
                f"{place}: expected the features of the arm {name!r}, which are not known; offer {{name: row, …}}, "
                f"or rows with a column {ARM!r}."
            )
        own = {ARM: name} if self.indicator else {}
        return self._code.numbers({**own, **(row or {})}, f"{place}, arm {name!r}")

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
        if self.columns is None and row:
            raise InputError(
                f"{place}: unknown column {shown(next(iter(row)))}; these arms have no features, describe them in "
                "kb.Arms(…, columns=…)."
            )
        # {"arm": "red"} alone names an arm whose features are known
        return name, row or None

    def learned(self, action: Action, place: str = "actions") -> Self:
        name, row = self._parts(action, place)
        code = self._code.learned({ARM: name, **(row or {})}, f"{place}, arm {name!r}")
        if self._met.get(name) is not None:
            return self if code is self._code else evolve(self, _code=code)
        after = evolve(self, _code=code)
        # a later arm is known from now on by the features that it was first learned with
        fixed = self.columns is None or name in self.rows
        numbers = after._numbers(name if fixed else action, place)
        met = {**self._met, name: len(self._vectors)}
        return evolve(after, _met=met, _vectors=np.vstack([self._vectors, numbers]))

    def read(self, vector: FloatArray) -> Action | None:
        row = self._code.read(vector)
        if self.columns is None:
            return row[ARM]
        return row if row.get(ARM) is not None else {name: row[name] for name in self.columns}

    def name_of(self, action: Action) -> Level:
        return self._parts(action, "actions")[0]

    def row_of(self, action: Action) -> dict[str, Any]:
        name, row = self._parts(action, "action")
        known = self._met.get(name)
        if row is None and self.columns is not None and name not in self.rows and known is not None:
            row = self._code.read(self._vectors[known])
        return {ARM: name, **(row or self.rows.get(name, {}))} | {ARM: name}

    @property
    def arms(self) -> tuple[Level, ...]:
        return tuple(self._met)

    @property
    def described(self) -> Mapping[str, Column]:
        return self.columns or {}

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {ARM: self.arms, **self._code.levels} | {ARM: self.arms}

    def portable(self, side: SideName, shift: int) -> list[dict[str, Any]]:
        return self._code.portable(side, shift)

    def __repr__(self) -> str:
        names = dict(self.names) if isinstance(self.names, Mapping) else list(self.names)
        options = [f"columns={self.columns!r}"] if self.columns is not None else []
        options += [f"room={self.room}"] if self.room != SPARE else []
        options += ["indicator=False"] if not self.indicator else []
        return f"Arms({', '.join([repr(names), *options])})"
