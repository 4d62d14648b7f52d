"""A policy that learns its kernel learns rewards in the order of decisions, whenever they come."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.defaults import FIRST_SETTLED, RECENT_WAITS

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


@pytest.mark.parametrize("options", [{}, {"kernel": kb.Gaussian(1.0), "forgetting": kb.Restart()}])
def test_a_reward_waits_for_those_of_earlier_decisions(options):
    policy = kb.ek_ucb(**options, seed=0)
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
    lost, late, told = asked(policy, 3)
    policy.tell(told, 1.0)
    # most decisions are still to be told
    assert policy.posterior.round_index == 0
    policy.tell(late, 0.0)
    # the second had waited for two decisions, and the first has for three
    assert policy.posterior.observed_rewards.tolist() == [0.0, 1.0]
    policy.tell(lost, 0.0)
    assert policy.posterior.observed_rewards.tolist() == [0.0, 1.0, 0.0]


def test_at_first_all_are_waited_for_while_most_are_to_be_told():
    policy, generator = kb.ek_ucb(kb.Gaussian(1.0), learn_kernel=True, seed=0), np.random.default_rng(0)
    for number in range(5 * FIRST_SETTLED):
        decision = policy.ask(generator.standard_normal(3), ARMS)
        if number % 5 == 4:
            policy.tell(decision, float(number % 2))
            # nobody knows how long the others take until so many are settled
            assert policy.posterior.round_index == (0 if policy.round_index < FIRST_SETTLED else FIRST_SETTLED)


def test_as_long_as_rewards_are_all_the_same_silences_are_waited_for():
    policy, generator, silent = kb.ek_ucb(seed=0), np.random.default_rng(0), []
    # two of three buy at once
    for number in range(3 * FIRST_SETTLED):
        decision = policy.ask(generator.standard_normal(3), ARMS)
        if number % 3:
            policy.tell(decision, 1.0)
        else:
            silent.append(decision)
    assert policy.posterior.round_index == 0
    # that the first did not is told, and the next one has not waited for as long
    policy.tell(silent[0], 0.0)
    assert policy.posterior.round_index == 3
    for decision in silent[1:]:
        policy.tell(decision, 0.0)
    expected = [float(number % 3 > 0) for number in range(3 * FIRST_SETTLED)]
    assert policy.posterior.observed_rewards.tolist() == expected


def test_one_reward_that_came_very_late_is_not_the_rule():
    policy, waiting = kb.ek_ucb(kb.Gaussian(1.0), learn_kernel=True, seed=0), []
    generator = np.random.default_rng(0)
    for number in range(300 + 3 * RECENT_WAITS):
        waiting.append(policy.ask(generator.standard_normal(3), ARMS))
        # the third is told after 300 others, every tenth never
        if number % 10 and number != 3:
            policy.tell(waiting[number], float(number % 2))
        if number == 300:
            policy.tell(waiting[3], 1.0)
            assert policy.posterior.round_index == policy.round_index
        if number == 600:
            assert policy.posterior.round_index < policy.round_index - 200
    assert policy.posterior.round_index == policy.round_index


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
