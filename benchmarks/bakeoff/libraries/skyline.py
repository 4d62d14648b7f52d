"""What full information would give: supervised learners that see the rewards of all arms, fitted as the rows go by.

They are no bandits. Their progressive reward bounds what exploration can cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings
from bakeoff.problem import FloatArray, Offer

# Learners are fitted anew each time this share of rows has been added, first after these many.
GROWTH = 0.2
FIRST_FIT = 20


class Supervised(Player):
    """A regression of every arm's reward, or a classifier of the best arm where one arm pays 1 and the others 0."""

    def __init__(self, learner: Any, arms: int, seed: int) -> None:
        self.learner, self.arms = learner, arms
        self.generator = np.random.default_rng(seed)
        self.contexts: list[FloatArray] = []
        self.labels: list[int] = []
        self.next_fit = FIRST_FIT
        self.fitted = False

    def choose(self, offer: Offer) -> int:
        if not self.fitted:
            return int(self.generator.integers(self.arms))
        return int(self.learner.predict(offer.flat[None, :])[0])

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        pass

    def learn_all(self, offer: Offer, rewards: FloatArray) -> None:
        self.contexts.append(offer.flat)
        self.labels.append(int(np.argmax(rewards)))
        if len(self.labels) >= self.next_fit and len(set(self.labels)) > 1:
            self.learner.fit(np.array(self.contexts), np.array(self.labels))
            self.fitted = True
            self.next_fit = len(self.labels) + max(FIRST_FIT, int(GROWTH * len(self.labels)))


def logistic(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (nothing is set)
    from sklearn.linear_model import LogisticRegression

    return Supervised(LogisticRegression(max_iter=300), shape.arms, seed)


def boosting(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (nothing is set)
    from sklearn.ensemble import HistGradientBoostingClassifier

    return Supervised(HistGradientBoostingClassifier(random_state=seed), shape.arms, seed)


def named_arms(shape: Shape) -> bool:
    """Return whether the best arm is a class to be predicted: arms are names and one of them pays 1."""
    return shape.is_binary and not shape.action_columns


LIBRARY = Library(
    "full information",
    "skyline",
    ("scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1"),
    (Entry("logistic regression", logistic, plays=named_arms), Entry("gradient boosting", boosting, plays=named_arms)),
    role="skyline",
    # boosting many classes takes minutes
    most_shuffles=1,
)
