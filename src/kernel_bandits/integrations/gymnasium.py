"""Our environments in Gymnasium, and our policies in its contextual bandits.

Importing this module registers the environments, as Gymnasium expects of other packages:
``gymnasium.make("kernel_bandits.integrations.gymnasium:kernel_bandits/Chessboard-v0")`` imports it by itself.
"""

from collections.abc import Callable
from typing import Any, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_points
from kernel_bandits.environments import Bump, Chessboard, Environment, MovingOptimum, MovingPeak, Round, StepDiagonal
from kernel_bandits.errors import InputError, needs
from kernel_bandits.loop import Feedback, RunResult, Simulation, record
from kernel_bandits.policy.policy import Policy

with needs("gymnasium", "kernel-bandits[gym]"):
    import gymnasium
    from gymnasium import spaces

NAMESPACE = "kernel_bandits"
ROUNDS_PER_EPISODE = 2000
# The environments whose contexts lie in the unit cube.
REGISTERED: dict[str, type[Environment]] = {
    environment.__name__: environment for environment in (Bump, Chessboard, MovingOptimum, MovingPeak, StepDiagonal)
}

Describe: TypeAlias = Callable[[Any, dict[str, Any]], ArrayLike]


class ContextualBandit(gymnasium.Env[FloatArray, Any]):
    """An environment as a Gymnasium one: the observation is a context, an action is a row of those offered.

    ``info["actions"]`` holds the features of the offered actions, shape (A, d_a), and after a step ``info["regret"]``
    is the regret of the action played. If the environment offers a box, an action is a point of it, and ``info`` holds
    no features. Episodes do not end by themselves; the registered ids end them after 2,000 rounds. ``reset(seed=s)``
    draws the contexts and the noise of ``kernel_bandits.run(…, seed=s)``; without a seed the same stream continues.

    Args:
        environment: offers the same number of actions, or the same box, in every round.
        low: lower bound of the contexts, for the observation space.
        high: upper bound of the contexts.
    """

    def __init__(self, environment: Environment, low: float = -np.inf, high: float = np.inf) -> None:
        self.environment: Environment = environment
        example = Simulation(environment, seed=0).offer()
        self.observation_space: spaces.Space[Any] = spaces.Box(low, high, example.context.shape, np.float64)
        self.action_space: spaces.Space[Any] = _space(example)
        self._simulation: Simulation | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        if seed is None and self._simulation is None:
            seed = int(self.np_random.integers(2**63))
        if seed is not None:
            self._simulation = Simulation(self.environment, seed)
        return self._next_round()

    def step(self, action: Any) -> tuple[FloatArray, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._simulation is None:
            raise InputError("step: no round has begun; call reset() first.")
        if not self.action_space.contains(action):
            raise InputError(f"action: expected one of {self.action_space}, got {action!r}.")
        feedback = self._simulation.play(action)
        context, info = self._next_round()
        return context, feedback.reward, False, False, info | {"regret": feedback.regret}

    def _next_round(self) -> tuple[FloatArray, dict[str, Any]]:
        assert self._simulation is not None
        offer = self._simulation.offer()
        space = _space(offer)
        if space != self.action_space:
            raise InputError(
                f"environment: {self.environment!r} offers {space} after {self.action_space} in another round; "
                "an action space must not change."
            )
        return offer.context.copy(), {} if isinstance(offer.actions, Box) else {"actions": offer.actions.copy()}


def _space(offer: Round) -> spaces.Space[Any]:
    if isinstance(offer.actions, Box):
        return spaces.Box(offer.actions.low, offer.actions.high, dtype=np.float64)
    return spaces.Discrete(len(offer.actions))


def build(name: str, **options: Any) -> ContextualBandit:
    """Build a registered environment by name, such as ``Chessboard``; options are passed to its class."""
    return ContextualBandit(REGISTERED[name](**options), low=0.0, high=1.0)


def register() -> None:
    """Register ``kernel_bandits/Chessboard-v0`` and the others with ``gymnasium.make``; a second call does nothing."""
    for name in REGISTERED:
        identifier = f"{NAMESPACE}/{name}-v0"
        if identifier not in gymnasium.registry:
            gymnasium.register(
                id=identifier,
                entry_point=f"{__name__}:{build.__name__}",
                max_episode_steps=ROUNDS_PER_EPISODE,
                kwargs={"name": name},
            )


class _Play:
    """A Gymnasium contextual bandit as a sequence of rounds; an episode may be one round or many."""

    def __init__(self, env: gymnasium.Env[Any, Any], actions: ArrayLike | Describe | None, seed: int | None) -> None:
        space = env.action_space
        self._box: Box | None = None
        if actions is None and isinstance(space, spaces.Box) and len(space.shape) == 1 and space.is_bounded():
            self._box = Box(space.low, space.high)
        elif not isinstance(space, spaces.Discrete):
            raise InputError(
                f"env: expected a Discrete action space, or a bounded Box with one axis and no actions=, got {space}."
            )
        if not env.observation_space.is_np_flattenable:
            seen = env.observation_space
            raise InputError(f"env: observations of {seen} have no fixed length; wrap the environment.")
        self._env, self._space, self._actions = env, env.action_space, actions
        self._observation, self._info = env.reset(seed=seed)
        self._ended = False

    def offer(self) -> Round:
        if self._ended:
            self._observation, self._info = self._env.reset()
            self._ended = False
        context = spaces.flatten(self._env.observation_space, self._observation)
        return Round(np.asarray(context, dtype=np.float64), self._box or self._described())

    def _described(self) -> FloatArray:
        assert isinstance(self._space, spaces.Discrete)
        actions = self._actions
        if actions is None:
            actions = self._info.get("actions", np.eye(int(self._space.n)))
        elif callable(actions):
            actions = actions(self._observation, self._info)
        described = as_points("actions", actions)
        if len(described) != self._space.n:
            raise InputError(
                f"actions: expected one row for each of the {self._space.n} actions of the action space, "
                f"got {len(described)}."
            )
        return described

    def play(self, action: int | FloatArray) -> Feedback:
        if isinstance(self._space, spaces.Box):
            # the precision of the space may round beyond its bounds
            action = np.clip(np.asarray(action, dtype=self._space.dtype), self._space.low, self._space.high)
        else:
            assert isinstance(self._space, spaces.Discrete)
            action = self._space.start + action
        self._observation, reward, terminated, truncated, self._info = self._env.step(action)
        self._ended = terminated or truncated
        return Feedback(float(reward), float(self._info.get("regret", np.nan)))


def play(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    horizon: int,
    *,
    actions: ArrayLike | Describe | None = None,
    seed: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Run a policy on a Gymnasium contextual bandit.

    The context is the observation, flattened by ``gymnasium.spaces.flatten``. When an episode ends, the next begins.
    The regret is NaN unless the environment provides ``info["regret"]``.

    Args:
        policy: learns during the run and keeps what it has learned.
        env: with a Discrete action space, or a bounded Box whose points have one axis.
        horizon: T, the number of rounds.
        actions: the features of the actions: an array (A, d_a), or a function of observation and info that returns one,
            called every round. By default ``info["actions"]`` if the environment has it, otherwise a one-hot code.
        seed: of the first reset.
        progress: called after each round with the number of rounds finished.
    """
    return record(policy, _Play(env, actions, seed), horizon, progress)


register()
