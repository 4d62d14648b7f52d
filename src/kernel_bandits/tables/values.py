"""What a cell of a table may hold: numbers, levels, moments, gaps; how it is read, shown, and written as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.errors import InputError

Level: TypeAlias = str | int | float | bool

# Squares of numbers beyond this overflow when they are added up.
LARGEST = 1e100
# What pandas and NumPy put where nothing is known; looked up by name, so that pandas need not be there.
_GAPS = {"NAType", "NaTType", "MaskedConstant"}
_MAY_BE_NAN = (float, np.floating, np.datetime64, np.timedelta64)
_NUMBERS = (float, int, np.floating, np.integer, np.bool_, Fraction, Decimal)
_SHOWN = 60


def shown(value: object) -> str:
    """Return a value for an error message, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # an error message must not fail on a value that cannot print itself
        text = f"an object of the class {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def nearest(name: object, known: Iterable[object]) -> str:
    """Return ``; did you mean …?`` if one of the known names is close, else nothing."""
    close = get_close_matches(shown(name).strip("'"), [str(item) for item in known], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def is_gap(value: object) -> bool:
    """Return whether a value stands for nothing: None, NaN, NaT, NA or a masked entry."""
    if isinstance(value, _MAY_BE_NAN):
        # NaN and NaT are not what they are
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()
    return value is None or type(value).__name__ in _GAPS


def is_number(value: object) -> bool:
    """Return whether a value is a number; a length of time is an integer to NumPy, of no unit that we could know."""
    return isinstance(value, _NUMBERS) and not isinstance(value, np.timedelta64)


def number_of(value: Any) -> float:
    """Return a number as a float, NaN for a gap. Booleans count as 0 and 1; text is not read as a number."""
    if (type(value) is float or type(value) is int) and -LARGEST <= value <= LARGEST:
        return float(value)
    if is_gap(value):
        return math.nan
    if is_number(value):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if -LARGEST <= number <= LARGEST:
            return number
        raise InputError(f"expected a number of at most {LARGEST:g} in size, got {shown(value)}.")
    hint = "; convert it with float(…)" if isinstance(value, (str, bytes)) else ""
    raise InputError(f"expected a number, got {shown(value)} ({type(value).__name__}){hint}.")


def level_of(value: Any) -> Level | None:
    """Return a level of a category, None for a gap: text, or a number that serves as a name."""
    if type(value) is str:
        return value
    if is_gap(value):
        return None
    if isinstance(value, np.generic) and not isinstance(value, np.timedelta64):
        value = value.item()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, int, float)) and -LARGEST <= value <= LARGEST:
        return value
    raise InputError(
        f"expected text, or a number of at most {LARGEST:g} in size, got {shown(value)} ({type(value).__name__}); use "
        "str(…)."
    )


def moment_of(value: Any) -> datetime | None:
    """Return a date or a point in time, None for a gap; text is read as ISO 8601, such as ``2024-02-29T18:30``."""
    if is_gap(value):
        return None
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as reason:
            gap = "" if value.strip() else "; for a gap write None"
            raise InputError(f"expected a date such as '2024-02-29' (ISO 8601), got {shown(value)}{gap}.") from reason
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    hint = "; convert seconds since 1970 with datetime.fromtimestamp(…, UTC)" if isinstance(value, _NUMBERS) else ""
    raise InputError(f"expected a date or a datetime, got {shown(value)} ({type(value).__name__}){hint}.")


def as_plain(value: Any) -> Any:
    """Return a value of a table as JSON has it: gaps as None, dates as text, arrays as lists."""
    if type(value) is str:
        return value
    if is_gap(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, (str, int, float, bool, list)) else str(value)
