"""Arms: actions with names, with or without features; they may appear and disappear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_bandits.errors import InputError
from kernel_bandits.features.columns import Column, as_levels
from kernel_bandits.features.encoder import ColumnEncoder, as_columns, groups_of
from kernel_bandits.features.layout import ColumnGroup
from kernel_bandits.features.rows import Row, as_row
from kernel_bandits.features.values import Level, shown

# What the name of an arm is called among its features.
ARM = "arm"
SPARE = 8


@dataclass(frozen=True, repr=False)
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
        labels = self._as_labels(self.names)
        columns = None if self.columns is None else as_columns("columns", self.columns)
        if columns is not None and ARM in columns:
            raise InputError(f"columns: {ARM!r} is the name of the arm itself; call the feature something else.")
        object.__setattr__(self, "columns", columns)
        if isinstance(self.names, Mapping):
            if columns is None:
                raise InputError("columns: expected a description of the features that the arms were given with.")
            rows = {name: dict(as_row(f"arm {name!r}", row)) for name, row in self.names.items()}
            object.__setattr__(self, "names", rows)
            encoder = ColumnEncoder(columns)
            for name, row in rows.items():
                encoder.encode([row], f"arm {name!r}")
        else:
            object.__setattr__(self, "names", labels)
        if isinstance(self.room, bool) or not isinstance(self.room, int) or self.room < 0:
            raise InputError(f"room: expected a whole number of at least 0, got {self.room!r}.")
        if not self.indicator and columns is None:
            raise InputError("indicator: arms without features are known by their names alone; leave indicator out.")
        if not labels and not self.room:
            raise InputError("names: expected at least one arm, or room for arms that appear later.")

    @staticmethod
    def _as_labels(names: Any) -> tuple[Level, ...]:
        try:
            return as_levels(names, 0)
        except InputError as reason:
            raise InputError(f"names: expected a list of different names, got {shown(names)} ({reason})") from reason

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
        groups: tuple[ColumnGroup, ...] = ()
        if self.indicator:
            known = [str(label) for label in self.labels]
            spare = [str(number) for number in range(len(known), len(known) + self.room)]
            groups = (ColumnGroup(ARM, ARM, "arm", "action", tuple(f"{ARM}={name}" for name in [*known, *spare])),)
        return groups if self.columns is None else (*groups, *groups_of(self.columns, "action"))

    def __repr__(self) -> str:
        names = dict(self.names) if isinstance(self.names, Mapping) else list(self.names)
        options = [f"columns={self.columns!r}"] if self.columns is not None else []
        options += [f"room={self.room}"] if self.room != SPARE else []
        options += ["indicator=False"] if not self.indicator else []
        return f"Arms({', '.join([repr(names), *options])})"
