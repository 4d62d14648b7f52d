"""The response plot draws what the policy predicts, with everything else as in the given row."""

from datetime import datetime, timedelta

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.plots.response import response


@pytest.fixture(scope="module")
def policy():
    features = kb.Features(
        {
            "age": kb.Numeric(),
            "country": kb.Categorical(),
            "size": kb.Ordered(["s", "m", "l"]),
            "member": kb.Boolean(missing=True),
            "hour": kb.Cyclic(24),
            "when": kb.Date(),
            "topic": kb.Embedding(2),
        },
        kb.Arms({"red": {"price": 1.0}, "blue": {"price": 3.0}}, columns={"price": kb.Numeric()}),
    )
    built = kb.ek_ucb(kb.Gaussian(3.0), features=features, seed=0)
    generator = np.random.default_rng(0)
    for number in range(40):
        row = {
            "age": float(generator.normal()),
            "country": ["FR", "DE"][number % 2],
            "size": "sml"[number % 3],
            "member": [True, False, None][number % 3],
            "hour": float(24 * generator.random()),
            "when": datetime(2024, 1, 1) + timedelta(days=3 * number),
            "topic": generator.normal(size=2),
        }
        decision = built.select(row)
        built.update(decision, reward=row["age"] + (decision.arm == "red"))
    return built


ROW = {
    "age": 0.5,
    "country": "FR",
    "size": "m",
    "member": None,
    "hour": 8.0,
    "when": datetime(2024, 2, 1),
    "topic": [1.0, 0.0],
}


def test_lines_are_the_predictions(policy):
    figure = response(policy, "age", ROW, values=[-1.0, 0.0, 2.0])
    axes = figure.axes[0]
    for number, line in enumerate(axes.get_lines()[:2]):
        np.testing.assert_array_equal(line.get_xdata(), [-1.0, 0.0, 2.0])
        expected = [policy.predict(ROW | {"age": age}).mean[number] for age in (-1.0, 0.0, 2.0)]
        np.testing.assert_allclose(line.get_ydata(), expected)
        assert line.get_label() == ["red", "blue"][number]
    assert axes.get_xlabel() == "age"
    # the value of the row itself
    assert axes.get_lines()[2].get_xdata()[0] == 0.5


def test_numbers_go_as_far_as_they_were_seen(policy):
    figure = response(policy, "age", ROW)
    ages = figure.axes[0].get_lines()[0].get_xdata()
    seen = [row["age"] for row, _ in policy.codec.decode(policy.points)] + [0.5]
    np.testing.assert_allclose([ages[0], ages[-1]], np.quantile(seen, [0.02, 0.98]))


@pytest.mark.parametrize(
    ("variable", "ticks"),
    [("country", ["FR", "DE"]), ("size", ["s", "m", "l"]), ("member", ["False", "True"])],
)
def test_levels_have_a_place_each(policy, variable, ticks):
    axes = response(policy, variable, ROW, actions=["blue"]).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ticks
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["blue"]


def test_dates_keep_their_day_of_the_week(policy):
    line = response(policy, "when", ROW).axes[0].get_lines()[0]
    moments = np.asarray(line.get_xdata(), dtype="datetime64[s]")
    assert set(np.diff(moments)) == {np.timedelta64(7, "D")}
    assert np.datetime64(ROW["when"]) in moments
    assert moments[-1] - moments[0] > np.timedelta64(100, "D")
    again = response(policy, "when", ROW | {"when": "2024-02-01"}).axes[0].get_lines()[0]
    np.testing.assert_array_equal(again.get_ydata(), line.get_ydata())


def test_a_feature_of_the_arms(policy):
    axes = response(policy, "price", ROW, values=[1.0, 2.0]).axes[0]
    offers = [{"arm": "red", "price": 2.0}, {"arm": "blue", "price": 2.0}]
    np.testing.assert_allclose([line.get_ydata()[1] for line in axes.get_lines()], policy.predict(ROW, offers).mean)


def test_a_heat_map_over_two(policy):
    figure = response(policy, ("hour", "country"), ROW)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["red", "blue"]
    mesh = figure.axes[1].collections[0].get_array()
    assert mesh.shape == (2, 25)
    np.testing.assert_allclose(mesh[1, 0], policy.predict(ROW | {"hour": 0.0, "country": "DE"}).mean[1])


def test_the_policy_stays_as_it_is(policy):
    before = policy.codec.levels, policy.round_index
    response(policy, "country", ROW | {"country": "never met"})
    assert (policy.codec.levels, policy.round_index) == before


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: response(p, "aeg", ROW), r"unknown column 'aeg'; did you mean 'age'\?"),
        (lambda p: response(p, "topic", ROW), "an embedding of 2 numbers"),
        (lambda p: response(p, ("age", "hour", "size"), ROW), "expected one name, or two"),
        (lambda p: response(p, "age", ROW, actions=["red"] * 9), "at most 8 to draw, got 9"),
        (lambda p: response(p, "age", ROW, values=[]), "give some"),
        (lambda p: response(p.inner, "age", ROW), "expected a policy over a table"),
    ],
)
def test_what_cannot_be_drawn_is_refused(policy, call, words):
    with pytest.raises(kb.InputError, match=words):
        call(policy)
