"""Inverse-gap weighting: probabilities that fall with the gap to the best mean, known exactly for every action."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_count, as_positive, join
from kernel_bandits.boxes.density import BoxDensity, centres, divisions
from kernel_bandits.boxes.search import finalists
from kernel_bandits.policy.exploration import Exploration, floor_words
from kernel_bandits.policy.policy import Choice, Policy, are_tied
from kernel_bandits.posterior.base import Posterior
from kernel_bandits.rng import draw_row

# A box counts as this many actions unless another number is given.
ACTIONS_OF_A_BOX = 32
# Points evaluated at once by choose_many.
ROWS_AT_ONCE = 4096


class Sharpness(ABC):
    """How sharply the probability of an action falls with its gap: returns γ, in units of one over the reward."""

    @abstractmethod
    def value(self, posterior: Posterior, number_of_actions: float) -> float:
        """Return γ for the next round, at least 0, with A actions on offer."""


@dataclass(frozen=True)
class InformationSharpness(Sharpness):
    """γ = c·√(A·t/(λ·log det(I + K/λ))): what Foster & Rakhlin (2020) ask for, from what the model has learned.

    Their γ is of the order √(A·t/R), where R bounds the squared errors of the predictions so far, Σ(μ_i − f)². For a
    kernel ridge regression R is about λ·log det(I + K_t/λ), which every posterior tracks. The product has the units of
    squared rewards, so the schedule needs no horizon and no scale.

    Args:
        scale: c; √8 minimises the bound. The default was chosen on the paper's environments, where less exploration
            pays.
    """

    scale: float = 8.0

    def __post_init__(self) -> None:
        as_positive("scale", self.scale)

    def value(self, posterior: Posterior, number_of_actions: float) -> float:
        squared_errors = posterior.regularization * posterior.log_determinant
        if squared_errors <= 0.0:
            return 0.0
        return self.scale * math.sqrt(number_of_actions * posterior.round_index / squared_errors)


@dataclass(frozen=True)
class PowerSharpness(Sharpness):
    """γ = c·t^p, by hand; p = 0 for a constant, ½ for the rate of the theory.

    Args:
        scale: c, in units of one over the reward.
        power: p, at least 0.
    """

    scale: float
    power: float = 0.5

    def __post_init__(self) -> None:
        as_positive("scale", self.scale)
        if self.power:
            as_positive("power", self.power)

    def value(self, posterior: Posterior, number_of_actions: float) -> float:
        del number_of_actions  # its share is in the scale
        return self.scale * posterior.round_index**self.power


def inverse_gap_weights(
    means: FloatArray, sharpness: float, effective_actions: float | None = None, level: float = 0.0
) -> FloatArray:
    """Return the probabilities (A,) of inverse-gap weighting (Foster & Rakhlin 2020, Algorithm 1).

    Args:
        means: expected rewards, shape (A,).
        sharpness: γ.
        effective_actions: K, the number of actions to count where they are many; A unless given. The comparison is then
            with the best mixture that gives no action more than K/A (Zhu & Mineiro 2022).
        level: what all means share, such as a prior mean; it does not count in whether they tie.
    """
    count = len(means)
    best = float(means.max())
    # p(a) = 1/(A + γ·(μ* − μ(a))); with K actions to count, 1/(A·(1 + γ·(μ* − μ(a))/K))
    gaps = best - means
    effective = count if effective_actions is None else min(effective_actions, count)
    weights = 1.0 / (count * (1.0 + (sharpness / effective) * gaps))
    tied = np.flatnonzero(are_tied(means, level))
    # The best action has the rest. Several that tie share it, as if chance decided which of them is the best.
    weights[tied] = 0.0
    weights[tied] = (1.0 - float(weights.sum())) / len(tied)
    return weights


@final
class InverseGapWeighting(Policy):
    """Play action a with probability 1/(A + γ·(μ* − μ(a))), and the best with the rest (SquareCB).

    The rule uses means only, at O(m) per action beyond the kernel. In a box the cells of a grid are the actions, each
    played uniformly inside, and the rest is played uniformly in a small neighbourhood of the action with the largest
    mean, so that every decision has a density.

    Args:
        posterior: predicts and learns.
        sharpness: returns γ.
        generator: searches boxes and draws in them.
        exploration: the floor, and the generator of the draws among rows.
        effective_actions: K, the number of actions to count where more are offered; by default all rows, and 32 in a
            box.
    """

    saved: ClassVar[tuple[str, ...]] = (*Policy.saved, "sharpness", "exploration", "effective_actions")

    def __init__(
        self,
        posterior: Posterior,
        sharpness: Sharpness,
        generator: np.random.Generator,
        exploration: Exploration,
        effective_actions: int | None = None,
    ) -> None:
        super().__init__(posterior, generator)
        self.sharpness: Sharpness = sharpness
        self.exploration: Exploration = exploration
        if effective_actions is not None:
            as_count("effective_actions", effective_actions)
        self.effective_actions: int | None = effective_actions

    def on_reseed(self, entropy: int) -> None:
        self.exploration.on_reseed(entropy)

    def _probabilities(self, means: FloatArray) -> FloatArray:
        effective = len(means) if self.effective_actions is None else min(self.effective_actions, len(means))
        sharpness = self.sharpness.value(self.posterior, effective)
        return self.exploration.mixed(inverse_gap_weights(means, sharpness, effective, self.posterior.prior_mean))

    def choose(self, points: FloatArray) -> Choice:
        self.will_draw(self.exploration.generator)
        probabilities = self._probabilities(self.posterior.means(points))
        row = draw_row(probabilities, self.exploration.generator)
        evaluation = self.posterior.evaluate(points[row : row + 1])
        return self._choice(row, probabilities, evaluation.mean.item(0), evaluation.std.item(0), (evaluation, 0))

    @staticmethod
    def _choice(row: int, probabilities: FloatArray, mean: float, std: float, computed: Any) -> Choice:
        return Choice(row, mean, std, mean, probabilities.item(row), computed, probabilities)

    def choose_many(self, points: FloatArray) -> list[Choice]:
        self.will_draw(self.exploration.generator)
        number_of_actions = points.shape[1]
        step = max(1, ROWS_AT_ONCE // number_of_actions)
        choices: list[Choice] = []
        for start in range(0, len(points), step):
            block = points[start : start + step]
            means = self.posterior.means(block.reshape(-1, points.shape[2])).reshape(-1, number_of_actions)
            tables = [self._probabilities(row) for row in means]
            rows = [draw_row(table, self.exploration.generator) for table in tables]
            evaluation = self.posterior.evaluate(block[np.arange(len(block)), rows])
            for row, table, mean, std in zip(
                rows, tables, evaluation.mean.tolist(), evaluation.std.tolist(), strict=True
            ):
                choices.append(self._choice(row, table, mean, std, None))
        return choices

    def draw_in_box(self, context: FloatArray, box: Box) -> tuple[FloatArray, float]:
        cells = centres(divisions(box))
        leaders = finalists(self.posterior, 0.0, context, box, self.generator)
        means = self.posterior.means(join(context, np.concatenate([leaders, box.at(cells)])))
        best = int(means[: len(leaders)].argmax())
        effective = min(self.effective_actions or ACTIONS_OF_A_BOX, len(cells))
        sharpness = self.sharpness.value(self.posterior, effective)
        # 1/(n·(1 + γ·gap/K)) for each of n cells, and the rest around the best action
        gaps = np.maximum(means[best] - means[len(leaders) :], 0.0)
        weights = 1.0 / (len(cells) * (1.0 + (sharpness / effective) * gaps))
        floor = self.exploration.floor
        weights = (1.0 - floor) * weights + floor / len(cells)
        rest = max(1.0 - float(weights.sum()), 0.0)
        density = BoxDensity(box, weights, box.fractions(leaders[best : best + 1])[0], rest)
        action = density.draw(self.generator)
        return action, float(density(action[None, :])[0])

    def __repr__(self) -> str:
        return f"InverseGapWeighting({self.posterior!r}, {self.sharpness!r}{floor_words(self.exploration)})"
