"""The loop and its result: the environment offers a round, the policy selects an action, the reward updates it."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_count, as_vector
from kernel_bandits.environments.base import ContinuousEnvironment, Environment, Round, noise_takes_play
from kernel_bandits.errors import InputError
from kernel_bandits.policy.policy import Policy
from kernel_bandits.rng import Seed, stream


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """The result of a run of T rounds; every array has one entry per round.

    Attributes:
        regret: cumulative pseudo-regret: the best expected reward on offer minus that of the chosen action.
        rewards: the noisy rewards the policy saw.
        action_indices: row numbers of the chosen actions.
        actions: the chosen actions, shape (T, d_a).
        contexts: the contexts, shape (T, d_x).
        dictionary_size: number of points that carry the model after the round.
        select_seconds: time spent in ``select``.
        update_seconds: time spent in ``update``.
        propensities: the probability of each chosen action, or its density in a box; None if the policy does not choose
            at random.
    """

    regret: FloatArray
    rewards: FloatArray
    action_indices: NDArray[np.int64]
    actions: FloatArray
    contexts: FloatArray
    dictionary_size: NDArray[np.int64]
    select_seconds: FloatArray
    update_seconds: FloatArray
    propensities: FloatArray | None = None

    def __repr__(self) -> str:
        return (
            f"RunResult({self.horizon} rounds, regret {self.regret[-1]:.4g}, mean reward {self.rewards.mean():.4g}, "
            f"dictionary {self.dictionary_size[-1]}, {self.seconds[-1]:.3g} s)"
        )

    @property
    def horizon(self) -> int:
        """T, the number of rounds."""
        return len(self.regret)

    @property
    def seconds(self) -> FloatArray:
        """Cumulative time spent in ``select`` and ``update``."""
        return np.cumsum(self.select_seconds + self.update_seconds)


class Feedback(NamedTuple):
    """The noisy reward of an action, and its regret, which the policy never sees."""

    reward: float
    regret: float


class Game(Protocol):
    """A sequence of rounds; each is offered once, then played once."""

    def offer(self) -> Round:
        """Return the next round."""

    def play(self, action: int | FloatArray) -> Feedback:
        """Play an action of the offered round: a row, or a point (d_a,) of a box. The regret is NaN if unknown."""


class Simulation:
    """An environment as a game. Its contexts and its noise depend on the seed, and not on the actions played."""

    def __init__(self, environment: Environment, seed: Seed = None) -> None:
        if not isinstance(environment, Environment):
            raise InputError(
                f"environment: expected an Environment instance, got {environment!r}; run(policy, environment, …)."
            )
        self.environment = environment
        self._contexts, self._noise = stream(seed, "contexts"), stream(seed, "noise")
        self._noise_takes_play = noise_takes_play(environment)
        self._offered: Round | None = None
        self.noise_variance: float | None = None  # of the last reward, where it is known

    def offer(self) -> Round:
        self._offered = self.environment.next_round(self._contexts)
        return self._offered

    def play(self, action: int | FloatArray) -> Feedback:
        if self._offered is None:
            raise InputError("play: no round is on offer; call offer() before each play().")
        context, actions = self._offered.context, self._offered.actions
        if isinstance(actions, Box):
            chosen = as_vector("action", action, actions.dimension)
            both = np.stack([self._best_action(context, actions), chosen])
            optimum, expected = self._expected(context, both).tolist()
        else:
            of_all = self._expected(context, actions)
            optimum, expected = of_all.max(), of_all[action]
            chosen = actions[action]
        self._offered = None
        played = (context, chosen) if self._noise_takes_play else ()
        noise = self.environment.noise(self._noise, *played)
        self.noise_variance = self.environment.noise_variance(context, chosen)
        return Feedback(float(expected + noise), float(optimum - expected))

    def _expected(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        expected = self.environment.expected_rewards(context, actions)
        if np.shape(expected) != (len(actions),):
            raise InputError(
                f"expected_rewards: expected one number per action, shape ({len(actions)},), "
                f"got shape {np.shape(expected)}."
            )
        return expected

    def _best_action(self, context: FloatArray, box: Box) -> FloatArray:
        if not isinstance(self.environment, ContinuousEnvironment):
            raise InputError(
                f"environment: {self.environment.name} offers a Box; subclass ContinuousEnvironment and "
                "implement best_action(context), which returns the optimum."
            )
        return as_vector("best_action", self.environment.best_action(context), box.dimension)


def run(
    policy: Policy,
    environment: Environment,
    horizon: int,
    seed: Seed = None,
    progress: Callable[[int], None] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> RunResult:
    """Run a policy in an environment.

    Args:
        policy: updated in place, round by round.
        environment: draws contexts, offers actions and returns rewards.
        horizon: T, the number of rounds.
        seed: of the contexts and the noise. Policies run with the same seed meet the same contexts and noise.
        progress: called after each round with the number of finished rounds.
        clock: returns seconds, to time ``select`` and ``update``. ``time.process_time`` counts only the work of this
            process.
    """
    return record(policy, Simulation(environment, seed), horizon, progress, clock)


def record(
    policy: Policy,
    game: Game,
    horizon: int,
    progress: Callable[[int], None] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> RunResult:
    """Run a policy through a game; :func:`run` does so for an environment."""
    horizon = as_count("horizon", horizon)
    regrets, rewards = np.empty(horizon), np.empty(horizon)
    select_seconds, update_seconds = np.empty(horizon), np.empty(horizon)
    indices, sizes = np.empty(horizon, dtype=np.int64), np.empty(horizon, dtype=np.int64)
    chosen, seen, propensities = [], [], []
    for t in range(horizon):
        offer = game.offer()
        started = clock()
        decision = policy.select(offer.context, offer.actions)
        select_seconds[t] = clock() - started

        rewards[t], regrets[t] = game.play(decision.action if isinstance(offer.actions, Box) else decision.index)
        known = getattr(game, "noise_variance", None)

        started = clock()
        policy.update(offer.context, decision.action, rewards[t], noise_variance=known)
        update_seconds[t] = clock() - started
        indices[t], sizes[t] = decision.index, policy.dictionary_size
        chosen.append(decision.action)
        seen.append(offer.context)
        probability = decision.density if decision.propensity is None else decision.propensity
        if probability is not None:
            propensities.append(probability)
        if progress is not None:
            progress(t + 1)
    return RunResult(
        regret=np.cumsum(regrets),
        rewards=rewards,
        action_indices=indices,
        actions=np.array(chosen),
        contexts=np.array(seen),
        dictionary_size=sizes,
        select_seconds=select_seconds,
        update_seconds=update_seconds,
        propensities=np.array(propensities) if len(propensities) == horizon else None,
    )
