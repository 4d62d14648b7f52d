"""Actions of a short list that are played now and then, however little is expected of them."""

import math

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.policy.short_list import Plays

PRICES = np.array([[0.0], [0.3], [0.9], [1.7], [2.6]])


def overdue(posterior, points, split):
    """Return the rows on offer that have to be played."""
    plays = Plays.due(posterior, len(points), split)
    return [] if plays is None else plays.overdue(points, posterior.evaluate_finite(points)).tolist()


def played(policy, rounds, actions, reward, seed=0):
    """Play rounds and return how often each action was played."""
    generator, counts = np.random.default_rng(seed), np.zeros(len(actions), dtype=int)
    for _ in range(rounds):
        context = generator.normal(size=2)
        decision = policy.select(context, actions)
        counts[decision.index] += 1
        policy.update(context, decision.action, reward(decision.index, generator))
    return counts


def only_the_first_pays(index, generator):
    return float(index == 0) + 0.01 * generator.normal()


def after(actions, plays, noise=1.0, awaited=False):
    """A policy that has learned these actions, in turn, or waits for their rewards, and the rows that are overdue."""
    generator, policy = np.random.default_rng(0), kb.ek_ucb(seed=0)
    for index in plays:
        context = generator.normal(size=2)
        if awaited:
            policy.ask(context, actions[[index]])
        else:
            policy.update(context, actions[index], float(index == 0) + noise * generator.normal())
    points = np.hstack([np.zeros((len(actions), 2)), actions])
    return policy, overdue(policy.posterior, points, 2)


@pytest.mark.parametrize("actions", [np.eye(5), PRICES], ids=["arms", "prices"])
@pytest.mark.parametrize("awaited", [False, True])
def test_actions_that_were_played_less_than_their_share_are_overdue(actions, awaited):
    """After a hundred rounds 2·√100/5 = 4 plays of each are due."""
    plays = [0] * 88 + [1] * 4 + [2] * 3 + [3] * 5
    policy, due = after(actions, plays, awaited=awaited)
    assert due == [2, 4]
    context = np.zeros(2)
    assert policy.select(context, actions).index in due
    assert policy.select_many(np.zeros((1, 2)), actions)[0].index in due


@pytest.mark.parametrize("rounds", [99, 105])
def test_actions_fall_due_at_certain_times_only(rounds):
    assert after(np.eye(5), [0] * (rounds - 15) + [1, 2, 3] * 5)[1] == []


def test_an_action_without_hope_is_not_overdue():
    """The second was played twice and is known to earn less than the first, by a hundred standard deviations."""
    plays = [1, 1] + [0] * 23
    assert after(np.eye(2), plays, noise=0.001)[1] == []
    assert after(np.eye(2), plays, noise=1.0)[1] == [1]


def test_forced_plays_are_few():
    """What is forced is 2√t in all: the best action is played in nearly all of the other rounds."""
    counts = played(kb.ek_ucb(seed=0), 400, np.eye(5), only_the_first_pays)
    assert counts[0] >= 400 - 3 * math.sqrt(400)


def told(policy, indices):
    """Learn plays of five arms without contexts: the first pays 0.6 more than the others, each of them 0.7 off."""
    rewards, counts = [], policy.observed_points.sum(axis=0) if policy.round_index else np.zeros(5)
    for index in indices:
        rewards.append(0.6 * (index == 0) + (0.7 if counts[index] % 2 else -0.7))
        counts[index] += 1
    outputs = {"heat": np.zeros(len(indices))} if policy.guards is not None else None
    policy.update_many(np.zeros((len(indices), 0)), np.eye(5)[indices], rewards, outputs=outputs)


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_the_rounds_of_one_call_count_before_the_next(floor):
    """Of 356 rounds 100, 157 and 225 force a play of the last two arms, and 307 one of all but the best."""
    # exact: no coin decides whether an arm that was played three times has an anchor
    policy = kb.k_ucb(seed=0, exploration_floor=floor)
    told(policy, [0] * 82 + [1, 2] * 6 + [3, 4] * 3)
    decisions = policy.select_many(np.zeros((256, 0)), np.eye(5))
    if floor:
        # the last two are alike, and chance decides which of them is played first
        np.testing.assert_allclose(decisions[0].probabilities, [0.01, 0.01, 0.01, 0.485, 0.485])
        ordinary = [np.allclose(each.probabilities, [0.96, 0.01, 0.01, 0.01, 0.01]) for each in decisions]
        assert ordinary.count(False) <= 10
        assert all(each.propensity == each.probabilities[each.index] for each in decisions)
    else:
        assert np.bincount([decision.index for decision in decisions]).tolist() == [246, 1, 1, 4, 4]


