"""Batches: as many decisions as the variance allows, one pass over the history at the end."""

import dense
import numpy as np
import pytest
from test_policy_contract import build

import kernel_bandits as kb
from kernel_bandits.posterior.history import History

ACTIONS = np.linspace(0, 1, 7)[:, None]


def learned(policy, count=60, seed=0):
    generator = np.random.default_rng(seed)
    points = generator.random((count, 2))
    policy.update_many(points[:, :1], points[:, 1:], np.sin(5 * points[:, 0]) * points[:, 1])
    return policy


def point_of(decision):
    return np.concatenate((decision.context, decision.action))


@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "lin_ucb", "cbbkb", "thompson_sampling", "random_features_ucb"])
def test_a_batch_ends_where_the_frozen_variance_passes_the_limit(name):
    policy, frozen = learned(build(name)), learned(build(name))
    contexts = np.random.default_rng(1).random((200, 1))
    regularization = policy.posterior.regularization
    for limit in (1.0, 1.5, 4.0):
        decisions = policy.select_batch(contexts, ACTIONS, batch_variance_limit=limit)
        points = np.array([point_of(decision) for decision in decisions])
        np.testing.assert_array_equal(points[:, :1], contexts[: len(points)])
        sums = 1.0 + np.cumsum(frozen.posterior.predict(points).std ** 2 / regularization)
        assert (sums[:-1] <= limit).all()
        assert sums[-1] > limit or len(points) == 200
        assert policy.pending == tuple(decision.id for decision in decisions)
        for decision in decisions:
            policy.expire(decision.id)
        policy, frozen = learned(build(name)), learned(build(name))
    assert len(decisions) > 3


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
        batch = policy.select_batch(generator.random((50, 1)), ACTIONS, batch_variance_limit=6.0)
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


def test_one_pass_over_the_history_per_batch(monkeypatch):
    passes = 0
    blocks = History.blocks

    def counted(self):
        nonlocal passes
        passes += 1
        return blocks(self)

    policy = learned(kb.ek_ucb(kb.Gaussian(0.1), regularization=0.05, seed=0))
    monkeypatch.setattr(History, "blocks", counted)
    before = policy.dictionary_size
    policy.select_batch(np.random.default_rng(3).random((60, 1)), ACTIONS, batch_variance_limit=300.0)
    assert policy.dictionary_size >= before + 5
    assert passes == 1


def test_limit_one_is_the_ordinary_loop():
    environment = kb.environments.Chessboard()
    one, other = (kb.ek_ucb(kb.Gaussian(0.1), regularization=0.01, seed=0) for _ in range(2))
    generator = np.random.default_rng(0)
    for _ in range(120):
        offer = environment.next_round(generator)
        (decision,) = one.select_batch(offer.context[None, :], offer.actions, batch_variance_limit=1.0)
        reward = float(environment.expected_rewards(offer.context, offer.actions)[decision.index])
        one.tell(decision.id, reward)
        same = other.select(offer.context, offer.actions)
        assert decision.index == same.index
        assert decision.upper_bound == pytest.approx(same.upper_bound, abs=1e-9)
        other.update(offer.context, same.action, reward)


def test_bad_batches_change_nothing():
    policy = learned(kb.ek_ucb(kb.Gaussian(0.1), seed=0))
    for contexts, actions, limit, match in (
        ([[0.1]], ACTIONS, 0.5, "batch_variance_limit: expected at least 1"),
        ([[0.1], [np.nan]], ACTIONS, 2.0, "contexts: expected finite"),
        ([[0.1, 0.2]], ACTIONS, 2.0, "contexts: expected 1 columns"),
        ([[0.1]], np.empty((0, 1)), 2.0, "actions"),
    ):
        with pytest.raises(kb.InputError, match=match):
            policy.select_batch(contexts, actions, batch_variance_limit=limit)
    assert policy.pending == ()


def test_a_batch_in_a_box_is_checked_before_it_begins():
    policy = kb.ek_ucb(kb.Gaussian(0.2), seed=0)
    with pytest.raises(kb.InputError, match="contexts: expected finite"):
        policy.select_batch([[0.1], [0.2], [np.nan]], kb.Box(0, 1), batch_variance_limit=1e3)
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
