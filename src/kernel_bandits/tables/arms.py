"""Arms: actions with names, with features or without, which may appear and disappear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.tables.columns import Codebook, Column, ColumnGroup, Side, as_columns, as_levels
from kernel_bandits.tables.rows import ColumnCodec, Row, SideCodec, as_row, as_rows, is_frame
from kernel_bandits.tables.values import Level, level_of, shown

# An action as it was offered: the name of an arm, or a row of features, with the name of the arm among them or without.
Action: TypeAlias = Level | Row
# What several actions may be offered as.
Offer: TypeAlias = Any

# What the name of an arm is called among its features.
ARM = "arm"
SPARE = 8


@dataclass(frozen=True, slots=True, repr=False)
class Arms:
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
        object.__setattr__(self, "columns", columns)
        if isinstance(self.names, Mapping):
            if columns is None:
                raise InputError("columns: expected a description of the features that the arms were given with.")
            rows = {name: dict(as_row(f"arm {name!r}", row)) for name, row in self.names.items()}
            object.__setattr__(self, "names", rows)
            codec = ColumnCodec.of(columns)
            for name, row in rows.items():
                codec.encode([row], f"arm {name!r}")
        else:
            object.__setattr__(self, "names", labels)
        if isinstance(self.room, bool) or not isinstance(self.room, int) or self.room < 0:
            raise InputError(f"room: expected a whole number of at least 0, got {self.room!r}.")
        if not self.indicator and columns is None:
            raise InputError("indicator: arms without features are known by their names alone; leave indicator out.")
        if not labels and not self.room:
            raise InputError("names: expected at least one arm, or room for arms that appear later.")

    @property
    def labels(self) -> tuple[Level, ...]:
        """The names of the arms that are known from the beginning."""
        return tuple(self.names)

    @property
    def rows(self) -> Mapping[Level, Row]:
        """The features of arms that have them for good."""
        return self.names if isinstance(self.names, Mapping) else {}

    @property
    def groups(self) -> tuple[ColumnGroup, ...]:
        """The groups that actions are encoded by, in order."""
        groups: list[ColumnGroup] = []
        if self.indicator:
            known = [str(label) for label in self.labels]
            spare = [str(number) for number in range(len(known), len(known) + self.room)]
            groups = [ColumnGroup(ARM, ARM, "arm", "action", tuple(f"{ARM}={name}" for name in [*known, *spare]))]
        for name, column in (self.columns or {}).items():
            groups += column.groups(name, "action")
        return tuple(groups)

    def __repr__(self) -> str:
        names = dict(self.names) if isinstance(self.names, Mapping) else list(self.names)
        options = [f"columns={self.columns!r}"] if self.columns is not None else []
        options += [f"room={self.room}"] if self.room != SPARE else []
        options += ["indicator=False"] if not self.indicator else []
        return f"Arms({', '.join([repr(names), *options])})"


@dataclass(frozen=True, slots=True, eq=False)
class ArmCodec(SideCodec):
    """Encodes arms by name, with features or without.

    Attributes:
        codebook: the vectors of their names; without columns where these are not encoded.
        features: encodes their features, in the columns after those of the name; None where they have none.
        rows: the features of arms that have them for good.
        met: every arm that was given or learned, in order.
        index: the arms that may be named alone, each with the row of its vector.
        vectors: of these arms, shape (n, d_a).
    """

    codebook: Codebook
    features: ColumnCodec | None
    rows: dict[Level, Row]
    met: dict[Level, None]
    index: dict[Level, int]
    vectors: FloatArray

    @classmethod
    def of(cls, arms: Arms) -> ArmCodec:
        """Return the codec of described arms."""
        book = Codebook.of((), len(arms.labels) + arms.room if arms.indicator else 0)
        features = None if arms.columns is None else ColumnCodec.of(arms.columns, book.capacity)
        width = book.capacity + (0 if features is None else features.width)
        codec = cls(book, features, dict(arms.rows), {}, {}, np.empty((0, width)))
        for name in arms.labels:
            if codec.features is not None and name in codec.rows:
                codec = replace(codec, features=codec.features.learned(codec.rows[name]))
            codec = codec.learned(name)
        return codec

    @property
    def width(self) -> int:
        return self.vectors.shape[1]

    def offered(self, offer: Offer | None) -> Sequence[Action]:
        if type(offer) is list or type(offer) is tuple:
            return offer
        if offer is None:
            if not self.met:
                raise InputError("actions: expected the names of the arms on offer; none is known yet.")
            return self.arms
        if isinstance(offer, Mapping):
            return [{ARM: name, **as_row(f"actions, arm {name!r}", row)} for name, row in offer.items()]
        if is_frame(offer):
            return as_rows("actions", offer)
        if isinstance(offer, (str, bytes)) or not isinstance(offer, Iterable):
            raise InputError(f"actions: expected a list of arms, got {shown(offer)}; write [{shown(offer)}].")
        return list(offer)

    def encode(self, actions: Sequence[Action], place: str) -> tuple[FloatArray, bool]:
        index = self.index
        try:
            return self.vectors.take([index[name] for name in actions], axis=0), True  # type: ignore[index]
        except (KeyError, TypeError, IndexError):
            # an arm that was never met, one with features of its own, no arms at all, or an error
            out = np.zeros((len(actions), self.width))
            settled = [self._write(out[i], action, f"{place}, row {i}") for i, action in enumerate(actions)]
            return out, all(settled)

    def _write(self, out: FloatArray, action: Action, place: str) -> bool:
        name, row = self._parts(action, place)
        settled = self.codebook.write(out, 0, name) if self.codebook.capacity else True
        if self.features is not None:
            if row is None:
                row = self.rows.get(name)
            if row is None and name in self.index:
                out[:] = self.vectors[self.index[name]]
                return True
            if row is None:
                raise InputError(
                    f"{place}: expected the features of the arm {name!r}, which are not known; offer {{name: row, …}}, "
                    f"or rows with a column {ARM!r}."
                )
            settled &= self.features.write(out, row, f"{place}, arm {name!r}")
        # an arm that is not known by its name alone yet will be, by these features
        return settled and name in self.index

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
        if self.features is None and row:
            raise InputError(
                f"{place}: unknown column {shown(next(iter(row)))}; these arms have no features, describe them in "
                "kb.Arms(…, columns=…)."
            )
        # {"arm": "red"} alone names an arm whose features are known
        return name, row or None

    def learned(self, action: Action) -> Self:
        name, row = self._parts(action, "actions")
        features = self.features if self.features is None or row is None else self.features.learned(row)
        codec = replace(self, codebook=self.codebook.learned(name), features=features, met=self.met | {name: None})
        fixed = features is None or name in self.rows
        if name in self.index or not (fixed or row is not None):
            return codec
        vector = np.zeros(self.width)
        # a later arm is known from now on by the features that it was first learned with
        codec._write(vector, name if fixed else action, "actions")
        vectors = np.concatenate([self.vectors, vector[None, :]])
        return replace(codec, index=self.index | {name: len(self.index)}, vectors=vectors)

    def read(self, vector: FloatArray) -> Action | None:
        name = self.codebook.read(vector[: self.codebook.capacity]) if self.codebook.capacity else None
        if self.features is None:
            return name
        row = self.features.read(vector)
        return row if name is None else {ARM: name, **row}

    def name_of(self, action: Action) -> Level:
        return self._parts(action, "actions")[0]

    def row_of(self, action: Action) -> dict[str, Any]:
        name, row = self._parts(action, "action")
        if row is None and self.features is not None and name not in self.rows and name in self.index:
            row = self.features.read(self.vectors[self.index[name]])
        return {ARM: name, **(row or self.rows.get(name, {}))}

    @property
    def arms(self) -> tuple[Level, ...]:
        return tuple(self.met)

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {ARM: self.arms, **({} if self.features is None else self.features.levels)}

    def portable(self, side: Side, shift: int) -> list[dict[str, Any]]:
        nodes, width = [], self.codebook.capacity
        if width:
            place = {"name": ARM, "side": side, "columns": [shift, shift + width]}
            nodes.append(place | self.codebook.portable(width) | {"missing": None})
        return nodes if self.features is None else nodes + self.features.portable(side, shift)
