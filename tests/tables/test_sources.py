"""pandas, polars, dicts, NumPy records and pyarrow give the same decisions; a scikit-learn transformer works too."""

import pickle
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import kernel_bandits as kb
from kernel_bandits.tables.rows import as_row, as_rows

KERNEL = kb.Gaussian(2.0)
FEATURES = kb.Features(
    context={
        "age": kb.Numeric(),
        "country": kb.Categorical(),
        "member": kb.Boolean(),
        "spent": kb.Numeric(missing=True),
        "when": kb.Date(),
    },
    actions=kb.Arms(["red", "blue", "green"]),
)


def sample(count=40):
    generator = np.random.default_rng(0)
    return [
        {
            "age": int(generator.integers(18, 80)) / 50,
            "country": ["FR", "DE", "IT"][generator.integers(3)],
            "member": bool(generator.integers(2)),
            "spent": None if generator.random() < 0.3 else float(generator.normal()),
            "when": datetime(2024, 3, 1 + int(generator.integers(30)), int(generator.integers(24))),
        }
        for _ in range(count)
    ]


ROWS = sample()
STRUCTURED = np.array(
    [(r["age"], r["country"], r["member"], np.nan if r["spent"] is None else r["spent"], r["when"]) for r in ROWS],
    dtype=[("age", "f8"), ("country", "U2"), ("member", "?"), ("spent", "f8"), ("when", "datetime64[s]")],
)
ONE_BY_ONE = {
    "dicts": ROWS,
    "pandas rows": [row for _, row in pd.DataFrame(ROWS).iterrows()],
    "pandas tuples": list(pd.DataFrame(ROWS).itertuples()),
    "pandas frames of one row": [pd.DataFrame(ROWS).iloc[[i]] for i in range(len(ROWS))],
    "polars rows": list(pl.DataFrame(ROWS).iter_rows(named=True)),
    "polars frames of one row": [pl.DataFrame(ROWS)[i] for i in range(len(ROWS))],
    "NumPy records": list(STRUCTURED),
    "pandas with NA": [row for _, row in pd.DataFrame(ROWS).convert_dtypes().iterrows()],
}
FRAMES = {
    "dicts": ROWS,
    "pandas": pd.DataFrame(ROWS),
    "pandas with NA": pd.DataFrame(ROWS).convert_dtypes(),
    "polars": pl.DataFrame(ROWS),
    "pyarrow": pa.Table.from_pylist(ROWS),
    "NumPy": STRUCTURED,
    "a generator": ROWS,
}


def play(rows):
    policy = kb.TablePolicy(kb.ek_ucb(KERNEL, seed=0), FEATURES)
    arms, means = [], []
    for number, row in enumerate(rows):
        decision = policy.select(row)
        policy.update(decision, reward=np.sin(number) + (decision.arm == "red"))
        arms.append(decision.arm)
        means.append(decision.mean)
    return arms, means


@pytest.mark.parametrize("source", ONE_BY_ONE)
def test_rows_of_any_source_give_the_same_decisions(source):
    assert play(ONE_BY_ONE[source]) == play(ROWS)


@pytest.mark.parametrize("source", FRAMES)
def test_frames_of_any_source_teach_the_same(source):
    arms = [["red", "blue", "green"][i % 3] for i in range(len(ROWS))]
    rewards = np.sin(np.arange(len(ROWS)))
    frame = (row for row in ROWS) if source == "a generator" else FRAMES[source]
    policy, same = (kb.TablePolicy(kb.ek_ucb(KERNEL, seed=0), FEATURES) for _ in range(2))
    policy.update_many(frame, arms, rewards)
    for row, arm, reward in zip(ROWS, arms, rewards, strict=True):
        same.update(row, arm, reward)
    for row in ROWS[:5]:
        np.testing.assert_allclose(policy.predict(row).mean, same.predict(row).mean, atol=1e-9)
    if source != "a generator":
        chosen = policy.select_many(FRAMES[source])
        assert [one.arm for one in chosen] == [policy.select(row).arm for row in ROWS]
    assert policy.arms == ("red", "blue", "green")


