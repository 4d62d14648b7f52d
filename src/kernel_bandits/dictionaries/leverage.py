"""Online sampling by ridge leverage scores: a point comes in with probability min(1, γτ)."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from kernel_bandits.arrays import FloatArray, InputError, as_positive
from kernel_bandits.dictionaries.base import NOTHING, Candidate, Dictionary, Proposal
from kernel_bandits.linalg import border_symmetric, subtract_outer, times, times_vector

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
        draws: how many points have come up, those that added no direction included.
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
        self.leverage_accuracy = float(leverage_accuracy)
        if not (math.isfinite(self.leverage_accuracy) and self.leverage_accuracy >= 0):
            raise InputError(f"leverage_accuracy: expected a finite number of at least 0, got {leverage_accuracy!r}.")
        self.oversampling = as_positive("oversampling", oversampling)
        self.draws = 0
        self._coins = coins
        self._ahead = coins.random(COINS_AHEAD)
        self._used = 0

    @abstractmethod
    def score(self, candidate: Candidate) -> FloatArray | float:
        """The leverage score τ of a candidate, or of each of a block, in [0, 1 + ε]."""

    @abstractmethod
    def _drawn(self, candidate: Candidate, probability: float, appended: bool) -> None:
        """Take note of a point that came up."""

    @property
    def initial_points(self) -> FloatArray | None:
        return None

    def propose(self, candidate: Candidate) -> Proposal:
        if self.is_full(len(candidate.features)):
            return NOTHING
        probability = min(1.0, self.oversampling * float(self.score(candidate)))
        return Proposal(self._ahead.item(self._used) < probability, probability)

    def commit(self, candidate: Candidate, proposal: Proposal, appended: bool) -> None:
        if proposal.draw:
            self.draws += 1
            self._drawn(candidate, proposal.probability, appended)
        self._use_coins(1)

    def quiet(self, block: Candidate) -> int:
        count, size = block.features.shape
        if self.is_full(size):
            return count
        coins = self._ahead[self._used : self._used + count]
        drawn = np.flatnonzero(coins < self.oversampling * np.asarray(self.score(block))[: len(coins)])
        return int(drawn[0]) if len(drawn) else len(coins)

    def commit_quiet(self, block: Candidate) -> None:
        self._use_coins(len(block.features))

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

    def score(self, candidate: Candidate) -> FloatArray | float:
        mu, features = self.leverage_regularization, candidate.features
        # k − u = residual + μ·φᵀQφ
        if features.ndim > 1:
            explained = np.vecdot(times(features, self._inverse), features)
        else:
            explained = float(times_vector(self._inverse, features).dot(features))
        unexplained = candidate.residual + mu * explained
        # τ = (1 + ε)(k − u)/(k − u + μ)
        return (1.0 + self.leverage_accuracy) * unexplained / (unexplained + mu)

    def _drawn(self, candidate: Candidate, probability: float, appended: bool) -> None:
        features = candidate.features
        if appended:
            # a direction seen for the first time has weight 1/μ in Q before the point itself counts
            self._inverse = border_symmetric(self._inverse, np.zeros(len(features)), 1.0 / self.leverage_regularization)
            features = np.append(features, np.sqrt(candidate.residual))
        # Q ← (Q⁻¹ + φφᵀ/p)⁻¹ = Q − Qφ(Qφ)ᵀ/(p + φᵀQφ)
        solved = times_vector(self._inverse, features)
        subtract_outer(self._inverse, solved / math.sqrt(probability + float(features @ solved)))


class PosteriorVariance(LeverageSampling):
    """The posterior variance reused as leverage score: τ' = (1 + ε)σ²/(1 + σ²), which is at μ = λ.

    Cheaper than :class:`Kors` by one product with an m×m matrix per observation. σ² counts every observation, not only
    the drawn ones, so a region that was visited often is closed even where no anchor stands; dictionaries come out
    smaller.
    """

    uses_variance = True

    def score(self, candidate: Candidate) -> FloatArray | float:
        # τ' = (1 + ε)σ²/(1 + σ²)
        return (1.0 + self.leverage_accuracy) * candidate.variance / (1.0 + candidate.variance)

    def _drawn(self, candidate: Candidate, probability: float, appended: bool) -> None:
        """The variance falls by the observation itself; nothing to note."""
