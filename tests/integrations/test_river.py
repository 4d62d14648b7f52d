import copy
import random

import gymnasium as gym
import numpy as np
import pytest
from river import bandit, stats

import kernel_bandits as kb
from kernel_bandits.integrations import gymnasium as registered
from kernel_bandits.integrations.river import KernelBandit

ARMS = np.linspace(0, 1, 40).reshape(-1, 1)


class Hill(gym.Env):
    """Forty arms on a line, the best of which changes with the episode."""

    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(len(ARMS))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.peak, self.rounds = self.np_random.random(), 0
        return 0, {}

    def step(self, arm):
        self.rounds += 1
        reward = np.exp(-((ARMS[arm, 0] - self.peak) ** 2) / 0.02) + 0.1 * self.np_random.normal()
        return 0, reward, False, self.rounds == 120, {}


def ek_ucb(seed=0):
    return kb.ek_ucb(kb.Gaussian(0.15), seed=seed)


def test_evaluate_runs_it_next_to_river_s_own_policies():
    policies = [
        KernelBandit(ek_ucb(), ARMS),
        bandit.UCB(delta=1, seed=1),
        bandit.EpsilonGreedy(0.1, seed=1),
        bandit.RandomPolicy(seed=1),
    ]
    totals = np.zeros((4, 5))
    for step in bandit.evaluate(policies, Hill(), n_episodes=5, seed=1):
        totals[step["policy_idx"], step["episode"]] += step["reward"]
    assert (totals[0] > totals[1:]).all()
    assert totals[0].mean() > 100
    assert policies[0].policy.round_index == 0


def test_pulls_are_those_of_the_policy_played_by_hand():
    steps = list(bandit.evaluate([KernelBandit(ek_ucb(seed=4), ARMS)], Hill(), n_episodes=2, seed=7))
    seeds = random.Random(7)
    for episode in range(2):
        environment, policy = Hill(), ek_ucb(seed=4)
        environment.reset(seed=seeds.randint(0, 2**32))
        seeds.randint(0, 2**32 - 1)
        for step in steps[120 * episode : 120 * (episode + 1)]:
            decision = policy.select([], ARMS)
            reward = environment.step(decision.index)[1]
            policy.update([], decision.action, reward)
            assert (step["arm"], step["reward"]) == (decision.index, reward)


def test_evaluate_plays_our_environments():
    environment = gym.make(f"{registered.NAMESPACE}/Bump-v0", max_episode_steps=50)
    actions = environment.unwrapped.environment.actions
    steps = list(bandit.evaluate([KernelBandit(ek_ucb(), actions)], environment, n_episodes=2, seed=1))
    assert [step["step"] for step in steps] == 2 * list(range(50))


def test_the_testbed_of_river():
    policies = [KernelBandit(kb.ek_ucb(kb.Gaussian(0.3), regularization=1.0, seed=0), np.eye(10))]
    policies.append(bandit.RandomPolicy(seed=1))
    environment = gym.make("river_bandits/KArmedTestbed-v0", max_episode_steps=200)
    totals = np.zeros(2)
    for step in bandit.evaluate(policies, environment, n_episodes=4, seed=2):
        totals[step["policy_idx"]] += step["reward"]
    assert totals[0] > totals[1] + 4 * 200 * 0.7


def log(count, seed=0):
    """Arms by name, contexts by feature, played uniformly: a is right in the sun, b in the rain."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        weather = {"sun": generator.random(), "wind": generator.random()}
        arm = str(generator.choice(["a", "b"]))
        yield ["a", "b"], weather, arm, float((arm == "a") == (weather["sun"] > 0.5))


def test_evaluate_offline_passes_contexts():
    features = {"a": [0.0], "b": [1.0]}
    learner = KernelBandit(ek_ucb(), features)
    reward, used = bandit.evaluate_offline(learner, log(600), reward_stat=stats.Mean())
    assert 250 < used < 350
    assert reward.get() > 0.85
    policy, taken = ek_ucb(), []
    for arms, context, arm, outcome in log(600):
        values = [context["sun"], context["wind"]]
        if arms[policy.select(values, [features[name] for name in arms]).index] == arm:
            policy.update(values, features[arm], outcome)
            taken.append(outcome)
    assert (reward.get(), used) == (pytest.approx(np.mean(taken)), len(taken))


def test_clones_and_copies():
    policy = KernelBandit(ek_ucb(), {"a": [0.0], "b": [1.0]}, burn_in=3)
    for arms, context, _, _ in log(40):
        arm = policy.pull(arms, context)
        policy.update(arm, context, float(arm == "b"))
    assert policy.ranking == ["b", "a"]
    assert sum(policy._counts.values()) == 40
    assert policy._counts["a"] >= 3
    clone, twin = policy.clone(), copy.deepcopy(policy)
    assert clone._learner.round_index == 0
    assert clone.burn_in == 3
    arms, context, _, _ = next(log(1, seed=9))
    assert clone.pull(arms, context) == "a"  # burning in
    assert twin.pull(arms, context) == policy.pull(arms, context)


def test_what_cannot_be_pulled_is_named_and_changes_nothing():
    policy = KernelBandit(ek_ucb(), {"a": [0.0]})
    with pytest.raises(kb.InputError, match="none for 'b'"):
        policy.pull(["a", "b"])
    with pytest.raises(kb.InputError, match="none for 40"):
        KernelBandit(ek_ucb(), ARMS).pull(range(41))
    policy.update("a", {"sun": 0.5}, 1.0)
    with pytest.raises(kb.InputError, match=r"keys \['sun'\], as before, got \['rain'\]"):
        policy.update("a", {"rain": 0.5}, 1.0)
    with pytest.raises(kb.InputError, match="reward"):
        policy.update("a", {"sun": 0.5}, float("nan"))
    assert policy._learner.round_index == policy._n == 1
