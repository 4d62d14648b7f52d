"""Thompson sampling: play the best action of a draw from the posterior."""

from typing import Any, final

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.policies.box_search import candidates
from kernel_bandits.policies.decision import Choice
from kernel_bandits.policies.posterior_policy import PosteriorPolicy
from kernel_bandits.posteriors.base import Posterior

# Values this close to the largest of a draw, in standard deviations, count as equal to it.
INDIFFERENCE = 1e-6


@final
class ThompsonSampling(PosteriorPolicy):
    """Draw the expected rewards of the offered actions jointly from the posterior and play the largest.

    Several draws are made and one of them, chosen uniformly, decides: each action is played with the probability that
    a single draw would give it, and given the draws its propensity is the share of draws that it wins. That share is
    exact for off-policy weights; an action that wins no draw is never played, so more draws widen the support. In a box
    the draws are made at some hundred points that cover it, others each time.

    Args:
        posterior: predicts and learns.
        generator: breaks ties and covers boxes.
        draws: the generator of the draws.
        scale: v, the factor on standard deviations.
        number_of_draws: n; propensities are multiples of 1/n.
    """

    def __init__(
        self,
        posterior: Posterior[Any],
        generator: np.random.Generator,
        draws: np.random.Generator,
        scale: float = 1.0,
        number_of_draws: int = 100,
    ) -> None:
        super().__init__(posterior, generator)
        self.scale = as_positive("scale", scale)
        self.number_of_draws = as_count("number_of_draws", number_of_draws)
        self._draws = draws

    def shortlist(self, context: FloatArray, box: Box) -> FloatArray:
        return candidates(self.posterior, context, box, self.generator)

    def choose(self, points: FloatArray) -> Choice:
        evaluation = self.posterior.evaluate_finite(points)
        self.will_draw(self.generator, self._draws)
        deviations = self.posterior.draw_deviations(points, evaluation, self.number_of_draws, self._draws)
        values = evaluation.mean + self.scale * deviations
        # Draws at equal points differ by the rounding in the factor of their singular covariance.
        tied = values >= values.max(axis=1, keepdims=True) - INDIFFERENCE * evaluation.std.max()
        decider = int(self._draws.integers(self.number_of_draws))
        row = int(self.generator.choice(np.flatnonzero(tied[decider])))
        propensity = float((tied[:, row] / tied.sum(axis=1)).mean())
        mean, std = evaluation.mean.item(row), evaluation.std.item(row)
        return Choice(row, mean, std, values.item(decider, row), propensity, (evaluation, row))

    def __repr__(self) -> str:
        return f"ThompsonSampling({self.posterior!r}, scale={self.scale:g}, number_of_draws={self.number_of_draws})"
