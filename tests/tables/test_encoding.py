"""Encoded by hand and by Features: the same joint points, and the same decisions."""

import math
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from by_hand import LEVELS, encode_row, level_vector, tables
from hypothesis import given
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits.tables.rows import Columns

# Linear in the unit of the largest numbers: were k(s, s) 1e12, rounding alone would move a bound by 1e-6.
KERNEL = kb.Gaussian(2.0) + kb.Linear(1e6)


@given(tables())
def test_rows_are_encoded_as_by_hand_whatever_was_learned_before(table):
    columns, rows = table
    codec = Columns(columns)
    learned = []
    for number, row in enumerate(rows):
        vectors = codec.encode([row], "context")
        np.testing.assert_allclose(vectors[0], encode_row(columns, row, learned), rtol=1e-12, atol=1e-12)
        if number % 3:
            codec = codec.learned(row)
            learned.append(row)


@given(tables(least=1))
def test_what_was_learned_stays_encoded_as_it_was(table):
    columns, rows = table
    codec = Columns(columns)
    kept = []
    for row in rows:
        kept.append(codec.encode([row], "context")[0])
        codec = codec.learned(row)
    np.testing.assert_array_equal(codec.encode(rows, "context"), kept)
    for row in rows:
        assert codec.learned(row) is codec


@given(tables(least=1))
def test_a_layout_has_as_many_columns_as_a_vector(table):
    columns, rows = table
    features = kb.Features(columns, kb.Arms(["a", "b"]))
    width, actions = features.rows.width, features.choices.width
    context = [name for group in features.layout.groups if group.side == "context" for name in group.columns]
    assert len(context) == width == len(features.rows.encode(rows[:1], "context")[0])
    assert features.layout.dimension == width + actions
    assert len(set(features.layout.names)) == features.layout.dimension