@pytest.mark.parametrize("constrained", [False, True])
def test_quotas_that_fall_due_within_a_batch_are_met(constrained):
    """Days of 42 rounds begin at none of the times at which actions fall due; at round 400 eight plays are."""
    policy = kb.ek_ucb(seed=0)
    if constrained:
        policy.constrained({"heat": kb.Below(9.0, kb.Gaussian(1.0))}, safe_actions=np.eye(5))
    told(policy, [0] * 22 + [1, 2, 3, 4] * 5)
    for _ in range(10):
        told(policy, [each.index for each in policy.select_many(np.zeros((42, 0)), np.eye(5))])
    counts = policy.observed_points.sum(axis=0)
    assert counts.sum() == 462
    assert counts.min() == 8
    assert counts[0] >= 462 - 2.0 * math.sqrt(462)


def test_actions_that_never_return_are_never_overdue():
    generator, policy = np.random.default_rng(0), kb.ek_ucb(seed=0)
    for _ in range(60):
        context, actions = generator.normal(size=1), generator.random((2, 3))
        points = np.hstack([np.repeat(context[None, :], 2, axis=0), actions])
        assert not overdue(policy.posterior, points, 1)
        decision = policy.select(context, actions)
        policy.update(context, decision.action, generator.normal())


def test_a_given_kernel_forces_nothing():
    kernel = kb.TensorProduct(kb.Gaussian(1.0), kb.Gaussian(1.0), 2)
    counts = played(kb.ek_ucb(kernel, regularization=1e-4, seed=0), 235, PRICES, only_the_first_pays)
    assert counts.min() < 6


def test_constraints_come_first():
    """An action that is not known to be safe is not played because it is overdue."""
    limit = kb.Below(0.5, kb.Gaussian(0.2))
    policy = kb.ek_ucb(seed=0).constrained({"heat": limit}, safe_actions=PRICES[:2])
    generator = np.random.default_rng(0)
    for _ in range(120):
        context = generator.normal(size=2)
        decision = policy.select(context, PRICES)
        policy.update(context, decision.action, 1.0, outputs={"heat": float(decision.action[0])})
        assert decision.action[0] < 0.5


def test_a_forced_play_has_its_probability():
    """With a floor of ε it is played with probability 1 − ε + ε/A, and the others with ε/A."""
    generator, policy, rounds = np.random.default_rng(0), kb.ek_ucb(seed=0, exploration_floor=0.05), 225
    for number in range(rounds):
        index = 1 + number // 8 % 3 if number % 8 == 0 else 0
        policy.update(generator.normal(size=2), np.eye(5)[index], float(index == 0) + generator.normal())
    decision = policy.select(generator.normal(size=2), np.eye(5))
    np.testing.assert_allclose(decision.probabilities, [0.01, 0.01, 0.01, 0.01, 0.96])


def test_a_saved_policy_looks_when_the_other_one_does(tmp_path):
    policy = kb.ek_ucb(seed=0)
    played(policy, 97, PRICES, only_the_first_pays)
    policy.save(tmp_path / "policy.kb")
    again = kb.load(tmp_path / "policy.kb")
    assert (
        played(policy, 20, PRICES, only_the_first_pays, seed=1).tolist()
        == played(again, 20, PRICES, only_the_first_pays, seed=1).tolist()
    )
