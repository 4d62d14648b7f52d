"""Damaged rows: an error that names the column, or a reading that is documented; nothing is learned from a refusal."""

import math
import pickle
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest

import kernel_bandits as kb

COLUMNS = {
    "age": kb.Numeric(),
    "income": kb.Numeric(logarithm=True, missing=True),
    "size": kb.Ordered(["s", "m", "l"]),
    "country": kb.Categorical(missing=True),
    "colour": kb.Categorical(["red", "blue"]),
    "member": kb.Boolean(),
    "hour": kb.Cyclic(24),
    "when": kb.Date(),
    "topic": kb.Embedding(3),
}
JUNK = [
    *(None, math.nan, math.inf, -math.inf, 10**400, -(10**30), 1e300, 0, -1, 0.5, 1, 1j, True, False),
    *("", "34", "nan", "FR", "m", "2024-02-30", "2024-02-29", "\ud800", "\x00", "é̄🙃", "א" * 500, b"bytes"),
    *([], [1.0], [1, 2, 3], [1, 2, math.nan], ["a", "b", "c"], (0, 0, 0), {}, {"a": 1}, set(), object(), int, print),
    *(np.array(3.0), np.array([1.0, 2.0, 3.0]), np.array([[1.0]]), np.float64("nan"), np.int64(7), np.str_("FR")),
    *(date(2024, 2, 29), datetime(1, 1, 1), np.datetime64("NaT"), np.datetime64("2024-02-29"), Decimal("sNaN")),
    *(Decimal("1e500"), np.ma.masked, np.timedelta64(1, "D"), np.array(["a"], dtype=object), range(3), lambda: 1),
]


def valid_row(generator):
    return {
        "age": float(generator.integers(18, 90)),
        "income": None if generator.random() < 0.2 else float(generator.lognormal(10)),
        "size": ["s", "m", "l"][generator.integers(3)],
        "country": None if generator.random() < 0.2 else ["FR", "DE", "IT"][generator.integers(3)],
        "colour": ["red", "blue", "green"][generator.integers(3)],
        "member": bool(generator.integers(2)),
        "hour": 24 * float(generator.random()),
        "when": datetime(2024, 1, 1 + int(generator.integers(28)), int(generator.integers(24))),
        "topic": generator.normal(size=3),
    }


def damage(row, generator):
    """One or two things that go wrong with a row, and the columns they happened to."""
    touched = set()
    for _ in range(generator.integers(1, 3)):
        name = list(COLUMNS)[generator.integers(len(COLUMNS))]
        touched.add(name)
        match generator.integers(5):
            case 0:
                row.pop(name, None)
            case 1:
                row[["Age", "countri", "", "\udfff", "incomes", 7, None][generator.integers(7)]] = 1.0
            case 2:
                row[f"{name} "] = row.pop(name, None)
            case _:
                row[name] = JUNK[generator.integers(len(JUNK))]
    return touched


def is_documented(column, value):
    """Whether the guide says how this value is read, in words of its own."""
    gap = value is None or value is np.ma.masked or (isinstance(value, np.datetime64) and np.isnat(value))
    gap = gap or (isinstance(value, (float, Decimal)) and math.isnan(float(str(value).lstrip("s"))))
    if gap:
        return column.missing
    duration = isinstance(value, np.timedelta64)
    number = isinstance(value, (int, float, np.integer, np.floating)) and not duration and abs(value) <= 1e100
    match column:
        case kb.Numeric():
            return number and (value > 0 or not column.logarithm)
        case kb.Cyclic():
            return number
        case kb.Ordered():
            return isinstance(value, str) and value in column.levels
        case kb.Categorical():
            return isinstance(value, str) or number
        case kb.Boolean():
            return number and value in (0, 1)
        case kb.Date():
            return isinstance(value, (date, np.datetime64)) or (isinstance(value, str) and value == "2024-02-29")
        case kb.Embedding():
            try:
                return np.shape(value) == (3,) and bool(np.isfinite(np.array(list(value), dtype=float)).all())
            except (TypeError, ValueError):
                return False