@given(tables(), st.lists(LEVELS, min_size=1, max_size=4), st.integers(0, 3), st.data())
def test_decisions_are_those_of_arrays_encoded_by_hand(table, arms, room, data):
    columns, rows = table
    arms = list(dict.fromkeys(arms))
    policy = kb.TablePolicy(kb.k_ucb(KERNEL, seed=1), kb.Features(columns, kb.Arms(arms, room=room)))
    by_hand = kb.k_ucb(KERNEL, seed=1)
    known, width, learned = list(arms), len(arms) + room, []
    for row in rows:
        offer = data.draw(st.lists(st.sampled_from(arms) | LEVELS, min_size=1, max_size=4))
        decision = policy.select(row, offer)
        context, unit = encode_row(columns, row, learned), known[:width]
        actions = np.array([level_vector(name, unit, width) for name in offer])
        expected = by_hand.select(context, actions)
        # rounding may decide between two actions with the same bound
        assert decision.upper_bound == pytest.approx(expected.upper_bound, rel=1e-6, abs=1e-6)
        assert decision.arm == offer[decision.index]
        np.testing.assert_allclose(decision.encoded.context, context, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(decision.encoded.action, actions[decision.index], rtol=1e-12, atol=1e-12)
        policy.update(decision, reward=0.3)
        # with the very numbers, so that rounding cannot make two histories of one
        by_hand.update(decision.encoded.context, decision.encoded.action, 0.3)
        learned.append(row)
        if decision.arm not in known:
            known.append(decision.arm)


@given(tables(rows=6), tables(least=1, most=3, rows=6), st.data())
def test_described_actions_are_encoded_as_by_hand(contexts, actions, data):
    policy = kb.TablePolicy(kb.uniform(seed=0), kb.Features(contexts[0], actions[0]))
    learned, played = [], []
    for row in contexts[1]:
        offer = data.draw(st.lists(st.sampled_from(actions[1]), min_size=1, max_size=3))
        vector, vectors = policy.encode(row, offer)
        np.testing.assert_allclose(vector, encode_row(contexts[0], row, learned), rtol=1e-12, atol=1e-12)
        for encoded, action in zip(vectors, offer, strict=True):
            np.testing.assert_allclose(encoded, encode_row(actions[0], action, played), rtol=1e-12, atol=1e-12)
        decision = policy.select(row, offer)
        assert decision.arm is None
        policy.update(decision, reward=1.0)
        learned.append(row)
        played.append(decision.action)


def test_an_encoding_that_can_be_checked_by_eye():
    columns = {
        "age": kb.Numeric(range=(0, 100)),
        "size": kb.Ordered(["s", "m", "l"]),
        "colour": kb.Categorical(["red", "blue"], missing=True),
        "member": kb.Boolean(),
        "hour": kb.Cyclic(24),
        "basket": kb.Numeric(missing=True),
        "topic": kb.Embedding(2),
    }
    codec = Columns(columns)
    first = {"age": 25, "size": "m", "colour": None, "member": True, "hour": 6, "basket": 80.0, "topic": [3, 4]}
    second = {"age": 50, "size": "l", "colour": "green", "member": 0, "hour": 12, "basket": None, "topic": [0, 0]}
    codec = codec.learned(first)
    third = first | {"basket": 83.0, "colour": "blue"}
    vectors = codec.encode([first, second, third], "context")
    expected = [
        [0.25, 0.5, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0.6, 0.8],
        [0.5, 1.0, 0, 0, 1, 0, 0, 0, -1, 0, 1, 0, 0],
        [0.25, 0.5, 0, 1, 0, 0, 1, 1, 0, 3, 0, 0.6, 0.8],
    ]
    np.testing.assert_allclose(vectors, expected, atol=1e-15)


@given(tables(least=1))
def test_rows_are_read_back(table):
    columns, rows = table
    codec = Columns(columns)
    for row in rows:
        codec = codec.learned(row)
    for row, vector in zip(rows, codec.encode(rows, "context"), strict=True):
        read = codec.read(vector)
        # what was read is encoded to the same numbers again, up to seconds, other levels and the length of vectors
        for name, column in columns.items():
            if isinstance(column, kb.Categorical):
                known = column.levels is None or len(column.levels) > 30 or row[name] in column.levels
                gap = row[name] is None or row[name] != row[name]
                assert read[name] == (row[name] if known and not gap else None)
            elif not isinstance(column, kb.Date):
                again = encode_row({name: column}, {name: read[name]}, [{name: old[name]} for old in rows])
                expected = encode_row({name: column}, {name: row[name]}, [{name: old[name]} for old in rows])
                np.testing.assert_allclose(again, expected, rtol=1e-7, atol=1e-7)


def test_dates_are_read_back_to_the_second():
    codec = Columns({"when": kb.Date()})
    moment = datetime(2024, 2, 29, 18, 30, 12)
    assert codec.read(codec.encode([{"when": moment}], "context")[0]) == {"when": moment}


def test_a_time_zone_counts_for_the_trend_and_its_own_clock_for_the_time_of_day():
    codec = Columns({"when": kb.Date()})
    tokyo = datetime(2024, 1, 1, 6, tzinfo=timezone(timedelta(hours=9)))
    same = datetime(2023, 12, 31, 21, tzinfo=UTC)
    one, other = codec.encode([{"when": tokyo}, {"when": same}], "context")
    assert one[0] == other[0]
    np.testing.assert_allclose(one[1:3], [1, 0], atol=1e-12)
    np.testing.assert_allclose(other[1:3], [-math.sqrt(0.5), math.sqrt(0.5)], atol=1e-12)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (kb.Numeric(), [2, 2.0, np.float32(2), np.int8(2), Decimal("2"), Fraction(4, 2), np.uint64(2)]),
        (kb.Numeric(), [1.0, True, np.True_]),
        (kb.Numeric(missing=True), [None, math.nan, np.nan, np.float32("nan"), Decimal("nan")]),
        (kb.Categorical(), ["FR", np.str_("FR")]),
        (kb.Categorical(), [1, 1.0, True, np.int64(1), np.True_]),
        (kb.Boolean(), [True, np.True_, 1, 1.0, np.int8(1)]),
        (kb.Cyclic(24), [1, 25, -23, np.float64(49)]),
        (kb.Date(), [date(2024, 2, 29), datetime(2024, 2, 29), "2024-02-29", np.datetime64("2024-02-29")]),
        (kb.Date(), ["2024-02-29T18:30", np.datetime64("2024-02-29T18:30:00.000000000")]),
        (kb.Date(missing=True), [None, np.datetime64("NaT")]),
        (kb.Embedding(2), [[3, 4], (0.6, 0.8), np.array([30, 40]), np.float32([0.3, 0.4]) * 10]),
    ],
)
def test_one_value_may_be_written_in_several_ways(column, values):
    codec = Columns({"x": column})
    vectors = codec.encode([{"x": value} for value in values], "context")
    np.testing.assert_allclose(vectors, np.broadcast_to(vectors[0], vectors.shape), atol=1e-7)


def test_levels_beyond_the_capacity_are_nearly_as_far_apart_as_unit_vectors():
    codec = Columns({"city": kb.Categorical()})
    rows = [{"city": f"city {i}"} for i in range(1000)]
    for row in rows:
        codec = codec.learned(row)
    vectors = codec.encode(rows, "context")
    products = vectors @ vectors.T
    np.testing.assert_allclose(np.diag(products), 1.0, atol=1e-12)
    np.testing.assert_array_equal(products[:30, :30], np.eye(30))
    assert np.sqrt(np.mean(products[~np.eye(1000, dtype=bool)] ** 2)) == pytest.approx(1 / math.sqrt(30), rel=0.05)
    assert products[~np.eye(1000, dtype=bool)].max() < 0.95


def test_a_codec_that_learns_leaves_the_one_before_as_it_was():
    columns = {"a": kb.Categorical(), "b": kb.Numeric(missing=True), "c": kb.Date(missing=True)}
    codec = Columns(columns)
    before = pickle.dumps(codec)
    assert codec.learned({"a": "x", "b": 3.0, "c": "2024-01-01"}).levels == {"a": ("x",)}
    assert pickle.dumps(codec) == before


def test_a_bad_number_among_many_rows_is_named():
    codec = Columns({"a": kb.Numeric(), "b": kb.Numeric()})
    rows = [{"a": float(n), "b": 1.0} for n in range(10)]
    for bad in (math.inf, 10**400, "x", 1e101):
        with pytest.raises(kb.InputError, match=r"contexts, row 6, column 'b'"):
            codec.encode([*rows[:6], {"a": 1.0, "b": bad}, *rows[6:]], "contexts")
