"""Actions to vectors and back: by name, by features, or both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.features.arms import ARM, Arms
from kernel_bandits.features.cells import NumericCell
from kernel_bandits.features.codebook import Codebook
from kernel_bandits.features.encoder import ColumnEncoder, RowEncoder
from kernel_bandits.features.rows import Row, as_row, as_rows, is_frame
from kernel_bandits.features.values import Level, level_of, shown

# An action as it was offered: the name of an arm, or a row of features, with the name of the arm among them or without.
Action: TypeAlias = Level | Row
# What several actions may be offered as.
Offer: TypeAlias = Any


class ActionEncoder(ABC):
    """Encodes the actions of a round.

    Attributes:
        width: d_a.
    """

    width: int

    @abstractmethod
    def offered(self, offer: Offer | None) -> Sequence[Action]:
        """Return the actions of an offer, one by one."""

    @abstractmethod
    def encode(self, actions: Sequence[Action], place: str = "actions") -> tuple[FloatArray, bool]:
        """Return vectors (A, d_a) with what is known now, and whether all are settled for good."""

    @abstractmethod
    def learn(self, action: Action) -> None:
        """Settle the encoding of an action that :meth:`encode` took."""

    @abstractmethod
    def read(self, vector: FloatArray) -> Action | None:
        """Return the action that a vector stands for, as far as it can be told."""

    @abstractmethod
    def name_of(self, action: Action) -> Level | None:
        """Return the name of an action's arm; None where arms have none."""

    @abstractmethod
    def row_of(self, action: Action) -> dict[str, Any]:
        """Return the features of an action, with the name of its arm among them where it has one."""

    @abstractmethod
    def copy(self) -> ActionEncoder:
        """Return an encoder that learns apart from this one."""

    @abstractmethod
    def box(self, box: Box) -> Box:
        """Return a box in the units of the table as one of encoded actions; an error where actions are no numbers."""

    @property
    @abstractmethod
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The arms that are known, and the levels that were met of each column that finds them on the way."""


class DescribedActions(ActionEncoder):
    """Actions that are rows of features, described in each round.

    Args:
        rows: encodes them.
    """

    def __init__(self, rows: RowEncoder) -> None:
        self.rows = rows
        self.width = rows.width

    def offered(self, offer: Offer | None) -> Sequence[Action]:
        if type(offer) is list:
            return offer
        if offer is None:
            raise InputError("actions: expected the rows on offer, got none; every round describes its own actions.")
        if isinstance(offer, Mapping):
            raise InputError(f"actions: expected several rows, got one ({shown(offer)}); write [row, …].")
        return as_rows("actions", offer)

    def encode(self, actions: Sequence[Action], place: str = "actions") -> tuple[FloatArray, bool]:
        return self.rows.encode(actions, place)

    def learn(self, action: Action) -> None:
        self.rows.learn(action)

    def read(self, vector: FloatArray) -> Action | None:
        return self.rows.read(vector)

    def name_of(self, action: Action) -> Level | None:  # noqa: ARG002 (they have none)
        return None

    def row_of(self, action: Action) -> dict[str, Any]:
        return dict(as_row("action", action))

    def copy(self) -> DescribedActions:
        return DescribedActions(self.rows.copy())

    def box(self, box: Box) -> Box:
        if not isinstance(self.rows, ColumnEncoder):
            raise InputError("actions: a Box needs described columns; a transformer takes rows.")
        names = self.rows.names
        for name, cell in self.rows.cells:
            if not isinstance(cell, NumericCell) or cell.missing:
                raise InputError(f"actions: a Box needs kb.Numeric() columns without gaps, and {name!r} is not one.")
        if box.dimension != len(names):
            raise InputError(f"actions: expected a box of {len(names)} dimensions ({', '.join(names)}), got {box!r}.")
        given = box.names if box.is_named else names
        if set(given) != set(names):
            raise InputError(
                f"actions: expected a box whose coordinates are named {', '.join(names)}, got {', '.join(given)}; "
                "rename them, or leave names= out and give them in this order."
            )
        corners = [dict(zip(given, corner.tolist(), strict=True)) for corner in (box.low, box.high)]
        low, high = self.rows.encode(corners, "box")[0]
        return Box(low, high)

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return self.rows.levels


class ArmEncoder(ActionEncoder):
    """Arms by name, with features or without.

    Args:
        arms: that are known from the beginning, and room for more.
    """

    def __init__(self, arms: Arms) -> None:
        self.codebook = Codebook(len(arms.labels) + arms.room if arms.indicator else 0)
        self.features = None if arms.columns is None else ColumnEncoder(arms.columns, self.codebook.capacity)
        self.width = self.codebook.capacity + (0 if self.features is None else self.features.width)
        self.rows: dict[Level, Row] = dict(arms.rows)
        self._met: dict[Level, None] = {}
        # Arms that are known by name alone, and their vectors as rows of a table.
        self._index: dict[Level, int] = {}
        self._vectors = np.empty((0, self.width))
        for name in arms.labels:
            if name in self.rows and self.features is not None:
                self.features.learn(self.rows[name])
            self.learn(name)

    @property
    def names(self) -> tuple[Level, ...]:
        """Every arm that was given or learned, in order."""
        return tuple(self._met)

    def offered(self, offer: Offer | None) -> Sequence[Action]:
        if type(offer) is list or type(offer) is tuple:
            return offer
        if offer is None:
            if not self._met:
                raise InputError("actions: expected the names of the arms on offer; none is known yet.")
            return self.names
        if isinstance(offer, Mapping):
            return [{ARM: name, **as_row(f"actions, arm {name!r}", row)} for name, row in offer.items()]
        if is_frame(offer):
            return as_rows("actions", offer)
        if isinstance(offer, (str, bytes)) or not isinstance(offer, Iterable):
            raise InputError(f"actions: expected a list of arms, got {shown(offer)}; write [{shown(offer)}].")
        return list(offer)

    def encode(self, actions: Sequence[Action], place: str = "actions") -> tuple[FloatArray, bool]:
        index = self._index
        try:
            return self._vectors.take([index[name] for name in actions], axis=0), True  # type: ignore[index]
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
            if row is None and name in self._index:
                out[:] = self._vectors[self._index[name]]
                return True
            if row is None:
                raise InputError(
                    f"{place}: expected the features of the arm {name!r}, which are not known; offer {{name: row, …}}, "
                    f"or rows with a column {ARM!r}."
                )
            settled &= self.features.write(out, row, f"{place}, arm {name!r}")
        return settled and name in self._met

    def _parts(self, action: Action, place: str) -> tuple[Level, Row | None]:
        """Return name and features of an action, the latter None where only a name was given."""
        if type(action) is not str and not np.isscalar(action):
            try:
                row = dict(as_row(place, action))
            except InputError as reason:
                raise InputError(
                    f"{place}: expected the name of an arm, or a row with a column {ARM!r}, got {shown(action)}."
                ) from reason
            if ARM not in row:
                raise InputError(f"{place}: expected the name of an arm under {ARM!r}, got {shown(action)}.")
            return self._name(row.pop(ARM), place), self._features(row, place)
        return self._name(action, place), None

    def _name(self, value: Any, place: str) -> Level:
        try:
            name = level_of(value)
        except InputError as reason:
            raise InputError(f"{place}: {reason}") from reason
        if name is None:
            raise InputError(f"{place}: expected the name of an arm, got {shown(value)}.")
        return name

    def _features(self, row: Row, place: str) -> Row | None:
        if self.features is None and row:
            raise InputError(
                f"{place}: unknown column {shown(next(iter(row)))}; these arms have no features, describe them in "
                "kb.Arms(…, columns=…)."
            )
        # {"arm": "red"} alone names an arm whose features are known
        return row or None

    def learn(self, action: Action) -> None:
        name, row = self._parts(action, "actions")
        self.codebook.learn(name)
        self._met[name] = None
        if self.features is not None and row is not None:
            self.features.learn(row)
        if name not in self._index and (self.features is None or name in self.rows or row is not None):
            vector = np.zeros(self.width)
            # a later arm is known from now on by the features that it was first learned with
            self._write(vector, name if self.features is None or name in self.rows else action, "actions")
            # in this order it may be repeated, should an interrupt fall between the two
            number = len(self._index)
            self._vectors = np.concatenate([self._vectors[:number], vector[None, :]])
            self._index[name] = number

    def read(self, vector: FloatArray) -> Action | None:
        name = self.codebook.read(vector[: self.codebook.capacity]) if self.codebook.capacity else None
        if self.features is None:
            return name
        row = self.features.read(vector)
        return row if name is None else {ARM: name, **row}

    def name_of(self, action: Action) -> Level | None:
        return self._parts(action, "actions")[0]

    def row_of(self, action: Action) -> dict[str, Any]:
        name, row = self._parts(action, "action")
        if row is None and self.features is not None and name not in self.rows and name in self._index:
            row = self.features.read(self._vectors[self._index[name]])
        return {ARM: name, **(row or self.rows.get(name, {}))}

    def copy(self) -> ArmEncoder:
        twin = object.__new__(ArmEncoder)
        twin.__dict__.update(self.__dict__)
        twin.codebook, twin._met, twin._index = self.codebook.copy(), dict(self._met), dict(self._index)
        twin.features = None if self.features is None else self.features.copy()
        return twin

    def box(self, box: Box) -> Box:
        raise InputError(f"actions: expected arms, got {box!r}; describe actions by columns to offer a box.")

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {ARM: self.names, **({} if self.features is None else self.features.levels)}
