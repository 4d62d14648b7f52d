import copy
import inspect
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import kernel_bandits as kb
from kernel_bandits.integrations.gymnasium import ContextualBandit, play, register

ENVIRONMENTS = sorted(
    name
    for name, environment in vars(kb.environments).items()
    if inspect.isclass(environment)
    and issubclass(environment, kb.environments.Environment)
    and not inspect.isabstract(environment)
    # has no instances to draw: it is made from rows
    and environment is not kb.environments.Table
)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_is_registered_and_passes_the_checks(name):
    check_env(gym.make(f"kernel_bandits/{name}-v0").unwrapped)


def test_gymnasium_imports_the_adapter_by_itself_and_only_then():
    program = (
        "import gymnasium, sys, kernel_bandits\n"
        "print('kernel_bandits.integrations.gymnasium' in sys.modules)\n"
        "environment = gymnasium.make('kernel_bandits.integrations.gymnasium:kernel_bandits/Bump-v0')\n"
        "print(environment.spec.id, environment.spec.max_episode_steps)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["False", "kernel_bandits/Bump-v0 2000"]


def test_registering_twice_does_nothing():
    before = dict(gym.registry)
    register()
    assert gym.registry == before


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_policy_plays_there_as_it_does_here(name):
    environment = getattr(kb.environments, name)(instance_seed=4)
    here = kb.run(kb.ek_ucb(kb.Gaussian(0.5), seed=2), environment, horizon=60, seed=3)
    there = play(
        kb.ek_ucb(kb.Gaussian(0.5), seed=2),
        gym.make(f"kernel_bandits/{name}-v0", instance_seed=4),
        horizon=60,
        seed=3,
    )
    for field in ("regret", "rewards", "action_indices", "actions", "contexts", "dictionary_size"):
        np.testing.assert_array_equal(getattr(there, field), getattr(here, field))


def test_episodes_follow_each_other_in_one_stream_of_rounds():
    whole = play(kb.uniform(seed=0), gym.make("kernel_bandits/Chessboard-v0"), 30, seed=1)
    calls = []
    short = gym.make("kernel_bandits/Chessboard-v0", max_episode_steps=7)
    parts = play(kb.uniform(seed=0), short, 30, seed=1, progress=calls.append)
    # a reset draws a round of its own: the one on offer when an episode ended is not played
    np.testing.assert_array_equal(parts.contexts[:7], whole.contexts[:7])
    np.testing.assert_array_equal(parts.contexts[7], whole.contexts[8])
    assert calls == list(range(1, 31))


def test_without_a_seed_rounds_differ_and_a_copy_continues_alike():
    first, second = (gym.make("kernel_bandits/Bump-v0") for _ in range(2))
    assert not np.array_equal(first.reset()[0], second.reset()[0])
    other = copy.deepcopy(first)
    for action in (3, 1, 4):
        one, another = first.step(action), other.step(action)
        np.testing.assert_array_equal(one[0], another[0])
        assert one[1] == another[1]


def test_several_environments_at_once():
    several = gym.make_vec("kernel_bandits/Chessboard-v0", num_envs=3)
    contexts, _ = several.reset(seed=5)
    _, rewards, _, _, info = several.step(np.array([0, 1, 2]))
    for row in range(3):
        single = gym.make("kernel_bandits/Chessboard-v0")
        np.testing.assert_array_equal(single.reset(seed=5 + row)[0], contexts[row])
        _, reward, _, _, single_info = single.step(row)
        assert reward == rewards[row]
        assert single_info["regret"] == info["regret"][row]


class GuessTheLargest(gym.Env):
    """Episodes of one round: action 5 + i is right where the i-th of three observed numbers is the largest."""

    def __init__(self, action_space=None, observation_space=None):
        self.observation_space = observation_space or spaces.Dict(
            {"numbers": spaces.Box(-1, 1, (3,)), "mood": spaces.Discrete(2)}
        )
        self.action_space = action_space or spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.numbers = self.observation_space.sample()
        return self.numbers, {}

    def step(self, action):
        assert self.action_space.contains(action)
        right = action - 5 == self.numbers["numbers"].argmax()
        return self.numbers, float(right), True, False, {}


def test_a_foreign_bandit_of_one_round_episodes_is_learned():
    kernel = kb.TensorProduct(kb.Gaussian(1.0), kb.Gaussian(0.3), context_dimension=5)
    result = play(kb.ek_ucb(kernel, seed=0), GuessTheLargest(), 400, seed=0)
    assert result.contexts.shape == (400, 5)
    np.testing.assert_array_equal(result.actions, np.eye(3)[result.action_indices])
    assert result.rewards[200:].mean() > 0.75
    assert play(kb.uniform(seed=0), GuessTheLargest(), 400, seed=0).rewards.mean() < 0.45
    assert np.isnan(result.regret).all()


def test_actions_are_what_the_caller_says():
    features = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    fixed = play(kb.uniform(seed=0), GuessTheLargest(), 20, actions=features, seed=0)
    np.testing.assert_array_equal(fixed.actions, features[fixed.action_indices])

    def described(observation, info):
        assert info == {}
        return observation["numbers"].reshape(-1, 1)

    followed = play(kb.uniform(seed=0), GuessTheLargest(), 20, actions=described, seed=0)
    rows = np.arange(20)
    # flattening sorts the keys: two columns of mood, then three numbers
    np.testing.assert_array_equal(followed.actions[:, 0], followed.contexts[:, 2:][rows, followed.action_indices])


class Target(gym.Env):
    """Episodes of one round: the reward falls with the distance of a point from the one that was observed."""

    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Box(np.float32([-1.0, 0.1]), np.float32([1.0, 2.0]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.place = self.np_random.random(2).astype(np.float32)
        return self.place, {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.place, -float(np.abs(action - self.place).sum()), True, False, {}


def test_a_foreign_bandit_with_a_box_of_actions_is_learned():
    policy = kb.ek_ucb(kb.Gaussian(1.0), regularization=0.01, seed=0)
    result = play(policy, Target(), 150, seed=0)
    assert (result.action_indices == -1).all()
    assert result.rewards[100:].mean() > -0.3
    assert play(kb.uniform(seed=0), Target(), 150, seed=0).rewards.mean() < -0.8


class Growing(kb.environments.Environment):
    """Offers one action, then ever more."""

    def __init__(self):
        self.count = 0

    def next_round(self, contexts):
        self.count += 1
        return kb.environments.Round(contexts.random(1), np.zeros((self.count, 1)))

    def expected_rewards(self, context, actions):
        return np.full(len(actions), context[0])


def test_what_cannot_be_played_is_named():
    chessboard = ContextualBandit(kb.environments.Chessboard())
    with pytest.raises(kb.InputError, match=r"reset\(\) first"):
        chessboard.step(0)
    chessboard.reset(seed=0)
    with pytest.raises(kb.InputError, match=r"one of Discrete\(10\), got 10"):
        chessboard.step(10)
    with pytest.raises(kb.InputError, match=r"offers Discrete\(2\) after Discrete\(1\)"):
        ContextualBandit(Growing()).reset(seed=0)
    with pytest.raises(kb.InputError, match="each of the 10 actions"):
        play(kb.uniform(seed=0), chessboard, 5, actions=np.eye(3))
    with pytest.raises(kb.InputError, match="Discrete action space"):
        play(kb.uniform(seed=0), GuessTheLargest(action_space=spaces.MultiBinary(3)), 5)
    with pytest.raises(kb.InputError, match="bounded Box with one axis"):
        play(kb.uniform(seed=0), GuessTheLargest(action_space=spaces.Box(0, np.inf)), 5)
    sequences = spaces.Sequence(spaces.Box(0, 1))
    with pytest.raises(kb.InputError, match="no fixed length"):
        play(kb.uniform(seed=0), GuessTheLargest(observation_space=sequences), 5)
    with pytest.raises(kb.InputError, match="environment"):
        ContextualBandit(kb.environments.Chessboard)
