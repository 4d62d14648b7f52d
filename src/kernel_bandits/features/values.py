"""What a cell of a table may hold, and how it is read: numbers, levels, moments, vectors and gaps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError

Level: TypeAlias = str | int | float | bool

NAN = math.nan
# Squares of numbers beyond this overflow when they are added up.
LARGEST = 1e100
# What pandas puts where nothing is known; looked up by name, so that pandas need not be there.
_GAPS = {"NAType", "NaTType", "MaskedConstant"}
_NUMBERS = (float, int, np.floating, np.integer, np.bool_, Fraction, Decimal)
_SHOWN = 60
_EPOCH = datetime(2000, 1, 1)
SECONDS_A_YEAR = 365.25 * 86400.0


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
    if value is None:
        return True
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    return type(value).__name__ in _GAPS


def number_of(value: Any) -> float:
    """Return a number as a float, NaN for a gap. Booleans count as 0 and 1; text is not read as a number."""
    if (type(value) is float or type(value) is int) and -LARGEST <= value <= LARGEST:
        return float(value)
    # a length of time is an integer to NumPy, of no unit that we could know
    if isinstance(value, _NUMBERS) and not isinstance(value, np.timedelta64):
        try:
            number = NAN if isinstance(value, Decimal) and value.is_nan() else float(value)
        except OverflowError:
            number = math.inf
        if -LARGEST <= number <= LARGEST or number != number:
            return number
        raise InputError(f"expected a number of at most {LARGEST:g} in size, got {shown(value)}.")
    if is_gap(value):
        return NAN
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


def flag_of(value: Any) -> float:
    """Return 0 or 1, NaN for a gap: a boolean, or one of these numbers."""
    if value is True or value is False:
        return float(value)
    if is_gap(value):
        return NAN
    if isinstance(value, _NUMBERS) and not isinstance(value, np.timedelta64) and value in (0, 1):
        return float(value)
    raise InputError(f"expected True or False (or 1 and 0), got {shown(value)} ({type(value).__name__}).")


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


def years_of(moment: datetime) -> float:
    """Return years of 365.25 days since the beginning of 2000; a time zone counts, where there is one."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH).total_seconds() / SECONDS_A_YEAR


def seconds_of(moment: datetime) -> float:
    """Return seconds since midnight on the clock of its own time zone."""
    return 3600.0 * moment.hour + 60.0 * moment.minute + moment.second + 1e-6 * moment.microsecond


def moment_at(years: float) -> datetime:
    """Return the moment that lies a number of years after the beginning of 2000, to the second."""
    return datetime.fromtimestamp(round(years * SECONDS_A_YEAR) + _EPOCH.replace(tzinfo=UTC).timestamp(), UTC).replace(
        tzinfo=None
    )


def unit_vector_of(value: Any, dimension: int) -> FloatArray | None:
    """Return a vector scaled to norm one, None for a gap; a vector of zeros stays as it is."""
    if is_gap(value):
        return None
    try:
        vector = np.asarray(value)
        numbers = vector.astype(np.float64) if vector.dtype.kind in "biuf" else np.array([float(x) for x in value])
    except (TypeError, ValueError, OverflowError) as reason:
        raise InputError(f"expected {dimension} numbers, got {shown(value)} ({type(value).__name__}).") from reason
    if numbers.shape != (dimension,):
        raise InputError(f"expected {dimension} numbers, got an array of shape {numbers.shape}.")
    largest = float(np.abs(numbers).max())
    if not largest <= LARGEST:
        raise InputError(f"expected {dimension} finite numbers, got {largest} among them.")
    return numbers / np.linalg.norm(numbers) if largest > 0.0 else numbers


@lru_cache(maxsize=4096)
def sign_code(level: Level, width: int) -> FloatArray:
    """Return a unit vector with entries ±1/√width that depends on nothing but the level, shape (width,).

    The codes of two levels, and a code and a unit vector, have a scalar product of about ±1/√width: they are nearly as
    far apart as two unit vectors.
    """
    # 1, 1.0 and True are one level, as they are one key of a dictionary
    text = f"text {level}" if isinstance(level, str) else f"number {int(level) if level == int(level) else level!r}"
    source = blake2b(text.encode("utf-8", "surrogatepass")).digest()
    while 8 * len(source) < width:
        source += blake2b(source).digest()
    bits = np.unpackbits(np.frombuffer(source, dtype=np.uint8))[:width].astype(np.float64)
    code = (2.0 * bits - 1.0) / math.sqrt(width)
    code.setflags(write=False)
    return code
