"""What a table is: its columns and its actions; how they are inferred, printed, written as TOML, and encoded."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import Box, Choice, LinearLimit, Range, Setting
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables.arms import SPARE, Action, Arms
from kernel_bandits.tables.columns import (
    CAPACITY,
    Boolean,
    Categorical,
    Column,
    Layout,
    Numeric,
    Ordered,
    SideName,
    as_columns,
    infer_columns,
)
from kernel_bandits.tables.rows import Columns, FrameLike, RowLike, Side, Transformed, Transformer, as_rows, is_frame
from kernel_bandits.tables.values import Level, level_of, nearest, shown
from kernel_bandits.values import evolve

ContextSide: TypeAlias = Mapping[str, Column] | Transformer
ActionSide: TypeAlias = Arms | ContextSide | Box
# A mask by position or by name.
Mask: TypeAlias = ArrayLike | Mapping[Level, bool]


@dataclass(frozen=True, slots=True, repr=False)
class Features:
    """The columns of a table and its actions, by name.

    Args:
        context: what the columns of a context are, such as ``{"age": kb.Numeric(), "country": kb.Categorical()}``; or a
            fitted scikit-learn transformer, which takes rows to numbers instead.
        actions: :class:`Arms` or a list of their names; or what the columns of an action are, where actions are
            described in each round; or a fitted transformer for these; or a box, which is then on offer in every round
            that offers nothing else.

    It also encodes rows and actions as joint points, with the levels and arms that were learned so far: a value, from
    which :meth:`learned` returns another one that encodes everything that was learned before as this one does.

    Attributes:
        offer: the box that actions were described by, if they were.
        layout: of the joint points that rows and actions become.
        rows: encodes contexts.
        choices: encodes actions: arms, or rows that are described in each round.
    """

    context: ContextSide
    actions: ActionSide
    offer: Box | None = field(default=None, init=False)
    layout: Layout = field(init=False, repr=False, compare=False)
    rows: Side = field(init=False, repr=False, compare=False)
    choices: Side = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if hasattr(self, "rows"):  # what was loaded has learned more
            return
        actions: Any = self.actions
        offer = actions if isinstance(actions, Box) else None
        if offer is not None:
            actions = {name: _as_column(one) for name, one in zip(offer.names, offer.settings, strict=True)}
        if isinstance(actions, Iterable) and not isinstance(actions, (Mapping, Side, str, bytes)):
            actions = Arms(list(actions))
        rows, choices = _as_side("context", self.context), _as_side("actions", actions)
        groups = (*rows.groups("context"), *choices.groups("action"))
        if not any(group.side == "action" for group in groups):
            raise InputError("actions: expected at least one column, or arms with names, got none.")
        known = {
            "context": rows.columns if isinstance(rows, Columns) else self.context,
            "actions": choices.columns if isinstance(choices, Columns) else actions,
            "offer": offer,
            "layout": Layout(groups),
            "rows": rows,
            "choices": choices,
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    @classmethod
    def infer(cls, frame: FrameLike, actions: Any) -> Features:
        """Propose a description from a sample of rows; print it, correct it, and write it into your code.

        Args:
            frame: contexts as they will come: a pandas or polars frame, a list of dicts, a NumPy structured array.
            actions: the names of the arms, or :class:`Arms`; or a sample of actions with features, as a frame.
        """
        context = infer_columns("frame", as_rows("frame", frame))
        if isinstance(actions, Arms):
            return cls(context, actions)
        if isinstance(actions, (str, bytes)) or not isinstance(actions, Iterable):
            raise InputError(f"actions: expected the names of the arms or a sample of actions, got {actions!r}.")
        if is_frame(actions) or isinstance(next(iter(actions), None), Mapping):
            return cls(context, infer_columns("actions", as_rows("actions", actions)))
        # a column of labels will do: each once, in the order of their appearance
        return cls(context, Arms(list(dict.fromkeys(map(level_of, actions)))))  # type: ignore[arg-type]

    def to_toml(self) -> str:
        """Return the description as TOML, which :meth:`from_toml` reads.

        A table ``[context]`` and a table ``[actions]``, ``[arms]`` or ``[box.settings]``, with a line for each column.
        """
        tables: dict[tuple[str, ...], dict[str, Any]] = {("context",): _kinds(self.context)}
        actions = self.actions
        if self.offer is not None:
            tables |= _box_tables(self.offer)
        elif isinstance(actions, Arms):
            arms: dict[str, Any] = {"names": list(actions.labels)}
            arms |= {"features": list(actions.rows.values())} if actions.rows else {}
            arms |= {"room": actions.room} if actions.room != SPARE else {}
            arms |= {"indicator": False} if not actions.indicator else {}
            tables[("arms",)] = arms
            tables |= {} if actions.columns is None else {("arms", "columns"): _kinds(actions.columns)}
        else:
            tables[("actions",)] = _kinds(actions)
        lines: list[str] = []
        for path, table in tables.items():
            lines += [f"[{'.'.join(map(_toml_key, path))}]"]
            lines += [*(f"{_toml_key(str(key))} = {_toml(value)}" for key, value in table.items()), ""]
        return "\n".join(lines)

    @classmethod
    def from_toml(cls, source: str | os.PathLike[str]) -> Features:
        """Read a description that :meth:`to_toml` wrote: the text itself, or the path of a file."""
        try:
            # TOML has a line break, a path has none
            text = source if isinstance(source, str) and "\n" in source else Path(source).read_text()
            data = tomllib.loads(text)
        except OSError as reason:
            raise InputError(f"from_toml: cannot read {source} ({reason.strerror}); check the path.") from reason
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
            raise InputError(f"from_toml: expected TOML, got something else ({reason}).") from reason
        return cls.from_tables(data)

    @classmethod
    def from_tables(cls, data: Mapping[str, Any]) -> Features:
        """Return the description in tables of TOML that were read already."""
        for name in data:
            if name not in ("context", *_SIDES):
                raise InputError(f"from_toml: unknown table {name!r}{nearest(name, ('context', *_SIDES))}")
        given = [name for name in _SIDES if name in data]
        if len(given) != 1:
            raise InputError("from_toml: expected one of the tables [actions], [arms] and [box.settings].")
        context = _columns_of("context", data.get("context", {}))
        return cls(context, _SIDES[given[0]](data[given[0]]))

    def box(self, box: Box | None = None) -> Box:
        """Return a box in the units of the table as one of encoded actions, that of the description unless given."""
        box = self.offer if box is None else box
        if box is None:
            raise InputError("actions: expected a box, got none; describe actions by one, kb.Features(…, actions=box).")
        settings = dict(zip(self.names_in(box), box.settings, strict=True))
        assert isinstance(self.choices, Columns)
        columns = self.choices.columns
        if box.is_plain and all(isinstance(column, Numeric) for column in columns.values()):
            corners = [{name: getattr(settings[name], end) for name in columns} for end in ("low", "high")]
            return Box(*self.choices.encode(corners, "actions"))
        encoded = {name: _encoded(name, settings[name], column) for name, column in columns.items()}
        return Box(encoded, sides=box.sides, limits=box.limits)

    def names_in(self, box: Box) -> tuple[str, ...]:
        """Return the columns of actions that the settings of a box are; an error where they do not fit."""
        if isinstance(self.choices, Arms):
            raise InputError(f"actions: expected arms, got {box!r}; describe actions by columns to offer a box.")
        if not isinstance(self.choices, Columns):
            raise InputError("actions: a Box needs described columns; a transformer takes rows.")
        names = tuple(self.choices.columns)
        for name, column in self.choices.columns.items():
            if column.missing:
                raise InputError(f"actions: a Box needs columns without gaps, and {name!r} is not one.")
        if len(box.settings) != len(names):
            raise InputError(f"actions: expected a box of {len(names)} settings ({', '.join(names)}), got {box!r}.")
        given = box.names if box.is_named else names
        if set(given) != set(names):
            raise InputError(
                f"actions: expected a box whose settings are named {', '.join(names)}, got {', '.join(given)}; "
                "rename them, or leave names= out and give them in this order."
            )
        return tuple(given)

    def mask(self, mask: Mask, offered: Sequence[Action]) -> ArrayLike:
        """Return a mask by name as one boolean for each action; names that are left out may be played."""
        if not isinstance(mask, Mapping):
            return mask
        names = [self.choices.name_of(action) for action in offered]
        for name, value in mask.items():
            if name not in names:
                raise InputError(f"mask: {shown(name)} is not on offer{nearest(name, names)}")
            if not isinstance(value, (bool, np.bool_)):
                raise InputError(f"mask: expected True or False for {name!r}, got {shown(value)}.")
        return [name is None or bool(mask.get(name, True)) for name in names]

    def require_played(self, actions: Sequence[Action]) -> None:
        """Raise if an action that was played is a number where all known arms are text: most likely its index."""
        known = self.choices.arms
        for action in actions:
            if isinstance(action, (int, np.integer)) and known and all(isinstance(name, str) for name in known):
                raise InputError(
                    f"action: expected the name of an arm, which is text, got {shown(action)}; pass decision.arm, not "
                    "its index."
                )

    def knows(self, row: RowLike, offered: Sequence[Action]) -> bool:
        """Return whether a row and the actions on offer, which were encoded, are so for good."""
        choices = self.choices
        return self.rows.learned(row) is self.rows and all(choices.learned(action) is choices for action in offered)

    def learned(self, row: RowLike, action: Action, places: tuple[str, str] = ("context", "actions")) -> Features:
        """Return what encodes a row and an action for good as they are encoded here; errors name their places."""
        rows, choices = self.rows.learned(row, places[0]), self.choices.learned(action, places[1])
        return self if rows is self.rows and choices is self.choices else evolve(self, rows=rows, choices=choices)

    def described(self, rows: Sequence[RowLike]) -> tuple[FloatArray, Features]:
        """Return the vectors of rows of contexts, and what has learned their levels."""
        known = self.rows.learned_all(rows, "contexts")
        return known.encode(rows, "contexts"), evolve(self, rows=known)

    def log(self, rows: Sequence[RowLike], actions: Sequence[Action]) -> tuple[FloatArray, FloatArray, Features]:
        """Return vectors of rounds that are learned one after the other, and what has learned them."""
        contexts, known = self.described(rows)
        choices = self.choices.learned_all(actions, "actions")
        return contexts, choices.encode(actions, "actions"), evolve(known, choices=choices)

    def decode(self, points: FloatArray) -> list[tuple[dict[str, Any], Action | None]]:
        """Return the row and the action that each of the joint points (n, d) stands for, as far as they can be told."""
        split, read = self.rows.width, self.choices.read if self.offer is None else self.box().named
        return [(self.rows.read(point[:split]), read(point[split:])) for point in points]

    def portable(self) -> list[dict[str, Any]]:
        """Return how each variable is encoded now, in the order of the columns, for exported files."""
        return self.rows.portable("context", 0) + self.choices.portable("action", self.rows.width)

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """The arms that are known, and the levels that were found of each column that looks for them."""
        sides: dict[SideName, dict[str, tuple[Level, ...]]]
        sides = {"context": self.rows.levels, "action": self.choices.levels}
        shared = sides["context"].keys() & sides["action"].keys()
        return {
            f"{name} ({side})" if name in shared else name: levels
            for side, found in sides.items()
            for name, levels in found.items()
        }

    def __str__(self) -> str:
        """Python code that builds the description."""
        context, actions = _code(self.context, 4), _code(self.offer or self.actions, 4)
        return f"kb.Features(\n    context={context},\n    actions={actions},\n)"

    def __repr__(self) -> str:
        return f"Features(context={self.context!r}, actions={self.offer or self.actions!r})"


def _as_column(setting: Setting) -> Column:
    """Return the column that holds a setting of a box."""
    if isinstance(setting, Range):
        return Numeric(logarithm=setting.logarithm)
    is_ordered = setting.ordered and len(setting.levels) > 1
    return Ordered(setting.levels) if is_ordered else Categorical(setting.levels)


def _encoded(name: str, setting: Setting, column: Column) -> Setting:
    """Return a setting of a box as a column of a table encodes it."""
    if isinstance(setting, Range):
        if not isinstance(column, Numeric) or (setting.logarithm and not column.logarithm):
            kind = "kb.Numeric(logarithm=True)" if setting.logarithm else "kb.Numeric()"
            raise InputError(f"actions: {name!r} of the box needs a column {kind}, and it is {column!r}.")
        return replace(setting, logarithm=column.logarithm, origin=column.origin or 0.0, length=column.length)
    if not isinstance(column, (Numeric, Ordered, Categorical, Boolean)):
        raise InputError(f"actions: {name!r} is {column!r}, which cannot be a choice of a box.")
    codes = [tuple(column.encode(level)) for level in setting.levels]
    for level, code in zip(setting.levels, codes, strict=True):
        if column.kind == "categorical" and (np.count_nonzero(code) > 1 or column.decode(np.array(code)) != level):
            raise InputError(
                f"actions: level {level!r} of {name!r} has no column of its own; describe it as "
                f"kb.Categorical([…]) with all levels of the box, {CAPACITY} at most."
            )
    return replace(setting, ordered=setting.ordered or len(codes[0]) == 1, codes=tuple(codes))


def _as_side(name: str, value: Any) -> Side:
    """Return the encoding of a described side."""
    if isinstance(value, Mapping):
        return Columns(as_columns(name, value))
    if isinstance(value, Arms) and name == "actions":
        return value
    if isinstance(value, Transformer) and not isinstance(value, type):
        return Transformed.by(value)
    expected = "columns by name, such as {'age': kb.Numeric()}, or a fitted transformer"
    if name == "actions":
        expected = f"kb.Arms(['red', 'blue']), {expected}"
    raise InputError(f"{name}: expected {expected}, got {shown(value)}.")


def _code(value: Any, indent: int) -> str:
    """Return Python code of a part of a description, with a line for each column."""
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        inner = " " * (indent + 4)
        lines = [f"{inner}{key!r}: {_code(item, indent + 4)},\n" for key, item in value.items()]
        return "{\n" + "".join(lines) + " " * indent + "}"
    if isinstance(value, Box):
        sides = f", sides={dict(value.sides)}" if value.sides else ""
        limits = f", limits=[{', '.join(f'kb.{one!r}' for one in value.limits)}]" if value.limits else ""
        return f"kb.Box({_code(dict(zip(value.names, value.settings, strict=True)), indent)}{sides}{limits})"
    if isinstance(value, Arms) and value.columns is not None:
        names = _code(value.names, indent) if isinstance(value.names, Mapping) else repr(list(value.names))
        tail = repr(Arms(value.labels, {}, value.room, value.indicator)).partition("columns={}")[2]
        return f"kb.Arms({names}, columns={_code(value.columns, indent)}{tail}"
    return f"kb.{value!r}" if isinstance(value, (Arms, Column, Range, Choice)) else repr(value)


def _kinds(columns: ActionSide) -> dict[str, Any]:
    """Return the kind and the options of each column."""
    if not isinstance(columns, Mapping):
        raise InputError(f"to_toml: {type(columns).__name__} is code and not data; describe the columns instead.")
    return {name: {"kind": type(column).__name__, **column.options()} for name, column in columns.items()}


def _toml_key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").replace("-", "a").isalnum() else _toml(name)


def _toml(value: Any) -> str:
    """Return a value as TOML; scalars are as in JSON, but for one character that JSON leaves as it is."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(str(key))} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, (str, bool, int, float)):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise InputError(f"to_toml: {value!r} ({type(value).__name__}) cannot be written; use text and numbers.")


