"""kernel-bandits, nothing set: the same call on every table, and no hindsight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings
from bakeoff.problem import FloatArray, Offer

if TYPE_CHECKING:
    import kernel_bandits as kb


class Ours(Player):
    """A policy of ours through the array interface: arms as unit vectors, with their features beside them."""

    def __init__(self, policy: kb.Policy) -> None:
        self.policy = policy

    def choose(self, offer: Offer) -> int:
        return self.policy.select(offer.context, self._actions(offer)).index

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        self.policy.update(offer.context, self._actions(offer)[arm], reward)

    def _actions(self, offer: Offer) -> FloatArray:
        """Return what every library knows of the arms: their number and, where they are described, their features."""
        if not offer.described:
            return offer.actions
        return np.hstack([np.eye(len(offer.actions)), offer.actions])


def nothing_set(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (nothing is set)
    import kernel_bandits as kb

    return Ours(kb.ek_ucb(seed=seed))


LIBRARY = Library("kernel-bandits", "ours", (), (Entry("ek_ucb(), nothing set", nothing_set),), role="ours")
