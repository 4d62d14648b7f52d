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
    batch = policy.ask_many(rows)
    expected = twin.inner.ask_many(contexts, twin.encode(rows[0])[1])
    assert len(batch) == 60
    assert [each.encoded.mean for each in batch] == [each.mean for each in expected]
    assert [(each.arm, each.id) for each in batch] == [(["red", "blue"][each.index], each.id) for each in expected]
    policy.tell_many(batch, np.ones(len(batch)))
    assert policy.pending == ()


def test_levels_and_arms_first_met_in_a_batch_stay_apart():
    policy = policy_of()
    rows = rows_of(12, countries=("FR", "IT", "ES", "PT"))
    batch = policy.ask_many(rows, ["red", "blue", "green", "white"])
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
    batch = policy.ask_many(pandas.DataFrame(rows_of(5)), {"red": {"price": 3.0}})
    assert {each.arm for each in batch} == {"red"}


@pytest.mark.parametrize(
    ("rows", "mask", "words"),
    [
        ([*rows_of(3), {"age": "old", "country": "FR"}], None, "contexts, row 3, column 'age'"),
        ([], None, "contexts: expected at least one row, got none"),
        (rows_of(3), {"green": True}, "mask: 'green' is not on offer"),
    ],
)
def test_a_bad_batch_changes_nothing(rows, mask, words):
    policy = policy_of(rounds=5)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match=words):
        policy.ask_many(rows, mask=mask)
    assert pickle.dumps(policy) == before


def test_a_policy_without_a_posterior_asks_for_batches_too():
    policy = kb.uniform(features=kb.Features(COLUMNS, ["red", "blue"]), seed=0)
    batch = policy.ask_many(rows_of(40), mask={"red": False})
    assert {each.arm for each in batch} == {"blue"}
    policy.tell_many(batch, np.ones(40))
    assert (policy.pending, policy.round_index) == ((), 40)
