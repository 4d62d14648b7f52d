"""bayesianbandits: one Bayesian generalised linear model per arm, played by Thompson sampling and upper bounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings, grid
from bakeoff.problem import FloatArray, Offer

# Each pull draws weights through the inverse of an arm's precision matrix.
WIDEST = 150
# The noise precision of a linear model of rewards between 0 and 1.
NOISE_PRECISION = 5.0


class Agent(Player):
    """A contextual agent on contexts with an intercept."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def choose(self, offer: Offer) -> int:
        return int(self.agent.pull(self.row(offer))[0])

    def learn(self, offer: Offer, arm: int, reward: float) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # five steps of IRLS need not converge; the next round goes on
            self.agent.select_for_update(arm).update(self.row(offer), np.array([reward]))

    def row(self, offer: Offer) -> FloatArray:
        return np.concatenate(([1.0], offer.flat))[None, :]


def agent(learner: str, policy: str) -> Callable[[Settings, Shape, int], Player]:
    """Return how an agent with this learner and policy is built."""

    def build(settings: Settings, shape: Shape, seed: int) -> Player:
        import bayesianbandits as bb

        noise = {"beta": NOISE_PRECISION} if learner == "NormalRegressor" else {}
        arms = [
            bb.Arm(number, learner=getattr(bb, learner)(alpha=settings["prior_precision"], **noise))
            for number in range(shape.arms)
        ]
        return Agent(bb.ContextualAgent(arms, getattr(bb, policy)(), random_seed=seed))

    return build


def binary(shape: Shape) -> bool:
    """Return whether a logistic model can learn the rewards at a bearable cost."""
    return shape.is_binary and narrow(shape)


def narrow(shape: Shape) -> bool:
    """Return whether weights can be drawn at a bearable cost."""
    return shape.flat_columns <= WIDEST


PRECISIONS = (1.0, 10.0)
LIBRARY = Library(
    "bayesianbandits",
    "bayesianbandits",
    ("bayesianbandits==1.5.0", "numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1"),
    (
        Entry("logistic, Thompson", agent("BayesianGLM", "ThompsonSampling"), grid(prior_precision=PRECISIONS), binary),
        Entry(
            "linear, Thompson", agent("NormalRegressor", "ThompsonSampling"), grid(prior_precision=PRECISIONS), narrow
        ),
    ),
)
