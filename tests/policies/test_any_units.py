"""With nothing set, a policy learns whatever the unit, the level and the tails of the rewards are."""

import numpy as np
import pytest

import kernel_bandits as kb

ARMS = np.eye(3)
SLOPES = np.array([[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]])
# Expected reward of the best arm less that of an arm at random, on average over contexts.
LEAD = float(np.mean((SLOPES @ np.random.default_rng(0).standard_normal((2, 4000))).max(axis=0)))
ROUNDS = 300


def with_noise(expected, generator):
    return expected + 0.3 * generator.standard_normal()


def with_outliers(expected, generator):
    """One reward in a hundred says nothing, at the top of its voice."""
    return 1e60 * generator.standard_normal() if generator.random() < 0.01 else with_noise(expected, generator)


def with_cauchy_noise(expected, generator):
    return expected + 0.5 * generator.standard_cauchy()


def play(reward, seed, rounds=ROUNDS, policy=None):
    """Arms played, and the mean of their expected rewards in the second half."""
    generator = np.random.default_rng(seed)
    policy = kb.ek_ucb(seed=seed) if policy is None else policy
    arms, earned = [], 0.0
    for number in range(rounds):
        context = generator.standard_normal(2)
        expected = SLOPES @ context
        arms.append(policy.select(context, ARMS).index)
        policy.update(context, ARMS[arms[-1]], reward(expected[arms[-1]], generator))
        earned += expected[arms[-1]] * (2 * number >= rounds)
    return arms, 2.0 * earned / rounds


@pytest.mark.parametrize(
    ("reward", "rounds", "share"),
    [(with_noise, 300, 0.85), (with_outliers, 300, 0.75), (with_cauchy_noise, 600, 0.6)],
    ids=["noise", "outliers", "Cauchy noise"],
)
def test_most_of_the_lead_over_uniform_play_is_earned(reward, rounds, share):
    assert np.mean([play(reward, seed, rounds)[1] for seed in range(3)]) > share * LEAD


@pytest.mark.parametrize("exponent", [-150, -100, 100])
def test_decisions_do_not_depend_on_the_unit(exponent):
    def scaled(expected, generator):
        return float(np.ldexp(with_noise(expected, generator), exponent))

    assert play(scaled, 0, 150)[0] == play(with_noise, 0, 150)[0]


def test_rewards_of_1e_minus_300_are_all_equal():
    policy = kb.ek_ucb(seed=0)
    play(lambda expected, generator: 1e-300 * with_noise(expected, generator), 0, policy=policy)
    prediction = policy.predict([1.0, 0.0], ARMS)
    assert np.abs(prediction.mean).max() < 1e-299


@pytest.mark.parametrize(
    "make", [kb.ek_ucb, kb.thompson_sampling, kb.inverse_gap_weighting], ids=["ek_ucb", "thompson", "inverse gap"]
)
def test_an_offset_of_1e15_hides_nothing(make):
    # 0.125 is the distance between two floating-point numbers there
    policy = make(seed=1)
    assert play(lambda expected, generator: 1e15 + with_noise(expected, generator), 1, policy=policy)[1] > 0.6 * LEAD


@pytest.mark.parametrize("make", [kb.thompson_sampling, kb.inverse_gap_weighting], ids=["thompson", "inverse gap"])
def test_tiny_rewards_are_learned_by_policies_that_draw(make):
    policy = make(seed=1)
    assert play(lambda expected, generator: 1e-30 * with_noise(expected, generator), 1, policy=policy)[1] > 0.6 * LEAD


def test_a_box_is_searched_in_the_unit_of_the_rewards():
    def actions(unit):
        policy, box = kb.ek_ucb(seed=0), kb.Box([0.0], [1.0])
        for _ in range(16):
            action = policy.select([], box).action
            policy.update([], action, float(-unit * (action[0] - 0.3) ** 2))
        return policy.observed_points[:, 0].tolist()

    assert actions(2.0**-150) == actions(1.0)


def test_a_change_of_tiny_rewards_is_seen():
    def arms(unit):
        policy = kb.ek_ucb(forgetting=kb.Restart(limit=4.0), seed=0)
        # after the first fit, at 16 rewards per arm
        shifted = iter(np.r_[np.zeros(60), np.full(20, 5.0)])
        played = play(
            lambda expected, generator: unit * (with_noise(expected, generator) + next(shifted)), 0, 80, policy
        )
        return played[0], len(policy.posterior.observed_points)

    assert arms(2.0**-150) == arms(1.0)
    assert arms(1.0)[1] < 30


def outliers_in(policy):
    """Play on, with one reward of 1e60 in the middle of it."""
    for number, value in enumerate(np.random.default_rng(0).standard_normal(100)):
        policy.update([0.1 * value, value], ARMS[number % 3], 1e60 if number == 70 else float(value))


