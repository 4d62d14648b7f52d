"""Kernel online row sampling, the paper's rule."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.dictionaries.base import Candidate, Dictionary, Proposal
from kernel_bandits.dictionaries.leverage import LeverageDictionary, LeverageRule, leverage_score
from kernel_bandits.errors import UnavailableError
from kernel_bandits.numerics.growing import Symmetric
from kernel_bandits.numerics.linalg import appended_to
from kernel_bandits.values import evolve


@dataclass(frozen=True, kw_only=True)
class Kors(LeverageRule):
    """Kernel online row sampling (the paper's KORS subroutine, eq. for τ̃ in the appendix).

    Args:
        oversampling: the γ in p = min(1, γτ). Larger means more anchors. None for 2, or 1 where the kernel is learned.
        leverage_regularization: the μ at which leverage scores are taken; λ unless given. Larger means fewer anchors.
        leverage_accuracy: the ε in the factor 1 + ε on the score.
        max_size: hard cap on m. Once it is reached no anchor is added; the posterior keeps learning within its span,
            and the standard deviation stays wide outside it.
        history: ``"all"`` keeps points and rewards, 8(d + 1) bytes a round; ``"none"`` keeps nothing that grows with t.
    """

    leverage_regularization: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.leverage_regularization is not None:
            as_positive("leverage_regularization", self.leverage_regularization)

    def start(self, regularization: float, generator: np.random.Generator) -> Dictionary:
        level = regularization if self.leverage_regularization is None else float(self.leverage_regularization)
        return KorsDictionary(self, level, generator)


class KorsDictionary(LeverageDictionary):
    """The state of :class:`Kors`.

    The appendix scores a point against the dictionary augmented by the point itself with weight 1. With
    u = k_Zᵀ(K_ZZ + μ·diag(p))⁻¹k_Z that is τ = (1 + ε)(k − u)/(k − u + μ). In whitened coordinates
    k − u = residual + μ·φᵀQφ with Q = (μI + Σ φ(z)φ(z)ᵀ/p_z)⁻¹, the sum over every point ever drawn. Q takes in a point
    that is drawn but adds no direction (a repeat of an anchor, at μ > k quite likely) as any other: its weight 1/p is
    not forgotten, and no second list of points is needed.
    """

    __slots__ = ("_inverse",)

    uses_variance = False

    def __init__(self, rule: Kors, leverage_regularization: float, coins: np.random.Generator) -> None:
        super().__init__(rule, leverage_regularization, coins)
        self._inverse = self._scores(np.empty((0, 0)))

    def _scores(self, inverse: FloatArray) -> Symmetric:
        # a direction seen for the first time has weight 1/μ in Q before the point itself counts
        return Symmetric(inverse, 1.0 / self.leverage_regularization)

    def adopting(self, inverse: FloatArray) -> Self:
        # drawn points with weights 1/p would have estimated the sum
        kept = np.empty((0, 0)) if self.is_full(len(inverse)) else inverse
        return evolve(self, draws=len(inverse), _inverse=self._scores(kept))

    def settled(self) -> Self:
        return evolve(self, _inverse=self._inverse.settled())

    def _measure(self, candidate: Candidate) -> tuple[FloatArray | float, FloatArray | None]:
        features = candidate.features
        if self.max_size is not None and features.shape[-1] >= self.max_size:
            raise UnavailableError(
                f"score: the dictionary has the {self.max_size} anchors it may have and keeps no scores; "
                "give a larger max_size=."
            )
        # φᵀQφ, and Qφ of one candidate
        if features.ndim == 1:
            solved = self._inverse.times_vector(features)
            return float(solved.dot(features)), solved
        return self._inverse.quadratic_forms(features), None

    def _score(self, residual: FloatArray | float, measure: FloatArray | float) -> FloatArray | float:
        mu = self.leverage_regularization
        # k − u = residual + μ·φᵀQφ
        return leverage_score(residual + mu * measure, mu, self.leverage_accuracy)

    def _drawing(self, candidate: Candidate, proposal: Proposal, appended: bool) -> tuple[Self, FloatArray]:
        features, inverse, level = candidate.features, self._inverse, self.leverage_regularization
        solved = inverse.times_vector(features) if proposal.computed is None else proposal.computed
        if appended:
            inverse, length = inverse.bordered(), math.sqrt(candidate.residual)
            features, solved = appended_to(features, length), appended_to(solved, length / level)
        # Q ← (Q⁻¹ + φφᵀ/p)⁻¹ = Q − vvᵀ with v = Qφ/√(p + φᵀQφ)
        fall = solved / math.sqrt(proposal.probability + float(features.dot(solved)))
        # once no score is asked for any more, m² numbers need not be kept
        kept = self._scores(np.empty((0, 0))) if self.is_full(len(features)) else inverse.plus(fall, -1.0)
        return evolve(self, _inverse=kept), fall
