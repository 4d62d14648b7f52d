"""Action sets that change from round to round, and masks: a mask is the same as leaving the rows out."""

import pickle

import numpy as np
import pytest
from test_policy_contract import VARIANTS, build, play, variant_name

import kernel_bandits as kb


@pytest.fixture(params=VARIANTS, ids=variant_name)
def variant(request):
    return request.param


def masked_rounds(count, seed=0):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        actions = generator.random((generator.integers(2, 9), 1))
        mask = generator.random(len(actions)) < 0.6
        mask[generator.integers(len(actions))] = True
        yield generator.random(2), actions, mask


def test_a_mask_is_the_same_as_leaving_the_rows_out(variant):
    name, options = variant
    policy, same = build(name, **options), build(name, **options)
    for context, actions, mask in masked_rounds(40):
        decision, other = policy.select(context, actions, mask), same.select(context, actions[mask])
        assert decision.index == np.flatnonzero(mask)[other.index]
        np.testing.assert_array_equal(decision.action, actions[decision.index])
        assert (decision.mean, decision.std, decision.upper_bound) == (other.mean, other.std, other.upper_bound)
        for one in (policy, same):
            one.update(context, decision.action, np.sin(5 * context[0] * decision.action[0]))
    policy.select([0.5, 0.5], [[0.5]])
    same.select([0.5, 0.5], [[0.5]])
    assert pickle.dumps(policy) == pickle.dumps(same)


def test_what_stands_in_a_masked_row_does_not_matter(variant):
    name, options = variant
    decision = build(name, **options).select([0.5, 0.5], [[np.nan], [0.3], [np.inf]], mask=[False, True, False])
    assert decision.index == 1
    np.testing.assert_array_equal(decision.action, [0.3])


def test_a_mask_of_all_rows_changes_nothing(variant):
    name, options = variant
    policy, same = build(name, **options), build(name, **options)
    play(policy, 20)
    play(same, 20)
    actions = np.random.default_rng(3).random((7, 1))
    assert policy.select([0.1, 0.2], actions, [True] * 7).index == same.select([0.1, 0.2], actions).index


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([False, False], "at least one action"),
        ([True], "expected 2 booleans"),
        ([1, 1], "expected 2 booleans"),
        (True, "expected 2 booleans"),
    ],
)
def test_a_bad_mask_leaves_the_state_byte_for_byte(variant, mask, words):
    name, options = variant
    policy = build(name, **options)
    play(policy, 10)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match=words):
        policy.select([0.5, 0.5], [[0.1], [0.2]], mask)
    assert pickle.dumps(policy) == before


def test_nothing_is_remembered_of_the_sets_before():
    """Sets of one action and of a hundred, with new actions each time: the model is that of the played ones alone."""
    policy = kb.ek_ucb(kb.Gaussian(0.3), seed=0)
    generator = np.random.default_rng(0)
    contexts, actions, rewards = [], [], []
    for t in range(60):
        context = generator.random(2)
        decision = policy.select(context, generator.random((1 + 99 * (t % 2), 2)))
        reward = float(np.sin(4 * decision.action.sum() + context[0]))
        policy.update(context, decision.action, reward)
        contexts.append(context)
        actions.append(decision.action)
        rewards.append(reward)
    replayed = kb.ek_ucb(kb.Gaussian(0.3), seed=0)
    for context, action, reward in zip(contexts, actions, rewards, strict=True):
        replayed.update(context, action, reward)
    queries = generator.random((9, 2))
    np.testing.assert_allclose(
        policy.predict(contexts[0], queries).mean, replayed.predict(contexts[0], queries).mean, atol=1e-9
    )
