"""One run: a player meets the rows of a table in a shuffled order, once, and is paid for the arm it chooses.

Only NumPy is imported: this module runs in the environment of every peer.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bakeoff.problem import FloatArray, Offer, Problem

# Points of a learning curve, at equal ratios of rounds.
CURVE_POINTS = 40
# Where a curve begins.
CURVE_START = 10


class Player(ABC):
    """A policy of some library."""

    @abstractmethod
    def choose(self, offer: Offer) -> int:
        """Return the number of the arm to play."""

    @abstractmethod
    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        """Take note of the reward of the arm that :meth:`choose` returned last; ``offer`` has the action's features."""

    def learn_all(self, offer: Offer, rewards: FloatArray) -> None:  # noqa: B027 (bandits do not see these)
        """Take note of the rewards of all arms; only skylines, which are no bandits, do."""


@dataclass(frozen=True)
class Shape:
    """What a library may know before the first round.

    Attributes:
        arms: A, their number.
        context_columns: d_x.
        action_columns: d_a; 0 where arms are names.
        is_binary: whether rewards are 0 or 1.
        horizon: T, the number of rows to come.
    """

    arms: int
    context_columns: int
    action_columns: int
    is_binary: bool
    horizon: int

    @property
    def flat_columns(self) -> int:
        """The length of :attr:`Offer.flat`."""
        return self.context_columns + self.arms * self.action_columns


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run.

    Attributes:
        rounds: how many rows counted; in a replayed log those where the logged arm was chosen, else T.
        reward: the mean reward of these rounds: progressive accuracy where the reward is 1 for the right class.
        seconds: processor time of choosing and learning together.
        curve: rounds and mean reward so far, at some rounds.
    """

    rounds: int
    reward: float
    seconds: float
    curve: list[tuple[int, float]]


def shape_of(problem: Problem, horizon: int) -> Shape:
    """Return what a library may know of a problem."""
    columns = problem.actions.shape[2]
    return Shape(problem.arms, problem.contexts.shape[1], columns, problem.is_binary, min(horizon, problem.rows))


def order_of(rows: int, seed: int, horizon: int) -> NDArray[np.int64]:
    """Return the rows of a run in order: the first ``horizon`` of a shuffle that depends on the seed alone."""
    return np.random.default_rng(seed).permutation(rows)[:horizon]


def play(player: Player, problem: Problem, seed: int, horizon: int) -> Outcome:
    """Play a problem once."""
    rewards: list[float] = []
    seconds = 0.0
    for row in order_of(problem.rows, seed, horizon):
        offer = problem.offer(int(row))
        started = time.process_time()
        arm = player.choose(offer)
        seconds += time.process_time() - started
        if not 0 <= arm < problem.arms:
            raise ValueError(f"choose: expected an arm from 0 to {problem.arms - 1}, got {arm}.")
        reward = float(problem.rewards[row, arm])
        if np.isnan(reward):
            continue
        rewards.append(reward)
        seen = problem.observed(int(row), arm, offer)
        started = time.process_time()
        player.learn(seen, arm, reward)
        player.learn_all(seen, problem.rewards[row])
        seconds += time.process_time() - started
    return Outcome(len(rewards), float(np.mean(rewards)) if rewards else 0.0, seconds, curve_of(np.array(rewards)))


def curve_of(rewards: FloatArray) -> list[tuple[int, float]]:
    """Return the mean reward so far at some rounds, the last one included."""
    if len(rewards) < CURVE_START:
        return []
    rounds = np.unique(np.geomspace(CURVE_START, len(rewards), CURVE_POINTS).round().astype(int))
    means = np.cumsum(rewards)[rounds - 1] / rounds
    return [(int(round_index), round(float(mean), 5)) for round_index, mean in zip(rounds, means, strict=True)]