def test_rewards_are_reported_and_saved_as_they_were(tmp_path):
    policy = kb.ek_ucb(seed=0)
    outliers_in(policy)
    assert np.abs(policy.predict([0.0, 1.0], ARMS).mean).max() < 10.0
    assert policy.posterior.observed_rewards[70] == 1e60
    policy.save(tmp_path / "policy")
    loaded = kb.load(tmp_path / "policy")
    for each in (policy, loaded):
        # a kernel is learned meanwhile
        each.update_many(np.zeros((50, 2)), np.tile(ARMS[:1], (50, 1)), np.r_[-1e60, np.linspace(0.0, 1.0, 49)])
    np.testing.assert_array_equal(loaded.predict([0.0, 1.0], ARMS).mean, policy.predict([0.0, 1.0], ARMS).mean)
    rewards = policy.posterior.observed_rewards
    assert np.flatnonzero(np.abs(rewards) > 1e59).tolist() == [70, 100]
    assert (rewards[70], rewards[100]) == (1e60, -1e60)


def test_an_outlier_told_late_counts_at_its_place():
    policy = kb.k_ucb(seed=0)
    outliers_in(policy)
    decisions = policy.ask_many(np.zeros((3, 2)), ARMS)
    policy.tell(decisions[2].id, 1e70)
    policy.tell(decisions[0].id, 0.5)
    policy.tell(decisions[1].id, 0.25)
    assert policy.posterior.observed_rewards[[70, 100, 101, 102]].tolist() == [1e60, 0.5, 0.25, 1e70]
    assert np.abs(policy.predict([0.0, 1.0], ARMS).mean).max() < 10.0


@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb], ids=["ek_ucb", "k_ucb"])
@pytest.mark.parametrize("outlier", [1e20, 1e60])
def test_an_outlier_among_the_first_rewards_hides_none_of_the_others(outlier, make):
    generator, policy = np.random.default_rng(1), make(seed=0)
    contexts, arms = generator.standard_normal((48, 2)), generator.integers(3, size=48)
    rewards = (SLOPES[arms] * contexts).sum(axis=1)
    rewards[5] = outlier
    for context, arm, reward in zip(contexts, arms, rewards.tolist(), strict=True):
        policy.update(context, ARMS[arm], reward)
    np.testing.assert_array_equal(policy.posterior.observed_rewards, rewards)
    np.testing.assert_allclose(policy.predict([1.0, 0.0], ARMS).mean, SLOPES[:, 0], atol=0.5)


def test_equal_rewards_stay_equal_through_changes_of_the_kernel():
    # 0.67 − c + c is 0.67 for some prior means c and its neighbour for others
    generator, policy = np.random.default_rng(1), kb.ek_ucb(seed=0)
    rewards = np.full(64, 0.67)
    rewards[[0, 4, 8, 16]] = 9.8
    contexts, arms = generator.standard_normal((64, 1)), generator.integers(2, size=64)
    policy.update_many(contexts, np.eye(2)[arms], rewards)
    np.testing.assert_array_equal(policy.posterior.observed_rewards, rewards)
    assert 0.1 * rewards.var() < policy.posterior.kernel_changes[-1].regularization < 1.1 * rewards.var()


def test_without_a_history_outliers_do_not_pile_up():
    policy = kb.ek_ucb(dictionary=kb.Kors(history="none"), learn_kernel=kb.KernelLearning(warm_up=64), seed=0)
    outliers_in(policy)
    assert np.abs(policy.predict([0.0, 1.0], ARMS).mean).max() < 10.0
    assert not policy.posterior._rewards


def test_without_a_history_the_kernel_of_arms_is_learned_until_it_is_frozen():
    policy = kb.ek_ucb(dictionary=kb.Kors(history="none"), learn_kernel=kb.KernelLearning(warm_up=64), seed=0)
    play(with_noise, 0, 80, policy)
    assert [change.round_index for change in policy.posterior.kernel_changes] == [4, 6, 9, 13, 19, 27, 38, 54]


@pytest.mark.parametrize(
    ("offset", "spread"), [(1.7e12, 1e9), (1.7e12, 1.0), (0.0, 1e100), (0.0, 1e-200), (1e150, 1e145)]
)
@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb], ids=["ek_ucb", "k_ucb"])
@pytest.mark.parametrize("actions", [ARMS, np.array([[0.1], [0.5], [0.9]])], ids=["arms", "described"])
def test_columns_may_be_dates_in_milliseconds(offset, spread, make, actions):
    policy, generator, earned = make(seed=0), np.random.default_rng(0), 0.0
    for number in range(80):
        context = generator.standard_normal(2)
        decision = policy.select([offset + spread * context[0], context[1]], actions)
        expected = (context[0], -context[0], 0.0)[decision.index]
        policy.update(decision.context, decision.action, expected + 0.1 * generator.standard_normal())
        earned += expected * (number >= 40)
    # E|x| = 0.8 for the best action, 0 for one at random
    assert earned / 40 > 0.4


@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb, kb.thompson_sampling])
@pytest.mark.parametrize("level", [1.0, -3.0, 1e-200])
def test_rewards_that_are_all_equal_are_expected(make, level):
    policy = make(seed=0)
    for t in range(12):
        decision = policy.select([0.1 * t], np.eye(3))
        policy.update([0.1 * t], decision.action, level)
    np.testing.assert_array_equal(policy.predict([0.3], np.eye(3)).mean, level)
    logged = make(seed=0)
    logged.update_many(np.linspace(0.0, 1.0, 12)[:, None], np.eye(3)[np.arange(12) % 3], np.full(12, level))
    np.testing.assert_array_equal(logged.predict([0.3], np.eye(3)).mean, level)
