"""What is known of the columns of a joint point: their names, their kinds, and which of them belong together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.errors import InputError

Kind: TypeAlias = Literal["numeric", "ordered", "boolean", "cyclic", "categorical", "embedding", "missing", "arm"]
Side: TypeAlias = Literal["context", "action"]


@dataclass(frozen=True)
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
    side: Side
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, value, known in (("kind", self.kind, Kind), ("side", self.side, Side)):
            if value not in get_args(known):
                raise InputError(f"{name}: expected one of {', '.join(get_args(known))}, got {value!r}.")
        if not self.columns:
            raise InputError(f"columns: expected at least one column in the group {self.name!r}, got none.")

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)


@dataclass(frozen=True)
class Layout:
    """The columns of joint points, group by group: those of contexts first, then those of actions.

    Attributes:
        groups: in the order of their columns.
        labels: the group of each column, shape (d,): labels 0, 1, … without a gap.
    """

    groups: tuple[ColumnGroup, ...]
    labels: NDArray[np.intp] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        names = [(group.side, group.name) for group in self.groups]
        repeated = [name for side, name in names if names.count((side, name)) > 1]
        if repeated:
            raise InputError(f"groups: expected different names, got {repeated[0]!r} twice.")
        sides = [group.side for group in self.groups]
        if "context" in sides[self._split_of(sides) :]:
            raise InputError("groups: expected those of contexts before those of actions.")
        if sum(group.kind == "arm" for group in self.groups) > 1:
            raise InputError("groups: expected one group of arms at most, got several.")
        widths = [group.width for group in self.groups]
        object.__setattr__(self, "labels", np.repeat(np.arange(len(widths)), widths))

    @staticmethod
    def _split_of(sides: list[Side]) -> int:
        return sides.index("action") if "action" in sides else len(sides)

    @classmethod
    def of_arrays(cls, context_dimension: int, action_dimension: int, arms: bool = False) -> Layout:
        """Return what is known of bare arrays: numbers, each column a group of its own.

        Args:
            context_dimension: d_x.
            action_dimension: d_a.
            arms: whether the action columns are unit vectors, one for each arm.
        """
        groups = [ColumnGroup(f"x{j}", f"x{j}", "numeric", "context", (f"x{j}",)) for j in range(context_dimension)]
        actions = [f"a{j}" for j in range(action_dimension)]
        if arms:
            groups.append(ColumnGroup("arm", "arm", "arm", "action", tuple(actions)))
        else:
            groups.extend(ColumnGroup(name, name, "numeric", "action", (name,)) for name in actions)
        return cls(tuple(groups))

    @property
    def slices(self) -> tuple[slice, ...]:
        """The columns of each group."""
        stops = accumulate(group.width for group in self.groups)
        return tuple(slice(stop - group.width, stop) for stop, group in zip(stops, self.groups, strict=True))

    @property
    def dimension(self) -> int:
        """d, the number of columns."""
        return len(self.labels)

    @property
    def context_dimension(self) -> int:
        """d_x, the number of context columns."""
        return sum(group.width for group in self.groups if group.side == "context")

    @property
    def action_dimension(self) -> int:
        """d_a, the number of action columns."""
        return self.dimension - self.context_dimension

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each column."""
        return tuple(name for group in self.groups for name in group.columns)

    @property
    def arms(self) -> slice | None:
        """The columns that say which arm an action is; None where actions are described by features alone."""
        return next((self.slices[i] for i, group in enumerate(self.groups) if group.kind == "arm"), None)

    @property
    def variables(self) -> tuple[tuple[Side, str], ...]:
        """Side and name of each variable, in order."""
        return tuple(dict.fromkeys((group.side, group.variable) for group in self.groups))

    def columns_of(self, side: Side, variable: str) -> NDArray[np.intp]:
        """Return the columns of all groups of a variable."""
        chosen = [i for i, group in enumerate(self.groups) if (group.side, group.variable) == (side, variable)]
        return np.flatnonzero(np.isin(self.labels, chosen))

    def of_kind(self, *kinds: Kind) -> NDArray[np.bool_]:
        """Return whether each column belongs to a group of one of these kinds, shape (d,)."""
        return self._by_column(group.kind in kinds for group in self.groups)

    def of_side(self, side: Side) -> NDArray[np.bool_]:
        """Return whether each column belongs to contexts or to actions, shape (d,)."""
        return self._by_column(group.side == side for group in self.groups)

    def _by_column(self, by_group: Iterable[bool]) -> NDArray[np.bool_]:
        return np.repeat(np.array(list(by_group), dtype=np.bool_), [group.width for group in self.groups])
