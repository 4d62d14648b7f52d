"""The one upper-confidence-bound rule, over whichever posterior and radius it is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.confidence import Confidence, require_radius
from kernel_bandits.errors import InputError
from kernel_bandits.policies.base import TIE_TOLERANCE, BoxPolicy, Choice
from kernel_bandits.policies.box_search import finalists
from kernel_bandits.policies.posterior_policy import PosteriorPolicy
from kernel_bandits.posteriors.base import Posterior

# Points evaluated at once by select_many: enough for matrix products, little enough for the caches.
ROWS_AT_ONCE = 4096


class UpperConfidenceBound(PosteriorPolicy, BoxPolicy):
    """Play argmax mean + β·std/√λ (Algorithm 2 of the paper, and the "Kernel UCB" of its appendix).

    Args:
        posterior: predicts and learns.
        confidence: answers the radius β.
        ties: the generator that breaks ties.
        exploration: an ε and a generator: with probability ε any offered action is played instead, so that every
            decision has a known propensity of at least ε/A.
    """

    def __init__(
        self,
        posterior: Posterior[Any],
        confidence: Confidence,
        ties: np.random.Generator,
        exploration: tuple[float, np.random.Generator] | None = None,
    ) -> None:
        super().__init__(posterior, ties)
        require_radius(confidence, posterior)
        self.confidence = confidence
        self.exploration = exploration

    def _bonus(self) -> float:
        # βσ = β·std/√λ
        return self.confidence.radius(self.posterior) / math.sqrt(self.posterior.regularization)

    def _finalists(self, context: FloatArray, box: Box) -> FloatArray:
        if self.exploration is not None:
            raise InputError(
                "actions: with exploration_rate= each of finitely many actions is played with a known probability, and "
                "a Box was offered; offer rows, as box.sample(generator, 100), or leave exploration_rate= out."
            )
        return finalists(self.posterior, self._bonus(), context, box, self._ties)

    def _select(self, points: FloatArray) -> Choice:
        bonus = self._bonus()
        contenders, evaluation = self.posterior.contenders(points, bonus)
        upper_bounds = evaluation.mean + bonus * evaluation.std
        row = self._argmax(upper_bounds)
        upper_bound = upper_bounds.item(row)
        # argmax finds a NaN before any number, so one look tells that all bounds are finite.
        if not math.isfinite(upper_bound):
            self.posterior.require_finite(evaluation)
        index = row if contenders is None else int(contenders[row])
        best = index, evaluation.mean.item(row), evaluation.std.item(row), upper_bound, None
        mixed = best if self.exploration is None else self._mix(points, best, self._count_tied(upper_bounds))
        if mixed[0] == index:
            self._chosen = (evaluation, row)
        return mixed

    def _mix(self, points: FloatArray, best: Choice, tied: int) -> Choice:
        """Play the best with probability 1 − ε and any action else; either way with the propensity of the outcome."""
        assert self.exploration is not None
        rate, generator = self.exploration
        index, mean, std, upper_bound, _ = best
        # ε/A for every action, and 1 − ε shared among those that tie for the largest bound
        propensity, largest = rate / len(points), upper_bound - TIE_TOLERANCE * abs(upper_bound)
        row = int(generator.integers(len(points))) if generator.random() < rate else index
        if row != index:
            evaluation = self.posterior.evaluate_finite(points[row : row + 1])
            self._chosen = (evaluation, 0)
            mean, std = evaluation.mean.item(0), evaluation.std.item(0)
            upper_bound = mean + self._bonus() * std
        if upper_bound >= largest:
            propensity += (1.0 - rate) / tied
        return row, mean, std, upper_bound, propensity

    def _select_many(self, points: FloatArray) -> list[Choice]:
        if self.exploration is not None:
            return self._select_one_by_one(points)
        bonus = self._bonus()
        number_of_actions = points.shape[1]
        choices: list[Choice] = []
        step = max(1, ROWS_AT_ONCE // number_of_actions)
        for start in range(0, len(points), step):
            block = points[start : start + step]
            evaluation = self.posterior.evaluate_finite(block.reshape(-1, points.shape[2]))
            upper_bounds = evaluation.mean + bonus * evaluation.std
            for offset in range(0, len(upper_bounds), number_of_actions):
                index = self._argmax(upper_bounds[offset : offset + number_of_actions])
                row = offset + index
                mean, std = evaluation.mean.item(row), evaluation.std.item(row)
                choices.append((index, mean, std, upper_bounds.item(row), None))
        return choices

    def __repr__(self) -> str:
        mixture = "" if self.exploration is None else f", exploration_rate={self.exploration[0]:g}"
        return f"UpperConfidenceBound({self.posterior!r}, {self.confidence!r}{mixture})"