@contextmanager
def _read(place: str) -> Iterator[None]:
    """Name the place in a description that an error is about."""
    try:
        yield
    except (KernelBanditsError, AttributeError, KeyError, TypeError, ValueError) as reason:
        raise InputError(f"from_toml: {place}: {reason}") from reason


def _columns_of(place: str, table: Any) -> dict[str, Column]:
    if not isinstance(table, dict):
        raise InputError(f"from_toml: expected a table [{place}], got {table!r}.")
    return {name: _column_of(f"{place}.{name}", options) for name, options in table.items()}


def _column_of(place: str, options: Any) -> Column:
    """Return the column of its arguments and its ``kind``, the name of a class."""
    kinds = Column.kinds
    kind = options.get("kind") if isinstance(options, dict) else None
    if kind not in kinds:
        raise InputError(
            f"from_toml: {place}: expected {{ kind = … }} with one of {', '.join(kinds)}, got {options!r}"
            f"{nearest(kind, kinds)}"
        )
    with _read(place):
        return kinds[kind](**{name: value for name, value in options.items() if name != "kind"})


def _arms_of(table: Any) -> Arms:
    if not isinstance(table, dict):
        raise InputError(f"from_toml: expected a table [arms], got {table!r}.")
    options = dict(table)
    features = options.pop("features", None)
    if "columns" in options:
        options["columns"] = _columns_of("arms.columns", options["columns"])
    with _read("arms"):
        if features is not None:
            options["names"] = dict(zip(options.get("names", ()), features, strict=True))
        return Arms(**options)


