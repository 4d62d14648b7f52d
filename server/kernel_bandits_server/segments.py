"""Segments of visitors: the levels of a column, or five ranges of its numbers with as many visitors each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernel_bandits.tables import Boolean, Categorical, Column, Cyclic, Date, Embedding, Features, Numeric, Ordered
from kernel_bandits.tables.values import is_gap, is_number, moment_of

# Columns that are split, the first of them; ranges of numbers, and the visitors that they are taken from.
MOST_COLUMNS, RANGES, FIRST_VISITORS = 20, 5, 50
# Segments of a column. The last three are for further levels, for gaps, and for visitors before the ranges were known.
MOST_SEGMENTS = 16
OTHERS, MISSING, EARLY = MOST_SEGMENTS - 3, MOST_SEGMENTS - 2, MOST_SEGMENTS - 1
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


class Segments:
    """Which segment of each column a visitor belongs to; what is not fixed by the columns is learned from the first.

    Args:
        features: the columns.
    """

    def __init__(self, features: Features) -> None:
        columns = features.context if isinstance(features.context, Mapping) else {}
        split = {name: column for name, column in columns.items() if not isinstance(column, Embedding)}
        self._columns: dict[str, Column] = dict(list(split.items())[:MOST_COLUMNS])
        # per column: the edges between ranges, or the levels; and the first numbers until there are enough
        self._parts: dict[str, list[Any]] = {name: _known_parts(column) for name, column in self._columns.items()}
        self._first: dict[str, list[float]] = {
            name: [] for name, column in self._columns.items() if _has_ranges(column) and not self._parts[name]
        }

    @property
    def columns(self) -> list[str]:
        """The columns that are split, in the order of a code."""
        return list(self._columns)

    def code(self, row: Mapping[str, Any]) -> bytes:
        """Return the number of a visitor's segment in each column."""
        return bytes([self._segment(name, column, row.get(name)) for name, column in self._columns.items()])

    def _segment(self, name: str, column: Column, value: Any) -> int:
        try:
            if is_gap(value):
                return MISSING
            parts = self._parts[name]
            if isinstance(column, Date):
                moment = moment_of(value)
                return MISSING if moment is None else moment.weekday()
            if not _has_ranges(column):
                return self._level(parts, value)
            number = float(value) if is_number(value) else math.nan
            if name in self._first:
                return self._learn(name, number)
            return int(np.searchsorted(parts, number, side="right"))
        except Exception:  # the policy says what is wrong with a value; a segment is only shown
            return MISSING

    @staticmethod
    def _level(levels: list[Any], value: Any) -> int:
        text = str(value)
        if text not in levels:
            if len(levels) >= OTHERS:
                return OTHERS
            levels.append(text)
        return levels.index(text)

    def _learn(self, name: str, number: float) -> int:
        first = self._first[name]
        first.append(number)
        if len(first) < FIRST_VISITORS:
            return EARLY
        del self._first[name]
        edges = np.unique(np.quantile(first, np.arange(1, RANGES) / RANGES, method="inverted_cdf"))
        self._parts[name] = edges.tolist()
        return EARLY

    def labels(self, name: str) -> list[str]:
        """Return the name of each segment of a column, in order."""
        column, parts = self._columns[name], self._parts[name]
        if isinstance(column, Date):
            known = _DAYS
        elif not _has_ranges(column):
            known = [str(part) for part in parts]
        elif not parts:
            known = ["all" if name not in self._first else "–"]
        else:
            ends = [f"{part:.3g}" for part in parts]
            known = [f"below {ends[0]}", *map("{} to {}".format, ends[:-1], ends[1:]), f"{ends[-1]} and above"]
        padded = [*known, *[""] * (OTHERS - len(known))]
        return [*padded, "others", "missing", f"the first {FIRST_VISITORS}"]

    def dump(self) -> list[Any]:
        """Return what was learned, as JSON has it."""
        return [self._parts, self._first]

    def load(self, state: list[Any]) -> None:
        """Take what :meth:`dump` returned."""
        self._parts, self._first = state


def _has_ranges(column: Column) -> bool:
    return isinstance(column, (Numeric, Cyclic))


def _known_parts(column: Column) -> list[Any]:
    """Return the edges or levels that a column is described with."""
    if isinstance(column, Cyclic):
        return [column.period * place / 4 for place in (1, 2, 3)]
    if isinstance(column, Boolean):
        return ["False", "True"]
    if isinstance(column, (Categorical, Ordered)):
        return [str(level) for level in (getattr(column, "levels", None) or ())][:OTHERS]
    return []
