import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import kernel_bandits as kb
from kernel_bandits.actions import are_arms, available_rows

CORNERS = (
    st.integers(1, 4)
    .flatmap(
        lambda dimension: hnp.arrays(float, (2, dimension), elements=st.floats(-1e6, 1e6)).map(
            lambda pair: np.sort(pair, 0)
        )
    )
    .filter(lambda pair: not ((np.diff(pair, axis=0) > 0) & (np.diff(pair, axis=0) < np.finfo(float).tiny)).any())
)


@given(corners=CORNERS, seed=st.integers(0, 100))
def test_points_by_fractions_lie_in_the_box_and_go_back(corners, seed):
    box = kb.Box(*corners)
    fractions = np.random.default_rng(seed).random((5, box.dimension))
    fractions[0], fractions[1] = 0.0, 1.0
    points = box.at(fractions)
    assert box.contains(points).all()
    np.testing.assert_array_equal(points[:2], corners)
    # between corners that hardly differ there are not enough numbers to tell fractions apart
    wide = box.high - box.low > max(1e-6 * np.abs(corners).max(), 1e-300)
    np.testing.assert_allclose(box.fractions(points)[:, wide], fractions[:, wide], atol=1e-9)
    assert not box.contains(box.high[None, :] + [[1.0]])[0]


def test_points_outside_are_moved_to_the_wall():
    box = kb.Box([0.0, 1.0, 5.0], [2.0, 3.0, 5.0])
    np.testing.assert_array_equal(
        box.fractions(np.array([[-1.0, 2.0, 9.0], [7.0, 9.0, 5.0]])), [[0, 0.5, 0], [1, 1, 0]]
    )


def test_samples_fill_the_box_evenly():
    box = kb.Box([-1.0, 10.0], [1.0, 40.0])
    sample = box.sample(np.random.default_rng(0), 20_000)
    assert box.contains(sample).all()
    np.testing.assert_allclose(sample.mean(axis=0), [0.0, 25.0], atol=0.3)
    np.testing.assert_allclose(sample.std(axis=0), np.array([2.0, 30.0]) / np.sqrt(12), rtol=0.02)


def test_numbers_stand_for_every_coordinate():
    assert kb.Box(0, 1) == kb.Box([0.0], [1.0])
    assert kb.Box(0, [1, 2]) == kb.Box([0.0, 0.0], [1.0, 2.0])
    assert kb.Box(0, 1).dimension == 1
    assert kb.Box(0, 1) != kb.Box(0, 2)
    assert kb.Box(0, 1) != (0, 1)
    assert len({kb.Box(0, 1), kb.Box(0.0, 1.0), kb.Box(0, 2)}) == 2
    assert repr(kb.Box(0, [1, 2])) == "Box([0.0, 0.0], [1.0, 2.0])"
    # a list of one is a forgotten coordinate
    with pytest.raises(kb.InputError, match="got 2 and 1 coordinates; a number instead of a list"):
        kb.Box([0.0, 0.0], [40.0])


def test_a_box_cannot_be_changed_and_keeps_no_array_of_the_caller():
    low = np.zeros(2)
    box = kb.Box(low, [1.0, 1.0])
    low[:] = 9.0
    assert box == kb.Box([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        box.low[0] = 2.0
    with pytest.raises(AttributeError, match="immutable"):
        box.low = np.ones(2)
    assert pickle.loads(pickle.dumps(box)) == box


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.0, 0.0, "low ≤ high, got 1 above 0 in coordinate 0"),
        ([0.0, 2.0], [1.0, 1.0], "coordinate 1"),
        ([0.0, 0.0], [1.0, 1.0, 1.0], "one dimension"),
        ([], [], "at least 1"),
        (np.nan, 1.0, "low: expected finite"),
        (0.0, np.inf, "high: expected finite"),
        (-1e308, 1e308, "high - low"),
        ([[0.0]], [1.0], "low: expected a vector"),
        ("a", 1.0, "low: expected real numbers"),
    ],
)
def test_bad_boxes_are_named(low, high, words):
    with pytest.raises(kb.InputError, match=words):
        kb.Box(low, high)


def test_available_rows():
    np.testing.assert_array_equal(available_rows([False, True, True], 3), [1, 2])


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([True], "expected 2 booleans"),
        ([[True, True]], "expected 2 booleans"),
        ([1, 0], "expected 2 booleans"),
        ([False, False], "at least one action"),
    ],
)
def test_bad_masks_are_named(mask, words):
    with pytest.raises(kb.InputError, match=words):
        available_rows(mask, 2)


def test_a_box_has_names_and_units():
    box = kb.Box([0, 1], [2, 3], names=["dose", "time"], units=["mg", ""])
    assert [box.label(0), box.label(1)] == ["dose (mg)", "time"]
    assert box.named([1.0, 2.0]) == {"dose": 1.0, "time": 2.0}
    assert box == kb.Box([0, 1], [2, 3])
    copied = pickle.loads(pickle.dumps(box))
    assert (copied, copied.names, copied.units) == (box, box.names, box.units)
    assert "dose" in repr(box)
    with pytest.raises(kb.InputError, match="dose"):
        kb.Box([3, 1], [2, 3], names=["dose", "time"])
    for labels in (["dose"], "ab", [1, 2], ["a", "a"]):
        with pytest.raises(kb.InputError, match="names"):
            kb.Box([0, 1], [2, 3], names=labels)


@pytest.mark.parametrize(
    ("actions", "expected"),
    [(np.eye(3), True), ([[0.0, 1.0]], True), ([[1.0], [0.0]], False), ([[0.5, 0.5]], False), ([[1.0, 1.0]], False)],
)
def test_unit_vectors_are_arms(actions, expected):
    assert are_arms(np.array(actions)) is expected


def test_a_box_may_be_narrow_as_long_as_its_width_has_digits():
    policy = kb.ek_ucb(seed=0)
    box = kb.Box([0.0], [1e-300])
    for number in range(9):
        decision = policy.select([0.5], box)
        assert 0.0 <= decision.action[0] <= 1e-300
        policy.update([0.5], decision.action, float(number % 3))
    with pytest.raises(kb.InputError, match="smaller unit"):
        kb.Box([0.0], [1e-310])
