"""Files of every format become the same log; damaged ones are refused with the row named."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import kernel_bandits as kb
from kernel_bandits import logs
from kernel_bandits.logs import ContinuousLog, Log

COLUMNS = {
    "context_age": [0.5, 1.5, 2.5, 3.5],
    "context_city": ["Oslo", "Rome", "Oslo", "Bern"],
    "action": [0, 2, 1, 2],
    "reward": [1.0, 0.0, 0.5, 1.0],
    "propensity": [0.2, 0.5, 0.3, 0.5],
}


def check(log):
    assert isinstance(log, Log)
    expected = zip(COLUMNS["context_age"], COLUMNS["context_city"], strict=True)
    assert log.table() == [{"age": age, "city": city} for age, city in expected]
    assert log.features.context == {"age": kb.Numeric(), "city": kb.Categorical(["Bern", "Oslo", "Rome"])}
    assert log.played.tolist() == COLUMNS["action"]
    assert log.rewards.tolist() == COLUMNS["reward"]
    assert log.propensities.tolist() == COLUMNS["propensity"]
    assert len(log.actions) == 3


def rows():
    return [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]


def write_csv(path, table):
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines))
    return path


def test_our_schema_in_three_formats(tmp_path):
    parquet.write_table(pa.table(COLUMNS), tmp_path / "log.parquet")
    check(logs.read(tmp_path / "log.parquet"))
    (tmp_path / "parts").mkdir()
    for place in range(2):
        part = {name: values[2 * place : 2 * place + 2] for name, values in COLUMNS.items()}
        parquet.write_table(pa.table(part), tmp_path / "parts" / f"{place}.parquet")
    check(logs.read(tmp_path / "parts"))
    check(logs.read(write_csv(tmp_path / "log.csv", COLUMNS)))
    nested = [{"context": {"age": row.pop("context_age"), "city": row.pop("context_city")}, **row} for row in rows()]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, nested)))
    check(logs.read(tmp_path / "log.jsonl"))


def test_names_of_columns_and_of_actions(tmp_path):
    names = {"context_age": "age", "context_city": "city", "action": "offer", "reward": "paid", "propensity": "p"}
    table = {names[name]: values for name, values in COLUMNS.items()}
    table["offer"] = ["a", "c", "b", "c"]
    path = write_csv(tmp_path / "log.csv", table)
    log = logs.read(path, context=["age", "city"], action="offer", reward="paid", propensity="p")
    check(log)
    assert log.names == ("a", "b", "c")
    with pytest.raises(kb.InputError, match=r"reward: expected a column 'reward'.*name it with reward="):
        logs.read(path, context=["age"], action="offer", propensity="p")
    features = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    plain = {name: values for name, values in COLUMNS.items() if name != "context_city"}
    numbers = logs.read(write_csv(tmp_path / "numbers.csv", plain), actions=features)
    np.testing.assert_array_equal(numbers.actions, features)
    table = logs.read(write_csv(tmp_path / "table.csv", COLUMNS), actions=features)
    assert table.actions[2] == {"arm": 2, "feature_0": 1.0, "feature_1": 1.0}
    assert table.names == (0, 1, 2)


def test_decisions_and_records_are_logs(tmp_path):
    policy = kb.inverse_gap_weighting(kb.Gaussian(0.5), seed=0)
    actions = np.linspace(0, 1, 5)[:, None]
    decisions = [policy.select([0.1 * i, 0.5], actions) for i in range(8)]
    lines = [json.dumps({**decision.to_dict(), "reward": 1.0}) for decision in decisions]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    log = logs.read(tmp_path / "log.jsonl", actions=actions)
    np.testing.assert_array_equal(log.probabilities, [decision.probabilities for decision in decisions])
    np.testing.assert_array_equal(log.contexts, [decision.context for decision in decisions])
    boxed = [kb.uniform(seed=0).select([0.3], kb.Box([0.0, 0.0], [1.0, 2.0])) for _ in range(3)]
    (tmp_path / "box.jsonl").write_text("\n".join(json.dumps({**one.to_dict(), "reward": 0.0}) for one in boxed))
    continuous = logs.read(tmp_path / "box.jsonl")
    assert isinstance(continuous, ContinuousLog)
    np.testing.assert_array_equal(continuous.actions, [one.action for one in boxed])
    assert continuous.densities.tolist() == [0.5] * 3


def test_the_open_bandit_format(tmp_path):
    table = {
        "": [0, 1, 2],
        "timestamp": ["a", "b", "c"],
        "item_id": [4, 0, 2],
        "position": [1, 3, 1],
        "click": [0, 1, 0],
        "propensity_score": [0.2, 0.1, 0.7],
        "user_feature_0": ["x", "y", "x"],
        "user-item_affinity_0": [0.0, 0.0, 0.0],
    }
    log = logs.read(write_csv(tmp_path / "all.csv", table))
    assert log.played.tolist() == [4, 0, 2]
    assert log.rewards.tolist() == [0.0, 1.0, 0.0]
    assert log.propensities.tolist() == [0.2, 0.1, 0.7]
    # the position is a name and no quantity
    assert log.table()[1] == {"user_feature_0": "y", "position": "position 3"}
    assert log.names == (0, 1, 2, 3, 4)


def test_vowpal_wabbit_lines(tmp_path):
    (tmp_path / "log.vw").write_text("2:-1.0:0.5 |u age:2 male\n1:0:0.25 |u male\n")
    log = logs.read(tmp_path / "log.vw")
    assert log.played.tolist() == [1, 0]
    assert log.rewards.tolist() == [1.0, 0.0]
    assert log.propensities.tolist() == [0.5, 0.25]
    np.testing.assert_array_equal(log.contexts, [[2.0, 1.0], [0.0, 1.0]])


def test_vowpal_wabbit_blocks(tmp_path):
    text = "shared |u age:2\n|a red\n0:-3:0.7 |a blue\n\nshared |u age:1\n0:1:0.4 |a red\n|a blue\n"
    (tmp_path / "log.txt").write_text(text)
    log = logs.read(tmp_path / "log.txt")
    assert log.played.tolist() == [1, 0]
    assert log.rewards.tolist() == [3.0, -1.0]
    np.testing.assert_array_equal(log.contexts, [[2.0], [1.0]])
    np.testing.assert_array_equal(log.actions, np.eye(2))


def test_vowpal_wabbit_decision_json(tmp_path):
    first = {"_label_cost": -1, "_label_probability": 0.8, "_labelIndex": 1, "a": [2, 1], "p": [0.8, 0.2]}
    first["c"] = {"user": {"age": 3, "city": "Rome"}, "_multi": [{"i": {"x": 1}}, {"i": {"y": 1}}]}
    second = {**first, "_label_cost": 0.5, "_labelIndex": 0, "_label_probability": 0.2}
    (tmp_path / "log.dsjson").write_text("\n".join(map(json.dumps, [first, second])))
    log = logs.read(tmp_path / "log.dsjson")
    assert log.played.tolist() == [1, 0]
    assert log.rewards.tolist() == [1.0, -0.5]
    np.testing.assert_array_equal(log.probabilities, [[0.2, 0.8]] * 2)
    np.testing.assert_array_equal(log.contexts, [[3.0, 1.0]] * 2)
    np.testing.assert_array_equal(log.actions, np.eye(2))


ROUND = '"action": 0, "reward": 1, "propensity": 0.5'
UNEVEN = [
    (
        f'{{{ROUND}, "probabilities": [0.5, 0.5]}}\n{{{ROUND}, "probabilities": [1.0]}}',
        "row 1: probabilities: expected a list of 2 numbers",
    ),
    (f'{{{ROUND}, "probabilities": 0.5}}', "row 0: probabilities: expected a list"),
    (
        f'{{{ROUND}, "probabilities": [0.5, 0.5]}}\n{{{ROUND}, "probabilities": [0.5, "half"]}}',
        "row 1: probabilities: expected a list of 2 numbers",
    ),
    (f'{{{ROUND}, "context": {{"user": {{"age": 3}}}}}}', "row 0: context_user: expected a number or a text"),
]
DAMAGED = [
    ("log.csv", "action,reward,propensity\n0,1,0.5\n1,x,0.5", "row 1: reward: expected a number, got 'x'"),
    ("log.csv", "action,reward,propensity\n0,1,0.5\n1,1", "row 1: columns: expected 3 values, got 2"),
    ("log.csv", "action,reward,propensity\n0,1,0.5\n1,1,1.5", "row 1: propensity"),
    ("log.csv", "action,reward,propensity\n0,1,0.5\n1,1,", "row 1: propensity"),
    ("log.csv", "action,reward,propensity\n0.5,1,0.5", "row 0: action: expected a whole number"),
    ("log.csv", "action,reward,propensity\n-1,1,0.5", "row 0: action"),
    ("log.csv", "action,reward,propensity", "at least one row"),
    ("log.csv", "", "expected a line of column names"),
    ("log.jsonl", '{"action": 0, "reward": 1, "propensity": 1}\n{"action": 0, "reward": 1}', "row 1: columns"),
    ("log.jsonl", '{"action": 0, "reward": 1, "propensity": 1}\n{"act', "row 1: line: expected a JSON object"),
    ("log.jsonl", "[1]", "row 0: line"),
    ("log.vw", "2:-1:0.5 | a\n| a", "row 1: label"),
    ("log.vw", "2:-1:much | a", "row 0: label: expected numbers"),
    ("log.vw", "2:-1:0.5 | a:high", "row 0: features"),
    ("log.dsjson", '{"a": [1], "p": [1.0], "c": {}}', "row 0: line: expected a labelled decision with"),
    ("log.xls", "", "format: expected one of"),
    ("log.csv", "action,action,reward,propensity\n0,1,1,0.5", "got 'action' twice"),
    ("log.csv", "action,reward,propensity\nred,1,0.5\n,1,0.5", "row 1: action: expected an action, got none"),
    ("log.csv", "action,reward,propensity\n0,1,0.5\n123456789,1,0.5", "row 1: action: expected a number below 10000"),
    *(("log.jsonl", text, words) for text, words in UNEVEN),
]


@pytest.mark.parametrize(("name", "text", "words"), DAMAGED)
def test_damaged_files_are_refused_with_the_row_named(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(kb.InputError, match=words):
        logs.read(tmp_path / name)


def test_what_spreadsheets_add_is_skipped(tmp_path):
    (tmp_path / "log.csv").write_text("\ufeffaction,reward,propensity\n0,1,0.5\n1,0,0.5\n\n", encoding="utf-8")
    log = logs.read(tmp_path / "log.csv")
    assert log.played.tolist() == [0, 1]


def test_missing_files_and_cells(tmp_path):
    with pytest.raises(kb.InputError, match="no such file"):
        logs.read(tmp_path / "none.csv")
    parquet.write_table(pa.table({**COLUMNS, "reward": [1.0, None, 0.0, 0.0]}), tmp_path / "log.parquet")
    with pytest.raises(kb.InputError, match="row 1: reward: expected a value"):
        logs.read(tmp_path / "log.parquet")