def test_actions_may_be_frames_too():
    features = kb.Features({"x": kb.Numeric()}, {"price": kb.Numeric(), "brand": kb.Categorical()})
    offer = [{"price": 1.0, "brand": "a"}, {"price": 2.0, "brand": "b"}]
    encoded = [
        kb.TablePolicy(kb.uniform(seed=0), features).encode({"x": 0.0}, form)[1]
        for form in (offer, pd.DataFrame(offer), pl.DataFrame(offer), pd.DataFrame(offer).to_records(index=False))
    ]
    for other in encoded[1:]:
        np.testing.assert_array_equal(other, encoded[0])
    policy = kb.TablePolicy(kb.ek_ucb(KERNEL, seed=0), features)
    decision = policy.select({"x": 0.0}, pd.DataFrame(offer))
    assert decision.action == offer[decision.index]
    policy.update_many(pd.DataFrame({"x": [0.0, 1.0]}), pd.DataFrame(offer), [0.0, 1.0])
    assert policy.round_index == 2


def test_nothing_that_is_no_table_is_taken_for_one():
    for value in ("text", 3, {"a": 1}, None):
        with pytest.raises(kb.InputError, match="contexts: expected a pandas or polars frame"):
            as_rows("contexts", value)
    with pytest.raises(kb.InputError, match="expected one row, got 2"):
        as_row("context", pd.DataFrame(ROWS[:2]))


def fitted():
    frame = pd.DataFrame(ROWS)
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "spent"]),
            ("levels", OneHotEncoder(handle_unknown="ignore"), ["country"]),
            ("rest", "passthrough", ["member"]),
        ],
        sparse_threshold=1.0,
    ).fit(frame[["age", "spent", "country", "member"]])


def test_a_fitted_column_transformer_takes_the_place_of_our_encoding(tmp_path):
    transformer = fitted()
    features = kb.Features(transformer, kb.Arms(["red", "blue"]))
    assert [group.variable for group in features.layout.groups] == ["age", "spent", "country", "member", "arm"]
    assert [len(group.columns) for group in features.layout.groups] == [1, 1, 3, 1, 10]
    policy, by_hand = kb.TablePolicy(kb.ek_ucb(KERNEL, seed=0), features), kb.ek_ucb(KERNEL, seed=0)
    columns = ["age", "spent", "country", "member"]
    dense = np.asarray(transformer.transform(pd.DataFrame(ROWS)[columns]).astype(float).todense())
    for row, vector in zip(ROWS[:15], dense, strict=False):
        decision = policy.select({name: row[name] for name in columns})
        assert decision.index == by_hand.select(vector, np.eye(2, 10)).index
        policy.update(decision, reward=1.0)
        by_hand.update(vector, np.eye(2, 10)[decision.index], 1.0)
    policy.update_many(pd.DataFrame(ROWS)[columns], ["red"] * len(ROWS), np.zeros(len(ROWS)))
    assert policy.diagnostics().relevance.keys() == {"age", "spent", "country", "member", "arm"}
    assert set(policy.explain(decision).rounds[0].context) == set(transformer.get_feature_names_out())
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match="context: column 'country' is missing"):
        policy.select({"age": 1.0, "spent": 1.0, "member": True})
    with pytest.raises(kb.InputError, match="context: ColumnTransformer refused it"):
        policy.update({"age": "old", "spent": 1.0, "member": True, "country": "FR"}, "red", 1.0)
    assert pickle.dumps(policy) == before
    with pytest.raises(kb.InputError, match="encoded by ColumnTransformer, and a saved policy holds data and no code"):
        policy.save(tmp_path / "policy")
    assert not list(tmp_path.iterdir())


def test_a_transformer_may_encode_actions():
    offers = pd.DataFrame({"price": [1.0, 2.0, 4.0], "brand": ["a", "b", "a"]})
    transformer = ColumnTransformer([("p", StandardScaler(), ["price"]), ("b", OneHotEncoder(), ["brand"])]).fit(offers)
    policy = kb.TablePolicy(kb.ek_ucb(KERNEL, seed=0), kb.Features({"x": kb.Numeric()}, transformer))
    decision = policy.select({"x": 1.0}, offers)
    np.testing.assert_allclose(decision.encoded.action, transformer.transform(offers)[decision.index])
    policy.update(decision, reward=1.0)
    assert decision.action == offers.to_dict("records")[decision.index]


def test_a_transformer_that_was_not_fitted_is_refused():
    with pytest.raises(kb.InputError, match="call fit"):
        kb.Features(ColumnTransformer([("a", StandardScaler(), ["age"])]), ["red"])
