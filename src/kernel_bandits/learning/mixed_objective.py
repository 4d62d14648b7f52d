"""What the fit of a mixed kernel minimises: −log of the prior less a score of the observations, times a power.

The score is the log evidence or, for named arms with rewards of two values, its mean with that of rewards left out.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.learning import blocks
from kernel_bandits.learning.blocks import Block, BlockScore, block_evidence, surprises
from kernel_bandits.learning.descent import descend
from kernel_bandits.learning.mixed_prior import MixedPrior
from kernel_bandits.learning.warp import Warp

# Arms that are opposites up to this share: of two arms, one never says all of the other.
NEARLY_OPPOSITE = 0.98
# The value where there is none.
IMPOSSIBLE = 1e12


def greatest_contrast(arms: int) -> float:
    """Return the largest log κ of K arms, all correlated alike: 1 − κ is −1/(K − 1) at least."""
    return math.log(1.0 + NEARLY_OPPOSITE / (arms - 1.0)) if arms > 1 else 0.0


Score: TypeAlias = Callable[..., BlockScore]


class MixedObjective:
    """The objective over θ on some observations.

    Args:
        observations: blocks of one kind.
        prior: of θ.
        two_valued: whether rewards have two values.
        power: by which the score counts.
        arms: how many arms there are, where they are correlated.
        score: ``block_evidence`` or a function such as it.

    Attributes:
        blocks: the observations.
        prior: of θ.
        power: by which the score counts.
        score: how well θ explains observations.
        medians: of θ under the prior.
        low: lower bounds of θ.
        high: upper bounds of θ.
    """

    def __init__(
        self,
        observations: Sequence[Block],
        prior: MixedPrior,
        two_valued: bool,
        power: float,
        arms: int = 0,
        score: Score = block_evidence,
    ) -> None:
        self.blocks, self.prior, self.power, self.score = observations, prior, power, score
        self.medians = prior.medians(observations[0])
        self._widths = prior.widths(observations[0], two_valued)
        self.low, self.high = self.medians - prior.reach, self.medians + prior.reach
        if observations[0].other_arm is not None:
            self.high[blocks.CONTRAST] = greatest_contrast(arms)

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(len(block.rewards) for block in self.blocks)

    def warped(self, warp: Warp) -> MixedObjective:
        """Return the objective of the same observations with warped columns."""
        warped = copy.copy(self)
        warped.blocks = [block.warped(warp) for block in self.blocks]
        return warped

    def evidence(self, parameters: FloatArray) -> BlockScore:
        """Return the log evidence at θ."""
        return block_evidence(parameters, self.blocks, mean_precision=1.0)

    def surprises(self, parameters: FloatArray) -> FloatArray:
        """Return by how many standard deviations each reward exceeds what the others predict of it, shape (n,)."""
        return np.concatenate(surprises(parameters, self.blocks, mean_precision=1.0))

    def __call__(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and its gradient; a large value where the score cannot be computed."""
        try:
            score = self.score(parameters, self.blocks, mean_precision=1.0)
        except KernelBanditsError:
            return IMPOSSIBLE, np.zeros(len(parameters))
        penalty, gradient = self.penalty(parameters)
        return penalty - self.power * score.value, gradient - self.power * score.gradient

    def penalty(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return −log of the prior of θ, up to a constant, and its gradient."""
        offset = parameters - self.medians
        pull = offset / self._widths**2
        common = self.prior.signal_width**2
        # log of parts ~ N(median, diag w² + s²·11ᵀ), whose inverse is diag w⁻² − f·w⁻²(w⁻²)ᵀ with f = s²/(1 + s²·Σw⁻²)
        together = float(pull[: blocks.LENGTH].sum())
        precision = self._widths[: blocks.LENGTH] ** -2.0
        shared = common / (1.0 + common * float(precision.sum())) * together
        pull[: blocks.LENGTH] -= shared * precision
        total, slope = self._log_total(parameters)
        width = self.prior.total_width
        penalty = 0.5 * (float(offset @ pull) + (total / width) ** 2)
        return penalty, pull + total / width**2 * slope

    def _log_total(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return the log of signal plus noise, in units of the variance of the rewards, and its gradient."""
        values = np.exp(parameters)
        parts, factor = values[: blocks.LENGTH], 1.0
        gradient = np.zeros(len(values))
        if self.blocks[0].actions is not None:
            factors = values[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH]
            factor = 1.0 + float(factors.sum())
            gradient[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH] = parts.sum() * factors
        gradient[: blocks.LENGTH] = factor * parts
        gradient[blocks.NOISE] = values[blocks.NOISE]
        total = factor * float(parts.sum()) + float(values[blocks.NOISE])
        return math.log(total), gradient / total

    def minimum(self, starts: Sequence[FloatArray], absent: Sequence[int] = ()) -> tuple[FloatArray, float]:
        """Return the best θ found from the best of some starts, and its value; without the parts that are absent."""
        low, high = self.low.copy(), self.high.copy()
        low[list(absent)] = high[list(absent)] = blocks.ABSENT
        return descend(self, starts, low, high, self.prior.iterations, self.count, self.prior.tolerance)
