"""What takes no thought: arms at random, and the arm with the best mean so far whatever the context."""

from __future__ import annotations

import numpy as np

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings
from bakeoff.problem import Offer


class Uniform(Player):
    """Any arm with the same probability."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def choose(self, offer: Offer) -> int:
        return int(self.generator.integers(len(offer.actions)))

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        pass


class UpperConfidenceBound(Player):
    """UCB1-tuned (Auer, Cesa-Bianchi and Fischer 2002), which does not look at the context."""

    def __init__(self, arms: int) -> None:
        self.counts, self.sums, self.squares = np.zeros(arms), np.zeros(arms), np.zeros(arms)

    def choose(self, offer: Offer) -> int:  # noqa: ARG002 (contexts do not count)
        if not self.counts.all():
            return int(np.argmin(self.counts))
        mean = self.sums / self.counts
        share = np.log(self.counts.sum()) / self.counts
        variance = self.squares / self.counts - mean**2 + np.sqrt(2 * share)
        return int(np.argmax(mean + np.sqrt(share * np.minimum(0.25, variance))))

    def learn(self, offer: Offer, arm: int, reward: float) -> None:  # noqa: ARG002 (the same)
        self.counts[arm] += 1
        self.sums[arm] += reward
        self.squares[arm] += reward**2


def uniform(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (a player knows nothing)
    return Uniform(seed)


def without_context(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (nothing is set or drawn)
    return UpperConfidenceBound(shape.arms)


LIBRARY = Library(
    "no context", "floor", (), (Entry("uniform", uniform), Entry("UCB1-tuned", without_context)), role="floor"
)
