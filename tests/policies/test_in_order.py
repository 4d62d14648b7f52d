"""A policy that learns its kernel learns rewards in the order of decisions, whenever they come."""

import numpy as np
import pytest

import kernel_bandits as kb

ARMS = np.eye(2)


def asked(policy, count):
    generator = np.random.default_rng(0)
    return [policy.ask(generator.standard_normal(3), ARMS) for _ in range(count)]


def test_the_order_in_which_rewards_come_does_not_matter():
    in_order, mixed = kb.ek_ucb(seed=0), kb.ek_ucb(seed=0)
    for policy, order in ((in_order, range(40)), (mixed, [0, *range(39, 0, -1)])):
        decisions = asked(policy, 40)
        for number in order:
            policy.tell(decisions[number], float(number % 3 == 0))
    point = np.ones(3)
    np.testing.assert_array_equal(in_order.posterior.observed_rewards, mixed.posterior.observed_rewards)
    np.testing.assert_array_equal(in_order.predict(point, ARMS).mean, mixed.predict(point, ARMS).mean)


def test_a_reward_waits_for_those_of_earlier_decisions():
    policy = kb.ek_ucb(seed=0)
    decisions = asked(policy, 6)
    for number in (0, 1):
        policy.tell(decisions[number], 0.0)
    # decision 1 was told when five decisions had been asked for since: 2 is not late yet
    policy.tell(decisions[4], 1.0)
    assert policy.posterior.round_index == 2
    assert policy.round_index == 3
    assert policy.pending == (2, 3, 5)
    policy.tell(decisions[2], 0.0)
    assert policy.posterior.round_index == 3
    policy.expire(decisions[3])
    assert policy.posterior.round_index == 4
    assert policy.posterior.observed_rewards.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_a_decision_that_is_later_than_any_before_is_not_waited_for():
    policy = kb.ek_ucb(seed=0)
    first, second, third = asked(policy, 3)
    policy.tell(third, 1.0)
    # the third was told at once, and the first has waited for longer
    assert policy.posterior.round_index == 1
    policy.tell(first, 0.0)
    policy.tell(second, 0.0)
    assert sorted(policy.posterior.observed_rewards) == [0.0, 0.0, 1.0]


def test_rewards_that_wait_are_saved(tmp_path):
    policy = kb.ek_ucb(seed=0)
    decisions = asked(policy, 6)
    policy.tell(decisions[0], 0.0)
    policy.tell(decisions[3], 1.0)
    assert policy.posterior.round_index == 1
    policy.save(tmp_path / "policy")
    twin = kb.load(tmp_path / "policy")
    for one in (policy, twin):
        for number in (1, 2):
            one.tell(decisions[number], 0.0)
        assert one.posterior.observed_rewards.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_a_reward_counts_once_even_while_it_waits():
    policy = kb.ek_ucb(seed=0)
    decisions = asked(policy, 6)
    policy.tell(decisions[0], 0.0)
    policy.tell(decisions[3], 1.0)
    with pytest.raises(kb.InputError, match=r"was told already, with reward 1\.0"):
        policy.tell(decisions[3], 0.0)


def test_a_kernel_that_is_given_learns_at_once():
    policy = kb.ek_ucb(kb.Gaussian(1.0), seed=0)
    decisions = asked(policy, 6)
    policy.tell(decisions[0], 0.0)
    policy.tell(decisions[3], 1.0)
    assert policy.posterior.round_index == 2
