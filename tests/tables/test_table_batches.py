"""Batches by name: the batches of the policy over arrays, with levels and arms that were never met."""

import pickle

import numpy as np
import pytest

import kernel_bandits as kb

COLUMNS = {"age": kb.Numeric(range=(0, 100)), "country": kb.Categorical()}


def policy_of(actions=("red", "blue"), rounds=40):
    policy = kb.ek_ucb(kb.Gaussian(0.7), features=kb.Features(COLUMNS, actions), seed=0)
    generator = np.random.default_rng(0)
    for _ in range(rounds):
        row = {"age": float(generator.integers(18, 90)), "country": ["FR", "DE"][generator.integers(2)]}
        policy.update(policy.select(row), reward=float(generator.normal()))
    return policy


def rows_of(count, countries=("FR", "DE")):
    generator = np.random.default_rng(1)
    return [{"age": float(generator.integers(18, 90)), "country": generator.choice(countries)} for _ in range(count)]


def test_a_batch_is_that_of_the_arrays():
    policy, twin = policy_of(), policy_of()
    rows = rows_of(60)
    contexts = np.array([twin.encode(row)[0] for row in rows])
    batch = policy.select_batch(rows, batch_variance_limit=3.0)
    expected = twin.inner.select_batch(contexts, twin.encode(rows[0])[1], batch_variance_limit=3.0)
    assert 1 < len(batch) < 60
    assert [each.encoded.mean for each in batch] == [each.mean for each in expected]
    assert [(each.arm, each.id) for each in batch] == [(["red", "blue"][each.index], each.id) for each in expected]
    policy.tell_many(batch, np.ones(len(batch)))
    assert policy.pending == ()


def test_levels_and_arms_first_met_in_a_batch_stay_apart():
    policy = policy_of()
    rows = rows_of(12, countries=("FR", "IT", "ES", "PT"))
    batch = policy.select_batch(rows, ["red", "blue", "green", "white"], batch_variance_limit=1e6)
    assert len(batch) == 12
    for each in batch:
        context, _ = policy.encode(each.context)
        np.testing.assert_array_equal(each.encoded.context, context)
        np.testing.assert_array_equal(each.encoded.action, policy.encode(each.context, [each.arm])[1][0])
    assert {"FR", "DE", "IT", "ES", "PT"} == set(policy.codec.levels["country"])


def test_arms_with_features_and_frames():
    arms = kb.Arms({"red": {"price": 1.0}, "blue": {"price": 2.0}}, columns={"price": kb.Numeric()})
    policy = policy_of(arms)
    pandas = pytest.importorskip("pandas")
    batch = policy.select_batch(pandas.DataFrame(rows_of(5)), {"red": {"price": 3.0}}, batch_variance_limit=100)
    assert {each.arm for each in batch} == {"red"}


@pytest.mark.parametrize(
    ("rows", "limit", "words"),
    [
        ([*rows_of(3), {"age": "old", "country": "FR"}], 10.0, "contexts, row 3, column 'age'"),
        ([], 10.0, "at least one row"),
        (rows_of(3), 0.5, "batch_variance_limit: expected at least 1"),
    ],
)
def test_a_bad_batch_changes_nothing(rows, limit, words):
    policy = policy_of(rounds=5)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match=words):
        policy.select_batch(rows, batch_variance_limit=limit)
    assert pickle.dumps(policy) == before


def test_a_policy_without_a_posterior_has_no_batches():
    policy = kb.uniform(features=kb.Features(COLUMNS, ["red"]), seed=0)
    with pytest.raises(kb.InputError, match="select_batch: Uniform has no posterior"):
        policy.select_batch(rows_of(2))
