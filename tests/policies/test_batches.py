"""Batches: one decision for each context, each counted in the standard deviations of the next."""

import dense
import numpy as np
import pytest
from test_policy_contract import build

import kernel_bandits as kb

ACTIONS = np.linspace(0, 1, 7)[:, None]


def learned(policy, count=60, seed=0):
    generator = np.random.default_rng(seed)
    points = generator.random((count, 2))
    policy.update_many(points[:, :1], points[:, 1:], np.sin(5 * points[:, 0]) * points[:, 1])
    return policy


def point_of(decision):
    return np.concatenate((decision.context, decision.action))


@pytest.mark.parametrize("pending_before", [0, 3])
def test_the_posterior_after_a_batch_is_the_one_of_its_dictionary(pending_before):
    policy = learned(kb.ek_ucb(kb.Gaussian(0.15), regularization=0.05, seed=0))
    told = [
        (point, reward) for point, reward in zip(policy.observed_points, policy.posterior.observed_rewards, strict=True)
    ]
    waiting = [policy.ask([0.9], ACTIONS) for _ in range(pending_before)]
    queries = np.random.default_rng(5).random((12, 2))
    generator = np.random.default_rng(2)
    for _ in range(6):
        before = policy.dictionary_size
        batch = policy.ask_many(generator.random((30, 1)), ACTIONS)
        assert policy.dictionary_size > before or len(told) > 150

        def expected(points, rewards):
            return dense.nystrom(policy.posterior.kernel, policy.dictionary_points, points, rewards, 0.05, queries)

        points, rewards = (np.array(column) for column in zip(*told, strict=True))
        played = np.array([point_of(decision) for decision in [*waiting, *batch]])
        prediction = policy.posterior.predict(queries)
        np.testing.assert_allclose(prediction.mean, expected(points, rewards).mean, rtol=0, atol=1e-8)
        everything = expected(np.vstack([points, played]), np.append(rewards, np.zeros(len(played))))
        np.testing.assert_allclose(prediction.std, everything.std, rtol=0, atol=1e-8)
        assert policy.posterior.log_determinant == pytest.approx(expected(points, rewards).log_determinant, abs=1e-7)
        assert policy.posterior.residual_trace == pytest.approx(expected(points, rewards).residual_trace, abs=1e-7)
        policy.tell_many([decision.id for decision in batch], [float(point_of(decision).sum()) for decision in batch])
        told += [(point_of(decision), float(point_of(decision).sum())) for decision in batch]


def test_a_batch_in_a_box_is_checked_before_it_begins():
    policy = kb.ek_ucb(kb.Gaussian(0.2), seed=0)
    with pytest.raises(kb.InputError, match="contexts: expected finite"):
        policy.ask_many([[0.1], [0.2], [np.nan]], kb.Box(0, 1))
    with pytest.raises(kb.InputError, match="contexts: expected finite"):
        policy.select_many([[0.1], [np.nan]], kb.Box(0, 1))
    assert policy.pending == ()
    assert policy.dictionary_size == 0


@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "lin_ucb", "cbbkb", "thompson_sampling"])
def test_ask_many_is_one_decision_per_context_as_ask_makes_them(name):
    one, many = build(name), build(name)
    contexts, actions = np.random.default_rng(0).random((7, 1)), np.linspace(0, 1, 9)[:, None]
    singly = [one.ask(context, actions) for context in contexts]
    together = many.ask_many(contexts, actions)
    assert many.pending == tuple(decision.id for decision in together)
    for first, second in zip(singly, together, strict=True):
        np.testing.assert_array_equal(first.action, second.action)
        assert (first.id, first.mean, first.std) == (second.id, second.mean, second.std)


@pytest.mark.parametrize("actions", [np.linspace(0, 1, 9)[:, None], kb.Box(0.0, 1.0)], ids=["rows", "box"])
def test_a_batch_in_one_context_explores_different_actions(actions):
    policy = kb.ek_ucb(kb.Gaussian(0.2), regularization=0.1, seed=0)
    decisions = policy.ask_many(np.full((4, 1), 0.5), actions)
    chosen = np.sort([decision.action[0] for decision in decisions])
    assert (np.diff(chosen) > 0.1).all()


def test_ask_many_that_fails_leaves_nothing_pending():
    policy = kb.ek_ucb(kb.Gaussian(0.2), seed=0)
    for contexts in ([[0.1], [np.nan]], [[0.1, 0.2], [0.3]]):
        with pytest.raises(kb.InputError):
            policy.ask_many(contexts, [[0.0], [1.0]])
    assert policy.pending == ()
    assert policy.round_index == 0
