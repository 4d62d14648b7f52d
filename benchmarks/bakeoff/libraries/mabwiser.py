"""MABWiser: one linear model per arm (LinUCB, LinTS), nearest neighbours, decision trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings, grid
from bakeoff.problem import FloatArray, Offer

ALPHAS = (0.05, 0.1, 0.3, 1.0)
# LinTS draws from the normal distribution of an arm's weights by a singular value decomposition each round.
WIDEST_DRAW = 150


class Wiser(Player):
    """A model of MABWiser on contexts with an intercept.

    Args:
        model: a ``MAB``.
        arms: A.
        turns: how many rounds the arms take turns before the model is asked; a neighbourhood must be full.
        seed: of the first round.
    """

    def __init__(self, model: Any, arms: int, turns: int, seed: int) -> None:
        self.model, self.arms, self.turns = model, arms, turns
        self.first = int(np.random.default_rng(seed).integers(arms))
        self.learned = 0

    def choose(self, offer: Offer) -> int:
        if self.learned < self.turns:
            return (self.first + self.learned) % self.arms
        return int(self.model.predict(self.row(offer)))

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        fit = self.model.partial_fit if self.learned else self.model.fit
        fit([arm], [reward], self.row(offer))
        self.learned += 1

    def row(self, offer: Offer) -> list[FloatArray]:
        return [np.concatenate(([1.0], offer.flat))]


def linear(kind: str) -> Callable[[Settings, Shape, int], Player]:
    """Return how a linear policy of this name is built."""

    def build(settings: Settings, shape: Shape, seed: int) -> Player:
        from mabwiser.mab import MAB, LearningPolicy

        policy = getattr(LearningPolicy, kind)(alpha=settings["alpha"])
        return Wiser(MAB(list(range(shape.arms)), policy, seed=seed), shape.arms, 1, seed)

    return build


def neighbours(settings: Settings, shape: Shape, seed: int) -> Player:
    from mabwiser.mab import MAB, LearningPolicy, NeighborhoodPolicy

    model = MAB(
        list(range(shape.arms)),
        LearningPolicy.UCB1(alpha=settings["alpha"]),
        NeighborhoodPolicy.KNearest(k=settings["k"]),
        seed=seed,
    )
    return Wiser(model, shape.arms, max(shape.arms, int(settings["k"])), seed)


def trees(settings: Settings, shape: Shape, seed: int) -> Player:
    from mabwiser.mab import MAB, LearningPolicy, NeighborhoodPolicy

    model = MAB(
        list(range(shape.arms)),
        LearningPolicy.UCB1(alpha=settings["alpha"]),
        NeighborhoodPolicy.TreeBandit(),
        seed=seed,
    )
    return Wiser(model, shape.arms, 1, seed)


LIBRARY = Library(
    "MABWiser",
    "mabwiser",
    ("mabwiser==2.7.4", "numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1", "pandas==3.1.1"),
    (
        Entry("LinUCB", linear("LinUCB"), grid(alpha=ALPHAS)),
        Entry("LinTS", linear("LinTS"), grid(alpha=ALPHAS), lambda shape: shape.flat_columns <= WIDEST_DRAW),
        Entry("nearest neighbours", neighbours, grid(alpha=(0.05, 0.3), k=(5, 20))),
        Entry("trees", trees, grid(alpha=(0.05, 0.3))),
    ),
)