# What a box, a Range and a Choice hold in TOML: their arguments.
_BOX = ("settings", "sides", "limits")
_RANGE, _CHOICE = ("low", "high", "whole", "logarithm", "unit"), ("levels", "ordered", "unit")


def _box_tables(box: Box) -> dict[tuple[str, ...], dict[str, Any]]:
    tables: dict[tuple[str, ...], dict[str, Any]] = {}
    if box.limits:
        ends = [{name: getattr(limit, name) for name in ("least", "most")} for limit in box.limits]
        finite = [{name: end for name, end in own.items() if math.isfinite(end)} for own in ends]
        limits = [{"weights": limit.weights, **own} for limit, own in zip(box.limits, finite, strict=True)]
        tables[("box",)] = {"limits": limits}
    settings = tables[("box", "settings")] = {}
    for name, one in zip(box.names, box.settings, strict=True):
        fields = _RANGE if isinstance(one, Range) else _CHOICE
        # what is not needed is left out, but the limits of a range
        settings[name] = {key: value for key in fields if (value := getattr(one, key)) or key in ("low", "high")}
    return tables | {("box", "sides", name): dict(of) for name, of in box.sides.items()}


def _box_of(table: Any) -> Box:
    if not isinstance(table, dict) or not isinstance(table.get("settings"), dict) or set(table) - set(_BOX):
        raise InputError(f"from_toml: box: expected a table [box.settings], and {_BOX[1:]} besides, got {table!r}.")
    with _read("box"):
        settings: dict[str, Setting] = {
            name: Choice(**options) if "levels" in options else Range(**options)
            for name, options in table["settings"].items()
        }
        sides = {name: _side_of(settings[name], of) for name, of in table.get("sides", {}).items()}
        return Box(settings, sides=sides, limits=[LinearLimit(**options) for options in table.get("limits", ())])


def _side_of(choice: Setting, of: Mapping[str, Any]) -> Mapping[Any, Mapping[str, tuple[float, float]]]:
    """Return ranges by level: keys of TOML are text, whatever levels are."""
    if not isinstance(choice, Choice):
        raise InputError(f"sides: expected levels of a choice, got {choice!r}.")
    levels = {str(level): level for level in choice.levels}
    return {levels.get(key, key): {name: tuple(pair) for name, pair in own.items()} for key, own in of.items()}


# What describes actions, by the name of its table.
_SIDES: dict[str, Callable[[Any], Any]] = {
    "actions": partial(_columns_of, "actions"),
    "arms": _arms_of,
    "box": _box_of,
}
