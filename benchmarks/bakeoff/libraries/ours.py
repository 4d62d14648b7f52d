"""kernel-bandits, nothing set: the same call on every table, and no hindsight."""

from __future__ import annotations

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings
from bakeoff.problem import Offer


class Ours(Player):
    """``kb.ek_ucb(seed=…)`` through the array interface, arms without features as unit vectors."""

    def __init__(self, seed: int) -> None:
        import kernel_bandits as kb

        self.policy = kb.ek_ucb(seed=seed)

    def choose(self, offer: Offer) -> int:
        return self.policy.select(offer.context, offer.actions).index

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        self.policy.update(offer.context, offer.actions[arm], reward)


def nothing_set(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (nothing is set)
    return Ours(seed)


LIBRARY = Library("kernel-bandits", "ours", (), (Entry("ek_ucb(), nothing set", nothing_set),), role="ours")
