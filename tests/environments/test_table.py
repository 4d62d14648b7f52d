"""A table as a bandit: its rows are the contexts, its labels or reward columns the rewards."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import kernel_bandits as kb
from kernel_bandits.environments import Table
from kernel_bandits.loop import Simulation

ROWS = [{"x": float(i % 7), "colour": "rgb"[i % 3], "kind": ["even", "odd"][i % 2]} for i in range(42)]


def test_the_right_class_earns_one():
    table = Table(ROWS, reward="kind")
    assert table.actions == ["even", "odd"]
    assert table.features.context == {"x": kb.Numeric(), "colour": kb.Categorical(["b", "g", "r"])}
    np.testing.assert_array_equal(table.rewards, [[i % 2 == 0, i % 2 == 1] for i in range(42)])
    generator = np.random.default_rng(0)
    met = []
    for _ in range(42):
        offer = table.next_round(generator)
        np.testing.assert_array_equal(offer.rows, np.eye(2))
        met.append((offer.context[0], *table.expected_rewards(offer.context, offer.rows)))
    # each row once, with its own reward
    assert sorted(met) == sorted((row["x"], row["kind"] == "even", row["kind"] == "odd") for row in ROWS)


def test_rows_of_one_context_keep_their_own_rewards():
    rows = [{"x": 1.0, "kind": "a"}, {"x": 1.0, "kind": "b"}, {"x": 1.0, "kind": "b"}]
    table = Table(rows, reward="kind")
    np.testing.assert_allclose(table.expected_rewards(np.array([1.0]), np.eye(2)), [1 / 3, 2 / 3])
    generator = np.random.default_rng(0)
    earned = [table.expected_rewards(table.next_round(generator).context, np.eye(2)).tolist() for _ in range(3)]
    assert sorted(earned) == [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]


def test_a_run_over_a_table_learns_it():
    generator = np.random.default_rng(0)
    rows = [{"x": float(x), "label": "high" if x > 0 else "low"} for x in generator.normal(size=300)]
    table = Table(rows, reward="label")
    result = kb.run(kb.ek_ucb(kb.Gaussian(1.0), seed=0), table, horizon=300, seed=1)
    assert set(result.rewards.tolist()) <= {0.0, 1.0}
    assert result.rewards[-100:].mean() > 0.9
    assert result.regret[-1] == pytest.approx(300 - result.rewards.sum())
    again = kb.run(kb.ek_ucb(kb.Gaussian(1.0), seed=0), table, horizon=300, seed=1)
    np.testing.assert_array_equal(again.rewards, result.rewards)
    np.testing.assert_array_equal(again.contexts, result.contexts)


def test_the_optimum_is_the_best_of_the_row():
    table = Table(ROWS, reward="kind")
    for choose, regret in ((np.argmax, 0.0), (np.argmin, 1.0)):
        simulation = Simulation(table, seed=0)
        for _ in range(100):
            offer = simulation.offer()
            row = int(choose(table.expected_rewards(offer.context, offer.rows)))
            assert simulation.play(row) == (1.0 - regret, regret)


def test_a_number_is_guessed():
    rows = [{"x": float(i), "price": 100.0 + i} for i in range(101)]
    table = Table(rows, reward="price")
    assert len(table.actions) == 10
    np.testing.assert_allclose([action["guess"] for action in table.actions], 105.0 + 10 * np.arange(10))
    np.testing.assert_allclose(table.rewards[5], 1 - np.abs(105 - (105 + 10 * np.arange(10))) / 100)
    assert table.features.actions == {"guess": kb.Numeric()}
    assert kb.run(kb.uniform(seed=0), table, horizon=5, seed=0).actions.shape == (5, 1)


def test_reward_columns_and_functions():
    rows = [{"x": 0.5, "red_profit": 1.0, "blue_profit": -2.0}, {"x": 1.5, "red_profit": 3.0, "blue_profit": 0.0}]
    table = Table(rows, reward={"red": "red_profit", "blue": "blue_profit"})
    assert table.features == kb.Features({"x": kb.Numeric()}, kb.Arms(["red", "blue"], room=0))
    np.testing.assert_array_equal(table.rewards, [[1, -2], [3, 0]])
    offers = [{"price": 1.0}, {"price": 3.0}]
    table = Table(rows, reward=lambda row, action: row["x"] * action["price"], actions=offers)
    np.testing.assert_array_equal(table.rewards, [[0.5, 1.5], [1.5, 4.5]])
    assert set(table.features.context) == {"x", "red_profit", "blue_profit"}


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas"])
def test_tables_from_files_and_frames(kind, tmp_path):
    data = pa.Table.from_pylist(ROWS)
    path = tmp_path / f"table.{kind}"
    if kind == "csv":
        pyarrow.csv.write_csv(data, path)
    elif kind == "parquet":
        pyarrow.parquet.write_table(data, path)
    table = Table(pd.DataFrame(ROWS) if kind == "pandas" else str(path), reward="kind")
    np.testing.assert_array_equal(table.rewards, Table(ROWS, reward="kind").rewards)
    assert table.rows[0]["colour"] == "r"
    assert "2 actions" in repr(table)


def test_features_may_be_given():
    features = kb.Features({"x": kb.Numeric(), "colour": kb.Categorical()}, kb.Arms(["even", "odd"]))
    table = Table(ROWS, reward="kind", features=features)
    offer = table.next_round(np.random.default_rng(0))
    assert offer.context.shape == (31,)
    assert offer.rows.shape == (2, 10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], "kind"), "at least one row"),
        ((ROWS, "knd"), "row 0 has no column 'knd'; did you mean 'kind'"),
        (([{"x": 1, "y": None}], "y"), "row 0 has nothing in column 'y'"),
        ((ROWS, "kind", ["even"]), "leave actions out"),
        ((ROWS, max), "actions: expected the arms"),
        ((ROWS, {"a": "colour"}), "reward: row 0, column 'colour': expected a number"),
        (("nowhere.csv", "kind"), "cannot read"),
        (("table.xlsx", "kind"), "ends in .csv or .parquet"),
    ],
)
def test_what_is_no_bandit_is_refused(arguments, words):
    with pytest.raises(kb.InputError, match=words):
        Table(*arguments)


def test_contexts_and_actions_of_other_tables_are_refused():
    table = Table(ROWS, reward="kind")
    with pytest.raises(kb.InputError, match="context: expected a row of the table"):
        table.expected_rewards(np.full(5, 9.0), np.eye(2))
    offer = table.next_round(np.random.default_rng(0))
    assert table.expected_rewards(offer.context, offer.rows[:1]).shape == (1,)
    with pytest.raises(kb.InputError, match="actions: expected actions that the table offers"):
        table.expected_rewards(offer.context, 2 * offer.rows)