@pytest.fixture(scope="module")
def policy():
    generator = np.random.default_rng(0)
    built = kb.TablePolicy(kb.ek_ucb(kb.Gaussian(3.0), seed=0), kb.Features(COLUMNS, kb.Arms(["a", "b"])))
    for _ in range(15):
        built.update(built.select(valid_row(generator)), reward=float(generator.normal()))
    return built


@pytest.mark.filterwarnings("ignore:.*surrogate.*")
def test_ten_thousand_damaged_rows(policy):
    generator = np.random.default_rng(1)
    calls = [
        lambda row: policy.select(row),
        lambda row: policy.update(row, "a", 1.0),
        lambda row: policy.ask(row, ["a", "new"]),
        lambda row: policy.select_many([row]),
        lambda row: policy.update_many([valid_row(generator), row], ["b", "new"], [0.0, 1.0]),
        lambda row: policy.predict(row),
    ]
    before, refused = pickle.dumps(policy), 0
    for number in range(10_000):
        row = valid_row(generator)
        touched = damage(row, generator)
        if row.keys() == COLUMNS.keys() and all(is_documented(COLUMNS[name], row[name]) for name in touched):
            assert np.isfinite(policy.encode(row)[0]).all(), row
            continue
        with pytest.raises(kb.InputError) as caught:
            calls[number % len(calls)](row)
        words = str(caught.value)
        unknown = [name for name in row if name not in COLUMNS]
        assert any(repr(name) in words for name in [*touched, *unknown]), (row, words)
        assert len(words) < 500
        refused += 1
        assert pickle.dumps(policy) == before, row
    assert refused > 7000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"age": "34"}, r"context, column 'age': expected a number, got '34' \(str\); convert it with float"),
        ({"age": None}, "column 'age': expected a value, got none; describe the column with missing=True"),
        ({"age": math.inf}, "column 'age': expected a number of at most 1e.100 in size, got inf"),
        ({"income": 0}, "column 'income': expected a number above 0"),
        ({"size": "lage"}, "column 'size': expected one of 's', 'm', 'l', got 'lage'"),
        ({"member": "yes"}, "column 'member': expected True or False"),
        ({"when": "yesterday"}, "column 'when': expected a date such as"),
        ({"topic": [1.0, 2.0]}, r"column 'topic': expected 3 numbers, got an array of shape \(2,\)"),
        ({"contry": "FR"}, "context: unknown column 'contry'"),
    ],
)
def test_errors_say_what_was_expected_and_what_came(policy, change, words):
    row = valid_row(np.random.default_rng(0)) | change
    with pytest.raises(kb.InputError, match=words):
        policy.select(row)


def test_a_misspelt_column_is_named_with_the_closest_known_one(policy):
    row = valid_row(np.random.default_rng(0))
    row["contry"] = row.pop("country")
    with pytest.raises(kb.InputError, match=r"unknown column 'contry'; did you mean 'country'\?"):
        policy.select(row)
    del row["contry"]
    with pytest.raises(kb.InputError, match="column 'country' is missing"):
        policy.select(row)


def test_a_bad_row_among_many_is_named_by_its_number(policy):
    generator = np.random.default_rng(0)
    rows = [valid_row(generator) for _ in range(5)]
    rows[3]["hour"] = "noon"
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match="contexts, row 3, column 'hour': expected a number, got 'noon'"):
        policy.update_many(rows, ["a"] * 5, [0.0] * 5)
    assert pickle.dumps(policy) == before


@pytest.mark.parametrize("row", [3, "row", [1.0, 2.0], np.zeros(9), None, [{}, {}], (1, 2)])
def test_what_is_no_row_is_refused(policy, row):
    with pytest.raises(kb.InputError, match="context"):
        policy.select(row)


@pytest.mark.parametrize("reward", [math.nan, math.inf, "high", 1e200])
def test_a_bad_reward_teaches_no_level(policy, reward):
    row = valid_row(np.random.default_rng(0)) | {"country": "Atlantis"}
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match="reward"):
        policy.update(row, "newcomer", reward)
    with pytest.raises(kb.InputError, match="reward"):
        policy.update_many([row, row], ["newcomer", "a"], [0.0, reward])
    assert pickle.dumps(policy) == before
