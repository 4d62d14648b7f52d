"""river: LinUCBDisjoint, one Bayesian linear regression per arm."""

from __future__ import annotations

from typing import Any

import numpy as np

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings, grid
from bakeoff.problem import Offer

# The regression keeps its matrices as dictionaries; its authors call it too slow for practice.
WIDEST = 70


class Disjoint(Player):
    """LinUCBDisjoint on contexts with an intercept."""

    def __init__(self, settings: Settings, seed: int) -> None:
        from river import bandit

        self.policy: Any = bandit.LinUCBDisjoint(
            alpha=float(settings["alpha"]), beta=float(settings["beta"]), seed=seed
        )

    def choose(self, offer: Offer) -> int:
        return int(self.policy.pull(list(range(len(offer.actions))), context=self.row(offer)))

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        self.policy.update(arm, self.row(offer), reward)

    def row(self, offer: Offer) -> dict[str, float]:
        return {"one": 1.0} | {f"x{number}": float(value) for number, value in enumerate(np.asarray(offer.flat))}


def disjoint(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (any shape will do)
    return Disjoint(settings, seed)


LIBRARY = Library(
    "river",
    "river",
    ("river==0.26.1", "numpy==2.4.6", "scipy==1.17.1"),
    (
        Entry(
            "LinUCBDisjoint",
            disjoint,
            grid(alpha=(1.0,), beta=(1.0, 10.0, 100.0)),
            lambda shape: shape.flat_columns <= WIDEST,
        ),
    ),
)
