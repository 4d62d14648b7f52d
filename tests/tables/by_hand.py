"""Encoding as one would write it by hand, for one column at a time, and random tables to try it on.

Written from the documentation and apart from the library: lists of numbers, one row after the other, with what was
learned before.
"""

import hashlib
import math
from datetime import datetime

import numpy as np
from hypothesis import strategies as st

import kernel_bandits as kb

CAPACITY = 30
KINDS = (
    *("number", "log", "range", "levels", "found", "many"),
    *("ordered", "boolean", "cyclic", "date", "embedding"),
)
NUMBERS = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6)
TEXTS = st.text(max_size=3)
# few enough to be met again, many enough to go beyond the capacity
LEVELS = st.sampled_from([f"level {i}" for i in range(45)]) | TEXTS | st.integers(-5, 5) | st.booleans()


def signs(level, width):
    """±1/√width by the bits of a hash of the level."""
    key = f"text {level}" if isinstance(level, str) else f"number {int(level) if level == int(level) else level!r}"
    source = hashlib.blake2b(key.encode("utf-8", "surrogatepass")).digest()
    while 8 * len(source) < width:
        source += hashlib.blake2b(source).digest()
    bits = "".join(f"{byte:08b}" for byte in source)[:width]
    return [(1 if bit == "1" else -1) / math.sqrt(width) for bit in bits]


def unit(place, width):
    return [1.0 if i == place else 0.0 for i in range(width)]


def level_vector(level, learned, width):
    if level in learned:
        return unit(learned.index(level), width)
    return unit(len(learned), width) if len(learned) < width else signs(level, width)


def circle(share):
    return [math.sin(2 * math.pi * share), math.cos(2 * math.pi * share)]


def is_gap(value):
    return value is None or (isinstance(value, float) and math.isnan(value))


def encode_cell(column, value, past):
    """The numbers of a value, given the values of the column that were learned before, in order."""
    gap = is_gap(value)
    flag = [1.0 if gap else 0.0] if column.missing else []
    match column:
        case kb.Numeric():
            take = math.log if column.logarithm else float
            if column.range is not None:
                low, high = (take(limit) for limit in column.range)
                return [0.5 if gap else (take(value) - low) / (high - low), *flag]
            if not column.missing:
                return [take(value)]
            first = next((take(other) for other in past if not is_gap(other)), None)
            return [0.0 if gap or first is None else take(value) - first, *flag]
        case kb.Ordered():
            levels = list(column.levels)
            return [0.5 if gap else levels.index(value) / (len(levels) - 1), *flag]
        case kb.Boolean():
            return [0.5 if gap else float(value), *flag]
        case kb.Cyclic():
            return [*([0.0, 0.0] if gap else circle((value % column.period) / column.period)), *flag]
        case kb.Embedding():
            norm = 0 if gap else math.sqrt(sum(x * x for x in value))
            return [*([x / norm for x in value] if norm else [0.0] * column.dimension), *flag]
        case kb.Date():
            return [*encode_date(column, value, gap, past), *flag]
        case kb.Categorical():
            return encode_category(column, value, gap, past)


def encode_date(column, value, gap, past):
    if gap:
        return [0.0] * 5
    years = [
        (moment - datetime(2000, 1, 1)).total_seconds() / (365.25 * 86400)
        for moment in [value, *(other for other in past if not is_gap(other))]
    ]
    trend = years[0] if not column.missing else years[0] - years[1] if len(years) > 1 else 0.0
    midnight = value.replace(hour=0, minute=0, second=0, microsecond=0)
    return [trend, *circle((value - midnight).total_seconds() / 86400), *circle(value.isoweekday() % 7 / 7 - 1 / 7)]


def encode_category(column, value, gap, past):
    flag = [1.0 if gap else 0.0] if column.missing else []
    if column.levels is not None and len(column.levels) <= CAPACITY:
        levels, width = list(column.levels), len(column.levels) + 1
        place = levels.index(value) if not gap and value in levels else width - 1
        return [*([0.0] * width if gap else unit(place, width)), *flag]
    learned = list((column.levels or ())[:CAPACITY])
    for other in past:
        if not is_gap(other) and other not in learned and len(learned) < CAPACITY:
            learned.append(other)
    return [*([0.0] * CAPACITY if gap else level_vector(value, learned, CAPACITY)), *flag]


def encode_row(columns, row, past):
    """A row, given the rows that were learned before."""
    return np.array(
        [x for name, column in columns.items() for x in encode_cell(column, row[name], [old[name] for old in past])]
    )


@st.composite
def columns(draw):
    """A column of any kind and values that it may hold, gaps among them where they are declared."""
    missing = draw(st.booleans())
    kind = draw(st.sampled_from(KINDS))
    positive = st.floats(1e-3, 1e6)
    match kind:
        case "number":
            column, values = kb.Numeric(missing=missing), NUMBERS
        case "log":
            column, values = kb.Numeric(logarithm=True, missing=missing), positive
        case "range":
            logarithm = draw(st.booleans())
            column = kb.Numeric(range=(0.5, 20.0), logarithm=logarithm, missing=missing)
            values = positive if logarithm else NUMBERS
        case "levels":
            known = draw(st.lists(st.sampled_from(["a", "b", "c", "d", 1, 2]), min_size=1, unique=True))
            column, values = kb.Categorical(known, missing), st.sampled_from(known) | LEVELS
        case "found":
            column, values = kb.Categorical(missing=missing), LEVELS
        case "many":
            known = [f"level {i}" for i in range(draw(st.integers(31, 40)))]
            column, values = kb.Categorical(known, missing), LEVELS
        case "ordered":
            known = ["small", "medium", "large", "huge"][: draw(st.integers(2, 4))]
            column, values = kb.Ordered(known, missing), st.sampled_from(known)
        case "boolean":
            column, values = kb.Boolean(missing), st.booleans() | st.sampled_from([0, 1, 0.0, 1.0])
        case "cyclic":
            column, values = kb.Cyclic(draw(st.floats(0.1, 1e3)), missing), NUMBERS
        case "date":
            column, values = kb.Date(missing), st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1))
        case "embedding":
            size = draw(st.integers(1, 5))
            numbers = st.integers(-9, 9) | st.floats(-10, 10, allow_subnormal=False).map(lambda x: round(x, 3))
            column, values = kb.Embedding(size, missing), st.lists(numbers, min_size=size, max_size=size)
    return column, (values | st.sampled_from([None, math.nan]) if missing else values)


@st.composite
def tables(draw, least=0, most=5, rows=12):
    """Columns by name and rows of them."""
    found = draw(st.lists(columns(), min_size=least, max_size=most))
    described = {f"column {i}": column for i, (column, _) in enumerate(found)}
    row = st.fixed_dictionaries({f"column {i}": values for i, (_, values) in enumerate(found)})
    return described, draw(st.lists(row, min_size=1, max_size=rows))
