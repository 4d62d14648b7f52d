"""contextualbandits: bootstrapped classifiers (UCB and Thompson sampling) and LinUCB, one model per arm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings, grid
from bakeoff.problem import FloatArray, Offer

# Bootstrapped models are fitted anew after this many rounds, and later each time the history has grown by this share.
FIRST_FIT = 50
GROWTH = 0.1


class Online(Player):
    """A policy that takes in every round as it comes."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def choose(self, offer: Offer) -> int:
        return int(np.asarray(self.model.predict(offer.flat[None, :])).ravel()[0])

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        self.model.partial_fit(offer.flat[None, :], np.array([arm]), np.array([reward]))


class Refitted(Player):
    """A policy that is fitted anew as the history grows; arms are drawn at random before the first fit."""

    def __init__(self, model: Any, arms: int, seed: int) -> None:
        self.model, self.arms = model, arms
        self.generator = np.random.default_rng(seed)
        self.contexts: list[FloatArray] = []
        self.played: list[int] = []
        self.rewards: list[float] = []
        self.next_fit = FIRST_FIT

    def choose(self, offer: Offer) -> int:
        if len(self.played) < FIRST_FIT:
            return int(self.generator.integers(self.arms))
        return int(np.asarray(self.model.predict(offer.flat[None, :])).ravel()[0])

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        self.contexts.append(offer.flat)
        self.played.append(arm)
        self.rewards.append(reward)
        count = len(self.played)
        if count >= self.next_fit:
            self.model.fit(np.array(self.contexts), np.array(self.played), np.array(self.rewards))
            self.next_fit = count + max(FIRST_FIT, int(GROWTH * count))


def bootstrapped(kind: str, classifier: str = "logistic") -> Callable[[Settings, Shape, int], Player]:
    """Return how a bootstrapped policy of this name is built, the library's defaults kept but for the classifier."""

    def build(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (nothing is set)
        import sklearn
        from contextualbandits import online
        from sklearn.linear_model import LogisticRegression
        from sklearn.tree import DecisionTreeClassifier

        sklearn.set_config(assume_finite=True, skip_parameter_validation=True)
        # a leaf of one row would be as sure as one of many
        tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=seed)
        base = LogisticRegression(max_iter=200) if classifier == "logistic" else tree
        model = getattr(online, kind)(base, shape.arms, random_state=seed + 1, njobs_arms=1)
        return Refitted(model, shape.arms, seed)

    return build


def linear(settings: Settings, shape: Shape, seed: int) -> Player:
    from contextualbandits.online import LinUCB

    model = LinUCB(
        shape.arms,
        alpha=settings["alpha"],
        lambda_=settings["lambda"],
        use_float=False,
        ucb_from_empty=False,
        beta_prior="auto",
        random_state=seed + 1,  # 0 is refused
    )
    return Online(model)


def binary(shape: Shape) -> bool:
    """Return whether a classifier can learn the rewards."""
    return shape.is_binary


LIBRARY = Library(
    "contextualbandits",
    "contextualbandits",
    (
        "numpy==1.26.4",
        "scipy==1.17.1",
        "scikit-learn==1.9.1",
        "pandas==3.0.6",
        "joblib==1.6.0",
        "cython==3.3.1",
        "setuptools==65.5.0",
        "wheel==0.48.0",
        "--no-build-isolation contextualbandits==0.3.30",
    ),
    (
        # 10 to 50 ms a round: one setting each, the library's defaults
        Entry("BootstrappedUCB", bootstrapped("BootstrappedUCB"), plays=binary),
        Entry("BootstrappedTS", bootstrapped("BootstrappedTS"), plays=binary),
        Entry("BootstrappedUCB, trees", bootstrapped("BootstrappedUCB", "trees"), plays=binary),
        Entry("BootstrappedTS, trees", bootstrapped("BootstrappedTS", "trees"), plays=binary),
        Entry("LinUCB", linear, grid(**{"alpha": (0.05, 0.1, 0.3), "lambda": (1.0, 10.0)})),
    ),
)
