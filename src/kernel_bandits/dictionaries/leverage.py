"""Online sampling by ridge leverage scores: a point comes in with probability min(1, γτ)."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.dictionaries.base import NOTHING, Candidate, Dictionary, Proposal
from kernel_bandits.dictionaries.scores import as_accuracy, leverage_score
from kernel_bandits.errors import UnavailableError
from kernel_bandits.numerics.linalg import (
    border_symmetric,
    quadratic_forms,
    subtract_outer,
    symmetric_times_vector,
    times_vector,
)

# Coins are drawn so many at a time; one by one the same generator would give the same ones.
COINS_AHEAD = 256


class LeverageSampling(Dictionary):
    """Flip one coin per observation with probability p = min(1, γτ) (Algorithm 1 of the paper, lines 2 and 3).

    Args:
        coins: the generator of the coins. They are drawn ahead and used up by commits, so that an observation that
            fails uses none.
        leverage_accuracy: the ε in the factor 1 + ε on the score.
        oversampling: the γ in p = min(1, γτ). The theory asks for γ = 12·log(T/δ), which keeps nearly every point; 2
            works.
        max_dictionary_size: hard cap on m; once it is reached nothing is added.

    Attributes:
        draws: how many points have come up, those that added no direction included; anchors that were chosen count.
    """

    def __init__(
        self,
        coins: np.random.Generator,
        *,
        leverage_accuracy: float = 0.5,
        oversampling: float = 2.0,
        max_dictionary_size: int | None = None,
    ) -> None:
        super().__init__(max_dictionary_size)
        self.leverage_accuracy = as_accuracy(leverage_accuracy)
        self.oversampling = as_positive("oversampling", oversampling)
        self.draws = 0
        self._coins = coins
        self._ahead = coins.random(COINS_AHEAD)
        self._used = 0

    @abstractmethod
    def _measure(self, candidate: Candidate) -> FloatArray | float:
        """What the score is a function of, besides the residual; of each candidate of a block."""

    @abstractmethod
    def _score(self, residual: FloatArray | float, measure: FloatArray | float) -> FloatArray | float:
        """The leverage score τ in [0, 1 + ε]."""

    @abstractmethod
    def _drawn(self, candidate: Candidate, probability: float, appended: bool) -> FloatArray | None:
        """Take note of a point that came up.

        Returns:
            v with which the measure of any candidate has fallen by (φᵀv)², or None if it has not.
        """

    @abstractmethod
    def level(self, regularization: float) -> float:
        """The μ at which leverage scores are taken, given the λ of the posterior."""

    @abstractmethod
    def begin_with(self, inverse: FloatArray) -> None:
        """Go on from a history whose anchors were not drawn.

        Args:
            inverse: (μI + Σ φφᵀ)⁻¹ over the whole history, in the coordinates of these anchors. Drawn points with
                weights 1/p would have estimated the sum.
        """

    @property
    def initial_points(self) -> FloatArray | None:
        return None

    def score(self, candidate: Candidate) -> FloatArray | float:
        """The leverage score τ of a candidate, or of each of a block, in [0, 1 + ε]."""
        return self._score(candidate.residual, self._measure(candidate))

    def propose(self, candidate: Candidate) -> Proposal:
        if self.is_full(len(candidate.features)):
            return NOTHING
        probability = min(1.0, self.oversampling * float(self._score(candidate.residual, self._measure(candidate))))
        return Proposal(self._ahead.item(self._used) < probability, probability)

    def commit(self, candidate: Candidate, proposal: Proposal, appended: bool) -> None:
        if proposal.draw:
            self.draws += 1
            self._drawn(candidate, proposal.probability, appended)
        self._use_coins(1)

    def absorb(self, block: Candidate, redundant: NDArray[np.bool_]) -> int:
        features, residual = block.features, np.asarray(block.residual)
        count, size = features.shape
        if self.is_full(size):
            return count
        measures = np.asarray(self._measure(block))
        done = 0
        while done < count:
            coins = self._ahead[self._used : self._used + count - done]
            ahead = slice(done, done + len(coins))
            probabilities = self.oversampling * np.asarray(self._score(residual[ahead], measures[ahead]))
            drawn = np.flatnonzero(coins < probabilities)
            passed = int(drawn[0]) if len(drawn) else len(coins)
            self._use_coins(passed)
            done += passed
            if len(drawn):
                if not redundant[done]:
                    return done
                # the score of what follows falls with the weight of a point that came up again
                one = Candidate(features[done], residual[done], 0.0, 0.0)
                self.draws += 1
                fall = self._drawn(one, min(1.0, float(probabilities[passed])), appended=False)
                self._use_coins(1)
                done += 1
                if fall is not None:
                    measures[done:] -= times_vector(features[done:], fall) ** 2
        return count

    def _use_coins(self, count: int) -> None:
        self._used += count
        if self._used >= COINS_AHEAD:
            self._ahead, self._used = self._coins.random(COINS_AHEAD), 0


class Kors(LeverageSampling):
    """Kernel online row sampling (the paper's KORS subroutine, eq. for τ̃ in the appendix).

    The appendix scores a point against the dictionary augmented by the point itself with weight 1. With
    u = k_Zᵀ(K_ZZ + μ·diag(p))⁻¹k_Z that is τ = (1 + ε)(k − u)/(k − u + μ). In whitened coordinates
    k − u = residual + μ·φᵀQφ with Q = (μI + Σ φ(z)φ(z)ᵀ/p_z)⁻¹, the sum over every point ever drawn. Q takes in a point
    that came up but adds no direction (a repeat of an anchor, at μ > k quite likely) as any other: its weight 1/p is
    not forgotten, and no second list of points is needed.

    Args:
        coins: the generator of the coins.
        leverage_regularization: the μ at which leverage scores are taken.
        leverage_accuracy: the ε in the factor 1 + ε.
        oversampling: the γ in p = min(1, γτ).
        max_dictionary_size: hard cap on m; once it is reached nothing is added.
    """

    def __init__(
        self,
        coins: np.random.Generator,
        *,
        leverage_regularization: float,
        leverage_accuracy: float = 0.5,
        oversampling: float = 2.0,
        max_dictionary_size: int | None = None,
    ) -> None:
        super().__init__(
            coins,
            leverage_accuracy=leverage_accuracy,
            oversampling=oversampling,
            max_dictionary_size=max_dictionary_size,
        )
        self.leverage_regularization = as_positive("leverage_regularization", leverage_regularization)
        self._inverse = np.empty((0, 0))

    def level(self, regularization: float) -> float:  # noqa: ARG002 (μ need not be λ)
        return self.leverage_regularization

    def begin_with(self, inverse: FloatArray) -> None:
        self.draws = len(inverse)
        self._inverse = np.empty((0, 0)) if self.is_full(len(inverse)) else inverse

    def _measure(self, candidate: Candidate) -> FloatArray | float:
        features = candidate.features
        if self.is_full(features.shape[-1]):
            raise UnavailableError(
                f"score: the dictionary has the {self.max_dictionary_size} anchors it may have and keeps no scores; "
                "give a larger max_dictionary_size=."
            )
        # φᵀQφ
        if features.ndim > 1:
            return quadratic_forms(features, self._inverse)
        return float(symmetric_times_vector(self._inverse, features).dot(features))

    def _score(self, residual: FloatArray | float, measure: FloatArray | float) -> FloatArray | float:
        return leverage_score(residual, measure, self.leverage_regularization, self.leverage_accuracy)

    def _drawn(self, candidate: Candidate, probability: float, appended: bool) -> FloatArray:
        features = candidate.features
        if appended:
            # a direction seen for the first time has weight 1/μ in Q before the point itself counts
            self._inverse = border_symmetric(self._inverse, np.zeros(len(features)), 1.0 / self.leverage_regularization)
            features = np.append(features, np.sqrt(candidate.residual))
        # Q ← (Q⁻¹ + φφᵀ/p)⁻¹ = Q − vvᵀ with v = Qφ/√(p + φᵀQφ)
        solved = symmetric_times_vector(self._inverse, features)
        fall = solved / math.sqrt(probability + float(features @ solved))
        subtract_outer(self._inverse, fall)
        if self.is_full(len(features)):
            # no score is asked for any more, and m² numbers need not be kept
            self._inverse = np.empty((0, 0))
        return fall


class PosteriorVariance(LeverageSampling):
    """The posterior variance reused as leverage score: τ' = (1 + ε)σ²/(1 + σ²), which is at μ = λ.

    Cheaper than :class:`Kors` by one product with an m×m matrix per observation. σ² counts every observation, not only
    the drawn ones, so a region that was visited often is closed even where no anchor stands; dictionaries come out
    smaller.
    """

    uses_variance = True

    def level(self, regularization: float) -> float:
        return regularization

    def begin_with(self, inverse: FloatArray) -> None:
        # the variance is that of the posterior
        self.draws = len(inverse)

    def _measure(self, candidate: Candidate) -> FloatArray | float:
        return candidate.variance

    def _score(self, residual: FloatArray | float, measure: FloatArray | float) -> FloatArray | float:  # noqa: ARG002
        # τ' = (1 + ε)σ²/(1 + σ²); the residual is in σ² already
        return (1.0 + self.leverage_accuracy) * measure / (1.0 + measure)

    def _drawn(self, candidate: Candidate, probability: float, appended: bool) -> None:
        """The variance falls by the observation itself; nothing to note."""
