"""What a table is: its columns and its actions, and the layout of the joint points that they become."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_bandits.errors import InputError
from kernel_bandits.features.arms import Arms
from kernel_bandits.features.columns import Column
from kernel_bandits.features.encoder import ColumnEncoder, RowEncoder, as_columns, groups_of
from kernel_bandits.features.inference import infer
from kernel_bandits.features.layout import ColumnGroup, Layout, Side
from kernel_bandits.features.offers import ActionEncoder, ArmEncoder, DescribedActions
from kernel_bandits.features.rows import FrameLike
from kernel_bandits.features.sides import ActionSide, ContextSide
from kernel_bandits.features.toml import dump, parse
from kernel_bandits.features.transformer import Transformer, TransformerEncoder, transformer_groups
from kernel_bandits.features.values import shown


@dataclass(frozen=True, repr=False)
class Features:
    """The columns of a table and its actions, by name.

    Args:
        context: what the columns of a context are, such as ``{"age": kb.Numeric(), "country": kb.Categorical()}``; or a
            fitted scikit-learn transformer, which takes rows to numbers instead.
        actions: :class:`Arms` or a list of their names; or what the columns of an action are, where actions are
            described in each round; or a fitted transformer for these.

    Attributes:
        layout: of the joint points that rows and actions become.
    """

    context: ContextSide
    actions: ActionSide
    layout: Layout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", _as_side("context", self.context))
        actions = self.actions
        if isinstance(actions, Iterable) and not isinstance(actions, (Mapping, str, bytes)):
            actions = Arms(list(actions))
        object.__setattr__(self, "actions", actions if isinstance(actions, Arms) else _as_side("actions", actions))
        groups = (*_groups(self.context, "context"), *_groups(self.actions, "action"))
        if not any(group.side == "action" for group in groups):
            raise InputError("actions: expected at least one column, or arms with names, got none.")
        object.__setattr__(self, "layout", Layout(groups))

    def encoders(self) -> tuple[RowEncoder, ActionEncoder]:
        """Return fresh encoders of contexts and of actions, which learn levels as they come."""
        actions: ActionEncoder
        if isinstance(self.actions, Arms):
            actions = ArmEncoder(self.actions)
        else:
            actions = DescribedActions(_row_encoder(self.actions))
        return _row_encoder(self.context), actions

    @classmethod
    def infer(cls, frame: FrameLike, actions: Any) -> Features:
        """Propose a description from a sample of rows; print it, correct it, and write it into your code.

        Args:
            frame: contexts as they will come: a pandas or polars frame, a list of dicts, a NumPy structured array.
            actions: the names of the arms, or :class:`Arms`; or a sample of actions with features, as a frame.
        """
        return cls(*infer(frame, actions))

    def to_toml(self) -> str:
        """Return the description as TOML, which :meth:`from_toml` reads."""
        return dump(self.context, self.actions)

    @classmethod
    def from_toml(cls, source: str | os.PathLike[str]) -> Features:
        """Read a description that :meth:`to_toml` wrote: the text itself, or the path of a file."""
        return cls(*parse(source))

    def __str__(self) -> str:
        """Python code that builds the description."""
        return f"kb.Features(\n    context={_code(self.context, 4)},\n    actions={_code(self.actions, 4)},\n)"

    def __repr__(self) -> str:
        return f"Features(context={self.context!r}, actions={self.actions!r})"


def _as_side(name: str, value: Any) -> dict[str, Column] | Transformer:
    if isinstance(value, Mapping):
        return as_columns(name, value)
    if isinstance(value, Transformer) and not isinstance(value, type):
        return value
    expected = "columns by name, such as {'age': kb.Numeric()}, or a fitted transformer"
    if name == "actions":
        expected = f"kb.Arms(['red', 'blue']), {expected}"
    raise InputError(f"{name}: expected {expected}, got {shown(value)}.")


def _groups(side: ContextSide | ActionSide, name: Side) -> tuple[ColumnGroup, ...]:
    if isinstance(side, Arms):
        return side.groups
    return groups_of(side, name) if isinstance(side, Mapping) else transformer_groups(side, name)


def _row_encoder(side: ContextSide) -> RowEncoder:
    return ColumnEncoder(side) if isinstance(side, Mapping) else TransformerEncoder(side)


def _code(value: Any, indent: int) -> str:
    """Return Python code of a part of a description, with a line for each column."""
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        inner = " " * (indent + 4)
        lines = [f"{inner}{key!r}: {_code(item, indent + 4)},\n" for key, item in value.items()]
        return "{\n" + "".join(lines) + " " * indent + "}"
    if isinstance(value, Arms) and value.columns is not None:
        names = _code(value.names, indent) if isinstance(value.names, Mapping) else repr(list(value.names))
        tail = repr(Arms(value.labels, {}, value.room, value.indicator)).partition("columns={}")[2]
        return f"kb.Arms({names}, columns={_code(value.columns, indent)}{tail}"
    return f"kb.{value!r}" if isinstance(value, (Arms, Column)) else repr(value)
