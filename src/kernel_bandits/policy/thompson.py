"""Thompson sampling: play the best action of a draw from the posterior."""

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_count, as_positive, join
from kernel_bandits.boxes.density import BoxDensity, centres, divisions
from kernel_bandits.boxes.search import candidates
from kernel_bandits.policy.exploration import Exploration, as_floor, floor_words
from kernel_bandits.policy.policy import Choice, Policy
from kernel_bandits.posterior.base import Posterior, draw_deviations

# Values this close to the largest of a draw, in standard deviations, count as equal to it.
INDIFFERENCE = 1e-6


@final
class ThompsonSampling(Policy):
    """Draw the expected rewards of the offered actions jointly from the posterior and play the largest.

    Several draws are made and one of them, chosen uniformly, decides: each action is played with the probability that
    a single draw would give it, and given the draws its propensity is the share of draws that it wins. That share is
    exact for off-policy weights; an action that wins no draw is not played, unless there is a floor. In a box the draws
    are made at some hundred points that cover it, others each time.

    Args:
        posterior: predicts and learns.
        generator: breaks ties and covers boxes.
        draws: the generator of the draws.
        scale: v, the factor on standard deviations.
        number_of_draws: n; without a floor probabilities are multiples of 1/n.
        exploration_floor: ε; uniform play is mixed in, so that every offered action has at least ε/A. In a box the
            draws are then made at the cells of a grid, and decisions have a density.
    """

    saved: ClassVar[tuple[str, ...]] = (*Policy.saved, "scale", "number_of_draws", "_draws", "exploration")

    def __init__(
        self,
        posterior: Posterior,
        generator: np.random.Generator,
        draws: np.random.Generator,
        scale: float = 1.0,
        number_of_draws: int = 100,
        exploration_floor: float = 0.0,
    ) -> None:
        super().__init__(posterior, generator)
        self.scale: float = as_positive("scale", scale)
        self.number_of_draws: int = as_count("number_of_draws", number_of_draws)
        self._draws = draws
        self.exploration: Exploration = Exploration(as_floor(exploration_floor), draws)

    def on_reseed(self, entropy: int) -> None:
        # the floor draws from the same stream
        self.exploration.on_reseed(entropy)

    def shortlist(self, context: FloatArray, box: Box) -> FloatArray:
        return candidates(self.posterior, context, box, self.generator)

    def draw_in_box(self, context: FloatArray, box: Box) -> tuple[FloatArray, float] | None:
        if not self.exploration.floor:
            return None
        cells = box.at(centres(divisions(box)))
        _, _, shares = self._draw(join(context, cells), self.generator)
        density = BoxDensity(box, self.exploration.mixed(shares), np.zeros(len(box.settings)), 0.0)
        action = density.draw(self.generator)
        return action, float(density(action[None, :])[0])

    def _draw(self, points: FloatArray, draws: np.random.Generator) -> tuple[Any, FloatArray, FloatArray]:
        """Return the evaluation of points, the values drawn at them (n, A), and the share of draws that each wins."""
        evaluation = self.posterior.evaluate_finite(points)
        self.will_draw(self.generator, draws, self.exploration.generator)
        deviations = draw_deviations(self.posterior, points, evaluation, self.number_of_draws, draws)
        values = evaluation.mean + self.scale * deviations
        tied = self._winners(values, evaluation.std)
        return evaluation, values, (tied / tied.sum(axis=1, keepdims=True)).mean(axis=0)

    @staticmethod
    def _winners(values: FloatArray, std: FloatArray) -> NDArray[np.bool_]:
        # Draws at equal points differ by the rounding in the factor of their singular covariance.
        return values >= values.max(axis=-1, keepdims=True) - INDIFFERENCE * std.max()

    def choose(self, points: FloatArray) -> Choice:
        evaluation, values, shares = self._draw(points, self._draws)
        decider = int(self._draws.integers(self.number_of_draws))
        row = int(self.generator.choice(np.flatnonzero(self._winners(values[decider], evaluation.std))))
        row = self.exploration.draw(row, len(points))
        probabilities = self.exploration.mixed(shares)
        mean, std, value = evaluation.mean.item(row), evaluation.std.item(row), values.item(decider, row)
        return Choice(row, mean, std, value, probabilities.item(row), (evaluation, row), probabilities)

    def __repr__(self) -> str:
        draws = f"number_of_draws={self.number_of_draws}{floor_words(self.exploration)}"
        return f"ThompsonSampling({self.posterior!r}, scale={self.scale:g}, {draws})"
