"""A description as TOML and back."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.features.arms import SPARE, Arms
from kernel_bandits.features.columns import COLUMNS, Column
from kernel_bandits.features.sides import ActionSide, ContextSide
from kernel_bandits.features.values import nearest


def dump(context: ContextSide, actions: ActionSide) -> str:
    """Return TOML: a table ``[context]`` and a table ``[actions]`` or ``[arms]``, with a line for each column."""
    lines = ["[context]", *_column_lines(context)]
    if not isinstance(actions, Arms):
        return "\n".join([*lines, "", "[actions]", *_column_lines(actions), ""])
    lines += ["", "[arms]", f"names = {_text(list(actions.labels))}"]
    lines += [f"features = {_text(list(actions.rows.values()))}"] if actions.rows else []
    lines += [f"room = {actions.room}"] if actions.room != SPARE else []
    lines += ["indicator = false"] if not actions.indicator else []
    if actions.columns is not None:
        lines += ["", "[arms.columns]", *_column_lines(actions.columns)]
    return "\n".join([*lines, ""])


def _column_lines(columns: ContextSide) -> list[str]:
    if not isinstance(columns, Mapping):
        raise InputError(f"to_toml: {type(columns).__name__} is code and not data; describe the columns instead.")
    return [
        f"{_key(name)} = {_text({'kind': type(column).__name__, **column.options()})}"
        for name, column in columns.items()
    ]


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").replace("-", "a").isalnum() else _text(name)


def _text(value: Any) -> str:
    """Return a value as TOML; text escapes as in JSON, but for one character that JSON leaves as it is."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(key))} = {_text(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    raise InputError(f"to_toml: {value!r} ({type(value).__name__}) cannot be written; use text and numbers.")


def parse(source: str | os.PathLike[str]) -> tuple[dict[str, Column], Arms | dict[str, Column]]:
    """Return the two sides of what :func:`dump` wrote: TOML if it has a line break, else the path of a file."""
    try:
        text = source if isinstance(source, str) and "\n" in source else Path(source).read_text()
        data = tomllib.loads(text)
    except OSError as reason:
        raise InputError(f"from_toml: cannot read {source} ({reason.strerror}); check the path.") from reason
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise InputError(f"from_toml: expected TOML, got something else ({reason}).") from reason
    return build(data)


def build(data: Mapping[str, Any]) -> tuple[dict[str, Column], Arms | dict[str, Column]]:
    """Return the two sides that tables of TOML describe."""
    for name in data:
        if name not in ("context", "actions", "arms"):
            raise InputError(f"from_toml: unknown table {name!r}{nearest(name, ('context', 'actions', 'arms'))}")
    if ("actions" in data) == ("arms" in data):
        raise InputError("from_toml: expected either a table [actions] or a table [arms].")
    context = _columns("context", data.get("context", {}))
    return context, (_columns("actions", data["actions"]) if "actions" in data else _arms(data["arms"]))


def _columns(place: str, table: Any) -> dict[str, Column]:
    if not isinstance(table, dict):
        raise InputError(f"from_toml: expected a table [{place}], got {table!r}.")
    return {name: _column(f"{place}.{name}", options) for name, options in table.items()}


def _column(place: str, options: Any) -> Column:
    kind = options.get("kind") if isinstance(options, dict) else None
    if kind not in COLUMNS:
        raise InputError(
            f"from_toml: {place}: expected {{ kind = … }} with one of {', '.join(COLUMNS)}, got {options!r}"
            f"{nearest(kind, COLUMNS)}"
        )
    try:
        return COLUMNS[kind](**{name: value for name, value in options.items() if name != "kind"})
    except (KernelBanditsError, TypeError) as reason:
        raise InputError(f"from_toml: {place}: {reason}") from reason


def _arms(table: Any) -> Arms:
    if not isinstance(table, dict):
        raise InputError(f"from_toml: expected a table [arms], got {table!r}.")
    options = dict(table)
    features = options.pop("features", None)
    if "columns" in options:
        options["columns"] = _columns("arms.columns", options["columns"])
    try:
        if features is not None:
            options["names"] = dict(zip(options.get("names", ()), features, strict=True))
        return Arms(**options)
    except (KernelBanditsError, TypeError, ValueError) as reason:
        raise InputError(f"from_toml: arms: {reason}") from reason
