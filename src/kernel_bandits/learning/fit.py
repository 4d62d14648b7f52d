"""Lengthscales, output variance and noise that explain a sample of rewards best.

Maximises the collapsed bound of :mod:`~kernel_bandits.learning.evidence` plus a weak prior, in units in which every
column of the points and the rewards have spread one, so that the result does not depend on the units of the data. The
prior ties the columns together while little is known: a handful of points cannot declare a column irrelevant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import Stationary
from kernel_bandits.learning.objective import SEARCH_SIZE, EvidenceObjective, Score
from kernel_bandits.learning.units import RewardModel, Units

SEARCH_ITERATIONS, REFINE_ITERATIONS = 20, 12
# A model by which the rewards are mostly noise is preferred to one that explains them better by no more than this many
# nats, half a nat for each of several lengthscales.
ROUGHNESS_NATS = 4.0


class Sample:
    """A sample of observations on which models are fitted and compared.

    Args:
        points: shape (n, d), in random order: the first ``SEARCH_SIZE`` of them serve the search for a start.
        rewards: shape (n,).
        groups: a label from 0 on for each column; columns with the same label share a lengthscale in units of their
            spread. None for one lengthscale per column.
        units: of an earlier sample of the same stream, if there was one.
    """

    def __init__(
        self,
        points: FloatArray,
        rewards: FloatArray,
        groups: Sequence[int] | None = None,
        units: Units | None = None,
    ) -> None:
        labels = np.arange(points.shape[1]) if groups is None else np.asarray(groups, dtype=np.intp)
        self.units = Units(points, rewards, labels, units)
        self._points = self.units.scaled(points)
        self._rewards = (rewards - self.units.reward_centre) / self.units.reward_spread

    def fit(self, family: Stationary, before: RewardModel | None) -> RewardModel:
        """Return the model that explains the sample best.

        Args:
            family: the kernel whose lengthscales are sought; its own do not matter.
            before: a model to start from too, besides a few starts of its own.
        """
        # a few points are enough to tell which start leads to the best place, and to come near it; the model before is
        # near it already, if it is the best start
        few = self._objective(family, SEARCH_SIZE)
        starts = few.starts()
        if before is not None:
            starts.append(few.within_bounds(self.units.parameters(before)))
        best = int(np.argmin([few.negated(start)[0] for start in starts]))
        parameters = starts[best]
        if before is None or best < len(starts) - 1 or len(self._points) <= SEARCH_SIZE:
            parameters = few.maximise(parameters, SEARCH_ITERATIONS)
        objective = few
        if len(self._points) > SEARCH_SIZE:
            objective = self._objective(family)
            objective.choose_inducing(parameters)
            parameters = _or_noise(objective, few, objective.maximise(parameters, REFINE_ITERATIONS))
            parameters = objective.cautious(parameters, objective.best_mean(parameters))
        return self.units.model(family, parameters, objective.best_mean(parameters))

    def score(self, model: RewardModel) -> Score:
        """Return how well a model explains the sample."""
        parameters, objective = self.units.parameters(model), self._objective(model.kernel)
        return objective.score(parameters, (model.mean - self.units.reward_centre) / self.units.reward_spread)

    def _objective(self, family: Stationary, size: int | None = None) -> EvidenceObjective:
        return EvidenceObjective(family, self._points[:size], self._rewards[:size], self.units.groups)


def _or_noise(objective: EvidenceObjective, few: EvidenceObjective, parameters: FloatArray) -> FloatArray:
    """Parameters, or others by which the rewards are mostly noise, if these explain them nearly as well.

    A very short lengthscale fits pure noise as well as a noise term does, and often better by a few nats, for it has a
    lengthscale per column to do so. But it makes every point an anchor and learns nothing.
    """
    if parameters[-1] > parameters[-2]:
        return parameters
    noise = few.maximise(few.starts()[-1], SEARCH_ITERATIONS)
    if noise[-1] <= noise[-2] or few.negated(noise)[0] > few.negated(parameters)[0] + 2.0 * ROUGHNESS_NATS:
        return parameters
    noise = objective.maximise(noise, REFINE_ITERATIONS)
    return noise if objective.negated(noise)[0] <= objective.negated(parameters)[0] + ROUGHNESS_NATS else parameters
