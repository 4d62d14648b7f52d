"""The posterior variance as a leverage score."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.dictionaries.base import Candidate, Dictionary, Proposal
from kernel_bandits.dictionaries.leverage import LeverageDictionary, LeverageRule, leverage_score
from kernel_bandits.values import evolve


@dataclass(frozen=True, kw_only=True)
class PosteriorVariance(LeverageRule):
    """The posterior variance as a score: τ' = (1 + ε)σ²/(1 + σ²), a leverage score at μ = λ.

    Cheaper than :class:`Kors` by one product with an m×m matrix per observation. σ² counts every observation, not only
    the drawn ones, so a region that was visited often gets no more anchors; dictionaries are smaller. The arguments are
    those of :class:`Kors`, without μ.
    """

    def start(self, regularization: float, generator: np.random.Generator) -> Dictionary:
        return PosteriorVarianceDictionary(self, regularization, generator)


class PosteriorVarianceDictionary(LeverageDictionary):
    """The state of :class:`PosteriorVariance`: its coins alone."""

    __slots__ = ()

    def adopting(self, inverse: FloatArray) -> Self:
        return evolve(self, draws=len(inverse))

    def _measure(self, candidate: Candidate) -> tuple[FloatArray | float, None]:
        return candidate.variance, None

    def _score(self, residual: FloatArray | float, measure: FloatArray | float) -> FloatArray | float:
        del residual  # it is in σ² already
        return leverage_score(measure, 1.0, self.leverage_accuracy)

    def _drawing(self, candidate: Candidate, proposal: Proposal, appended: bool) -> tuple[Self, None]:
        del candidate, proposal, appended  # the variance falls by the observation itself
        return self, None
