"""A proposal of what the columns of a table are, from a sample of its rows."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from kernel_bandits.errors import InputError
from kernel_bandits.features.arms import Arms
from kernel_bandits.features.columns import (
    CAPACITY,
    Boolean,
    Categorical,
    Column,
    Cyclic,
    Date,
    Embedding,
    Numeric,
)
from kernel_bandits.features.rows import FrameLike, Row, as_rows, is_frame
from kernel_bandits.features.values import is_gap, level_of, moment_of

# Columns whose name ends like this and whose whole numbers lie in this range go round in a circle of this period.
_CYCLES = {
    "hour": (0, 24, 24),
    "weekday": (0, 7, 7),
    "dayofweek": (0, 7, 7),
    "month": (1, 12, 12),
    "dayofyear": (1, 366, 365.25),
}


def infer(frame: FrameLike, actions: Any) -> tuple[dict[str, Column], Arms | dict[str, Column]]:
    """Return the two sides of the description that a sample of contexts and the actions suggest."""
    context = infer_columns("frame", as_rows("frame", frame))
    if is_frame(actions) or (isinstance(actions, list) and actions and isinstance(actions[0], Mapping)):
        return context, infer_columns("actions", as_rows("actions", actions))
    return context, actions if isinstance(actions, Arms) else Arms(_names(actions))


def _names(actions: Any) -> list[Any]:
    if isinstance(actions, (str, bytes)) or not hasattr(actions, "__iter__"):
        raise InputError(f"actions: expected the names of the arms or a sample of actions, got {actions!r}.")
    # a column of labels will do: each once, in the order of their appearance
    return list(dict.fromkeys(level_of(name) for name in actions))


def infer_columns(place: str, rows: Sequence[Row]) -> dict[str, Column]:
    """Return what each column of a sample is."""
    if not rows:
        raise InputError(f"{place}: expected a sample of rows, got none.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column(place, name, [row.get(name) for row in rows]) for name in names}


def _column(place: str, name: str, values: list[Any]) -> Column:
    present = [value for value in values if not is_gap(value)]
    missing = len(present) < len(values)
    if not present:
        raise InputError(f"{place}: column {name!r} is empty; leave it out, or describe it yourself.")
    if all(isinstance(value, (bool, np.bool_)) for value in present):
        return Boolean(missing)
    if all(isinstance(value, (int, float, np.integer, np.floating)) for value in present):
        return _number_column(name, np.array(present, dtype=np.float64), missing)
    if all(isinstance(value, (date, np.datetime64)) for value in present):
        return Date(missing)
    if all(isinstance(value, (list, tuple, np.ndarray)) for value in present):
        lengths = {len(value) for value in present}
        if len(lengths) > 1:
            raise InputError(f"{place}: column {name!r} holds vectors of lengths {sorted(lengths)}, expected one.")
        return Embedding(lengths.pop(), missing)
    if all(isinstance(value, str) for value in present) and all(map(_is_moment, present)):
        return Date(missing)
    if all(map(_reads_as_number, present)):
        warnings.warn(
            f"{place}: column {name!r} is text that reads as numbers, such as {present[0]!r}; it is taken for names. "
            "If it is a quantity, convert it with float(…) first.",
            stacklevel=4,
        )
    return _category(place, name, present, missing)


def _number_column(name: str, numbers: Any, missing: bool) -> Column:
    if set(np.unique(numbers)) == {0.0, 1.0}:
        return Boolean(missing)
    bare = name.lower().replace("_", "").replace(" ", "")
    for ending, (low, high, period) in _CYCLES.items():
        if bare.endswith(ending) and low <= numbers.min() and numbers.max() <= high:
            return Cyclic(period, missing)
    return Numeric(missing=missing)


def _category(place: str, name: str, present: list[Any], missing: bool) -> Categorical:
    try:
        counts = Counter(level_of(value) for value in present)
    except InputError as reason:
        raise InputError(f"{place}: column {name!r}: {reason}") from reason
    levels = [level for level in counts if level is not None]
    if len(levels) > CAPACITY:
        return Categorical(missing=missing)
    return Categorical(sorted(levels, key=str), missing)


def _is_moment(value: str) -> bool:
    # an eight-digit number reads as a date, too, but nobody writes dates of contexts like that
    if value.isdigit():
        return False
    try:
        return moment_of(value) is not None
    except InputError:
        return False


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, str)
