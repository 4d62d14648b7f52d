"""Tables wherever a log goes: the same rounds give the same results through every entrance."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import kernel_bandits as kb
from kernel_bandits import logs, offpolicy
from kernel_bandits.offpolicy import Log, RewardModel

ROWS = 360
CONTEXT = ["age", "city", "day"]
SHARES = {"red": 0.5, "blue": 0.3, "green": 0.2}
MODEL = RewardModel(kb.Gaussian(1.0), most_rows=150, most_anchors=40)


def frame(seed=0):
    """Visitors with gaps, categories and dates, one of three offers, and a sale."""
    generator = np.random.default_rng(seed)
    age = np.where(generator.random(ROWS) < 0.1, np.nan, generator.normal(40.0, 10.0, ROWS))
    arm = generator.choice(list(SHARES), ROWS, p=list(SHARES.values()))
    city = generator.choice(["Oslo", "Rome", "Bern"], ROWS)
    sale = generator.random(ROWS) < 0.3 + 0.4 * ((arm == "blue") & (city == "Oslo"))
    return pd.DataFrame(
        {
            "age": age,
            "city": city,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 300, ROWS), unit="D"),
            "arm": arm,
            "reward": sale.astype(float),
            "propensity": [SHARES[one] for one in arm],
        }
    )


@pytest.fixture(scope="module")
def table():
    return frame()


def entrances(table, folder):
    """Yield the log of one table through every entrance, by name."""
    roles = {"context": CONTEXT, "action": "arm"}
    yield "pandas", logs.read(table, **roles)
    yield "polars", logs.read(pl.from_pandas(table), **roles)
    yield "pyarrow", logs.read(pa.Table.from_pandas(table), **roles)
    yield "dicts", logs.read(table.to_dict("records"), **roles)
    yield "the class", Log(table[CONTEXT], table["arm"], table["reward"], table["propensity"])
    table.to_parquet(folder / "log.parquet", row_group_size=100)
    yield "Parquet", logs.read(folder / "log.parquet", **roles)
    table.to_csv(folder / "log.csv", index=False)
    yield "CSV", logs.read(folder / "log.csv", **roles)
    yield "scan", logs.scan(folder / "log.parquet", features=described(table), **roles)


def described(table):
    return logs.read(table, context=CONTEXT, action="arm").features


def test_a_description_is_inferred_with_gaps_and_dates(table):
    assert described(table) == kb.Features(
        {"age": kb.Numeric(missing=True), "city": kb.Categorical(["Bern", "Oslo", "Rome"]), "day": kb.Date()},
        kb.Arms(["blue", "green", "red"]),
    )


def taught(table, **options):
    policy = kb.ek_ucb(kb.Gaussian(1.0), features=described(table), seed=0, **options)
    policy.update_many(table[CONTEXT], list(table["arm"]), table["reward"])
    return policy


def test_every_entrance_and_every_candidate_give_the_same_values(table, tmp_path):
    policy = taught(table[:100], exploration_floor=0.2)
    policy.save(tmp_path / "policy")
    candidates = {
        "arm": "blue",
        "policy": policy,
        "file": tmp_path / "policy",
        "function of rows": lambda row: "blue" if row["city"] == "Oslo" else "red",
        "function that knows gaps": lambda row: "blue" if row["age"] is None or row["age"] < 30 else "red",
        "with the offer": lambda row, _: {"blue": 1.0} if row["city"] == "Oslo" else {"red": 1.0},
        "preset": "lin_ucb",
        "preset itself": kb.lin_ucb,
    }
    values = {}
    for entrance, log in entrances(table, tmp_path):
        fitted = offpolicy.fitted_model(log, MODEL)
        values[entrance] = [offpolicy.evaluate(log, one, model=fitted).terms for one in candidates.values()]
        fitted = offpolicy.fitted_model(log, MODEL, "learning")
        values[entrance].append({"lift": np.array(kb.verdict(log, "blue", model=fitted).lows)})
    for found in values.values():
        for one, expected in zip(found, values["pandas"], strict=True):
            for name, terms in one.items():
                np.testing.assert_allclose(terms, expected[name], atol=1e-9, err_msg=name)
    by_name = dict(zip(candidates, values["pandas"], strict=False))
    for one, other in (("policy", "file"), ("function of rows", "with the offer"), ("preset", "preset itself")):
        np.testing.assert_array_equal(by_name[one]["doubly robust"], by_name[other]["doubly robust"])
    # what the policy would have said, asked row by row
    chances = np.array([policy.select(row).probabilities for row in table[CONTEXT].to_dict("records")])
    played = [policy.arms.index(arm) for arm in table["arm"]]
    weights = chances[np.arange(ROWS), played] / table["propensity"]
    np.testing.assert_allclose(by_name["policy"]["inverse propensity"], weights * table["reward"], atol=1e-9)


def test_a_preset_is_judged_on_rounds_that_it_has_not_learned(table):
    log = logs.read(table, context=CONTEXT, action="arm")
    fitted = offpolicy.fitted_model(log, MODEL)
    found = offpolicy.evaluate(log, "lin_ucb", model=fitted).terms["inverse propensity"]
    for fold in range(3):
        rest, own = np.flatnonzero(fitted.folds != fold), np.flatnonzero(fitted.folds == fold)
        policy = kb.lin_ucb(features=log.features, seed=0)
        policy.update_many(table[CONTEXT].iloc[rest], list(table["arm"].iloc[rest]), table["reward"].iloc[rest])
        chosen = [one.arm for one in policy.select_many(table[CONTEXT].iloc[own], list(log.names))]
        rows = table.iloc[own]
        np.testing.assert_allclose(found[own], (rows["arm"] == chosen) / rows["propensity"] * rows["reward"])


def test_decisions_of_a_table_policy_are_a_log(table):
    policy = taught(table[:60], exploration_floor=0.3)
    decisions = policy.select_many(table[CONTEXT])
    log = Log.of_decisions(decisions, np.arange(float(ROWS)), features=policy.features)
    assert log.names == policy.arms
    np.testing.assert_array_equal(log.probabilities, [one.probabilities for one in decisions])
    assert [log.names[place] for place in log.played] == [one.arm for one in decisions]
    records = [{**one.to_dict(), "reward": float(reward)} for one, reward in zip(decisions, range(ROWS), strict=True)]
    again = logs.read(json.loads(json.dumps(records)), features=policy.features)
    np.testing.assert_allclose(again.probabilities, log.probabilities)
    weights = offpolicy.evaluate(again, policy, model=None).terms["inverse propensity"]
    np.testing.assert_allclose(weights, np.arange(float(ROWS)), atol=1e-9)


def exported():
    """Decisions as the service writes them: a gap, an exclusion, an offer of its own, a late reward, one not played."""
    base = {"time": 0.0, "offered": 3, "source": "caller", "excluded": [], "actions": None, "active": True}
    arms = ["red", "blue", "green"]
    for number in range(60):
        context = {"age": None if number % 9 == 0 else 20.0 + number, "city": "Oslo", "day": "2024-03-01T10:00"}
        action, row = arms[number % 3], {**base, "number": number, "id": str(number), "context": context}
        row |= {"probabilities": [0.5, 0.25, 0.25], "propensity": 0.5 if action == "red" else 0.25, "reward": 1.0}
        if number == 7:
            row |= {"excluded": ["green"], "probabilities": [0.5, 0.5, 0.0], "propensity": 0.5}
        if number == 8:
            row |= {"actions": ["green", {"arm": "red"}], "probabilities": [0.4, 0.6], "propensity": 0.4}
        if number == 9:
            row["reward"] = None
        if number == 10:
            row["active"] = False
        yield row | {"action": action, "arm": action}


def test_the_export_of_the_service_is_a_log(tmp_path):
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, exported())))
    features = kb.Features(
        {"age": kb.Numeric(missing=True), "city": kb.Categorical(), "day": kb.Date()}, kb.Arms(["red", "blue", "green"])
    )
    log = logs.read(tmp_path / "log.jsonl", features=features)
    assert (len(log), log.left_out) == (58, 1)
    assert log.names == ("red", "blue", "green")
    np.testing.assert_array_equal(log.probabilities[7:9], [[0.5, 0.5, 0.0], [0.6, 0.0, 0.4]])
    np.testing.assert_array_equal(log.offered[7:10], [[True, True, False], [True, False, True], [True, True, True]])
    # a policy is offered what was on offer, and a fixed action must have been there
    policy = kb.uniform(features=features, seed=0)
    weights = offpolicy.evaluate(log, policy, model=None).terms["inverse propensity"]
    np.testing.assert_allclose(weights[6:9], [1 / 1.5, 1.0, 1 / 0.8])
    with pytest.raises(kb.InputError, match="in row 7 it plays 'green', which was not on offer"):
        offpolicy.evaluate(log, "green", model=None)
    inferred = logs.read(tmp_path / "log.jsonl", actions=["red", "blue", "green"])
    assert inferred.features.context["day"] == kb.Date()
    np.testing.assert_array_equal(inferred.probabilities, log.probabilities)


def test_probabilities_in_an_order_that_nobody_told_are_left_out():
    policy = kb.ek_ucb(features=kb.Features({"city": kb.Categorical()}, ["a", "b"]), exploration_floor=0.2, seed=0)
    # the arm that is listed last was played first
    one, other = (policy.select({"city": "Oslo"}, mask={arm: False}) for arm in ("a", "b"))
    records = [{**decision.to_dict(), "reward": 1.0} for decision in (one, other)]
    assert logs.read(records).probabilities is None
    np.testing.assert_array_equal(logs.read(records, actions=["a", "b"]).probabilities, [[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_array_equal(logs.read(records, features=policy.features).probabilities, [[0.0, 1.0], [1.0, 0.0]])


def test_an_export_is_put_in_order_and_may_not_repeat_itself():
    rows = list(exported())
    straight, turned = logs.read(rows), logs.read(rows[::-1])
    np.testing.assert_array_equal(straight.played, turned.played)
    assert kb.verdict(turned, "red", model=None, reward_range=(0, 1)).low == pytest.approx(
        kb.verdict(straight, "red", model=None, reward_range=(0, 1)).low
    )
    with pytest.raises(kb.InputError, match="each decision once, got 3 twice"):
        logs.read([*rows, rows[3]])
    silent = [row | {"propensity": None} if row["number"] == 5 else row for row in rows]
    with pytest.raises(
        kb.InputError, match=r"row 5: propensity: .* set exploration_floor in the policy or the service"
    ):
        logs.read(silent)


def test_many_decisions_without_a_reward_are_a_warning():
    rows = [{**row, "reward": None} if row["number"] % 5 == 1 else row for row in exported()]
    found = offpolicy.evaluate(logs.read(rows), lambda _, offer: [1 / len(offer)] * len(offer), model=None)
    assert any("13 of 59 decisions have no reward" in warning for warning in found.warnings)


def test_described_arms(table):
    prices = {"red": {"price": 1.0}, "blue": {"price": 2.0}, "green": {"price": 2.0}}
    features = kb.Features({"city": kb.Categorical()}, kb.Arms(prices, {"price": kb.Numeric()}))
    log = logs.read(table, context=["city"], action="arm", features=features)
    policy = kb.ek_ucb(kb.Gaussian(1.0), features=features, seed=0)
    learned = log.taught(policy)
    assert (learned.round_index, policy.round_index) == (ROWS, 0)
    assert offpolicy.evaluate(log, learned, model=MODEL).overlap.rounds == ROWS
    # actions that are known by their columns alone
    rows = [prices[arm] for arm in table["arm"]]
    plain = Log(table[["city"]], rows, table["reward"], table["propensity"] * 1.0)
    assert [dict(action) for action in plain.actions] == [{"price": 1.0}, {"price": 2.0}]
    assert offpolicy.evaluate(plain, lambda _: {"price": 1.0}, model=None).overlap.used == np.mean(
        table["arm"] == "red"
    )


def test_numbers_with_names_can_be_asked_of_either_kind_of_policy(table):
    numbers = table.assign(age=table["age"].fillna(0.0))
    log = logs.read(numbers, context=["age"], action="arm")
    assert log.features is None
    features = kb.Features({"age": kb.Numeric()}, list(SHARES))
    policy = log.taught(kb.lin_ucb(features=features, seed=0))
    as_table = logs.read(numbers, context=["age"], action="arm", features=features)
    for one in (policy, as_table.taught(kb.lin_ucb(features=features, seed=0))):
        values = [offpolicy.evaluate(each, one, model=None).recommended.value for each in (log, as_table)]
        assert values[0] == values[1]


def test_replay_of_a_table(table):
    log = logs.read(table, context=CONTEXT, action="arm")
    policy = kb.uniform(features=log.features, seed=1)
    found = offpolicy.replay(policy, log)
    assert policy.round_index == len(found.rewards)
    # a round counts with probability 1/3 · 0.2/p, whatever p is
    assert abs(len(found.rewards) - ROWS * 0.2) < 4 * np.sqrt(ROWS * 0.2)


def test_what_a_table_cannot_be_is_named(table):
    for source in (table, table.to_dict("records")):
        with pytest.raises(kb.InputError, match=r"context: expected columns context_…, got age, city, day, arm"):
            logs.read(source)
    assert logs.read(table, context=[], action="arm").without_contexts
    with pytest.raises(kb.InputError, match="row 3: action: expected an action, got none"):
        logs.read(table.assign(arm=table["arm"].where(table.index != 3, None)), context=CONTEXT, action="arm")
    with pytest.raises(kb.InputError, match="row 5: propensity"):
        logs.read(
            table.assign(propensity=table["propensity"].where(table.index != 5, 1.5)), context=CONTEXT, action="arm"
        )
    with pytest.raises(kb.InputError, match="different names, got 'age' twice"):
        logs.read(pd.concat([table, table[["age"]]], axis=1), context=CONTEXT, action="arm")
    log = logs.read(table, context=CONTEXT, action="arm")
    with pytest.raises(kb.InputError, match=r"features=log\.features"):
        offpolicy.evaluate(log, kb.lin_ucb(seed=0), model=None)
    with pytest.raises(kb.InputError, match="numbers without names"):
        offpolicy.evaluate(Log(np.zeros((4, 1)), np.zeros(4, int), np.ones(4), np.ones(4)), taught(table), model=None)
    with pytest.raises(kb.InputError, match="did you mean 'blue'"):
        offpolicy.evaluate(log, "blu", model=None)
    with pytest.raises(kb.InputError, match="name of an action of the log, got 'rde'; did you mean 'red'"):
        offpolicy.evaluate(log, lambda _: "rde", model=None)
    with pytest.raises(kb.InputError, match="got set"):
        logs.read({1, 2})


def assert_same(found, expected):
    """But for rounding: a product of matrices depends on how many rows it has."""
    assert found.overlap.rounds == expected.overlap.rounds
    for name, terms in expected.terms.items():
        np.testing.assert_allclose(found.terms[name], terms, atol=1e-12, err_msg=name)
        one, other = found.estimates[name], expected.estimates[name]
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-9)


def test_parts_are_the_whole(table, tmp_path):
    """A dataset of several files and row groups, described from its first part."""
    whole = table.assign(age=table["age"].fillna(0.0))
    (tmp_path / "parts").mkdir()
    for place in range(2):
        half = pa.Table.from_pandas(whole.iloc[place * 180 : (place + 1) * 180], preserve_index=False)
        parquet.write_table(half, tmp_path / "parts" / f"{place}.parquet", row_group_size=70)
    for context in (["age"], CONTEXT):
        parts = logs.scan(tmp_path / "parts", context=context, action="arm")
        log = logs.read(whole, context=context, action="arm", features=parts.features)
        assert (len(parts), len(parts.parts), parts.names) == (ROWS, 6, log.names)
        for written_by in ("fixed", "learning"):
            found, expected = (
                offpolicy.evaluate(one, "blue", model=MODEL, written_by=written_by) for one in (parts, log)
            )
            assert_same(found, expected)
        np.testing.assert_array_equal(parts.rows(np.array([3, 100, 359])).rewards, whole["reward"].iloc[[3, 100, 359]])
    # a row group that lacks an arm knows its share all the same
    rare = whole.sort_values("arm", kind="stable")
    parquet.write_table(pa.Table.from_pandas(rare, preserve_index=False), tmp_path / "rare.parquet", row_group_size=60)
    several, one = (
        each(tmp_path / "rare.parquet", context=["age"], action="arm", features=None) for each in (logs.scan, logs.read)
    )
    assert len({len(set(several.rows(slice(start, start + 60)).played)) for start in range(0, ROWS, 60)}) > 1
    lows = [kb.verdict(each, "blue", "red", model=None).lows for each in (several, one)]
    np.testing.assert_allclose(lows[0], lows[1], atol=1e-12)
    varied = rare.assign(propensity=np.where(np.arange(ROWS) < 5, 0.1, rare["propensity"]))
    parquet.write_table(pa.Table.from_pandas(varied), tmp_path / "varied.parquet", row_group_size=60)
    assert logs.scan(tmp_path / "varied.parquet", context=["age"], action="arm").first.known_probabilities is None
    broken = whole.assign(reward=whole["reward"].where(whole.index != 200, np.nan))
    parquet.write_table(pa.Table.from_pandas(broken), tmp_path / "broken.parquet", row_group_size=150)
    with pytest.raises(kb.InputError, match=r"broken\.parquet, row group 1: log: row 50: reward"):
        logs.scan(tmp_path / "broken.parquet", context=CONTEXT, action="arm")
    gaps = pa.Table.from_pandas(table, preserve_index=False)
    first = pa.Table.from_pandas(whole.iloc[:100], preserve_index=False)
    parquet.write_table(pa.concat_tables([first, gaps]), tmp_path / "gaps.parquet", row_group_size=100)
    with pytest.raises(kb.InputError, match="give features="):
        logs.scan(tmp_path / "gaps.parquet", context=["age"], action="arm")


@pytest.mark.filterwarnings("ignore")
def test_a_dask_log_gives_the_same_values(table):
    import dask.dataframe
    from distributed import Client, LocalCluster

    whole = table.assign(age=table["age"].fillna(0.0))
    log = logs.read(whole, context=["age"], action="arm")
    expected = offpolicy.evaluate(log, "blue", model=MODEL)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        frame = dask.dataframe.from_pandas(whole, npartitions=3)
        parts = logs.scan(frame, context=["age"], action="arm", client=client)
        assert_same(offpolicy.evaluate(parts, "blue", model=MODEL), expected)
        lows = [kb.verdict(one, "blue", model=None).low for one in (parts, log)]
        assert lows[0] == pytest.approx(lows[1], rel=1e-12)


def test_rows_of_a_log_keep_what_belongs_to_them(table):
    log = logs.read(table, context=CONTEXT, action="arm")
    some = log.rows(np.array([5, 2]))
    assert [row["city"] for row in some.table()] == [table["city"][5], table["city"][2]]
    assert some.features is log.features
    joined = Log.joined([log.rows(slice(0, 100)), log.rows(slice(100, ROWS))])
    np.testing.assert_array_equal(joined.played, log.played)
    assert [row["day"] for row in joined.table()] == list(table["day"])
    with pytest.raises(kb.InputError, match="row 0: offered"):
        replace(log, features=log.features, played=table["arm"], offered=np.zeros((ROWS, 3), dtype=bool))
