"""Online sampling by ridge leverage scores: a point is drawn with probability min(1, γτ).

:class:`Kors` is the paper's rule; :class:`PosteriorVariance` takes the posterior variance as the score.
"""

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.dictionaries.base import NOTHING, Candidate, Dictionary, DictionaryRule, HistoryMode, Proposal
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.numerics.linalg import Symmetric, appended_to, times_vector
from kernel_bandits.rng import reseeded
from kernel_bandits.values import copied, evolve

# The γ of a rule that gives none: 2, or 1 where the kernel is learned. A kernel that fits the rewards closely leaves
# more to explain than one chosen by hand, and half the anchors give the same regret in a third of the time.
OVERSAMPLING, LEARNED_OVERSAMPLING = 2.0, 1.0
# Coins are drawn this many at a time; one by one the same generator would give the same ones.
COINS_AHEAD = 256


def leverage_score(unexplained: Any, level: Any, accuracy: Any) -> Any:
    """Return τ = (1 + ε)·u/(u + μ) of what the drawn points leave unexplained, u.

    Elementwise, over any array library.
    """
    return (1.0 + accuracy) * unexplained / (unexplained + level)


@dataclass(frozen=True, kw_only=True)
class LeverageRule(DictionaryRule):
    """Flip one coin per observation with probability p = min(1, γτ) (Algorithm 1 of the paper, lines 2 and 3).

    The arguments are those of :class:`Kors`. The theory asks for γ = 12·log(T/δ), which keeps nearly every point; 2
    works.
    """

    oversampling: float | None = None
    leverage_accuracy: float = 0.5
    max_size: int | None = None
    history: HistoryMode = "all"

    def __post_init__(self) -> None:
        if self.oversampling is not None:
            as_positive("oversampling", self.oversampling)
        if not (math.isfinite(self.leverage_accuracy) and self.leverage_accuracy >= 0):
            given = self.leverage_accuracy
            raise InputError(f"leverage_accuracy: expected a finite number of at least 0, got {given!r}.")
        if self.max_size is not None:
            as_count("max_size", self.max_size)

    def for_learned_kernel(self) -> Self:
        return replace(self, oversampling=LEARNED_OVERSAMPLING) if self.oversampling is None else self

    def capped(self, size: int) -> Self:
        return replace(self, max_size=size) if self.max_size is None else self


class LeverageDictionary(Dictionary):
    """The state of a :class:`LeverageRule`: its coins, and what its scores are computed from.

    Attributes:
        draws: how many points were drawn, those that added no direction included; anchors that were chosen count.
        level: the μ of the score (1 + ε)·u/(u + μ), in the units of u.
    """

    __slots__ = (
        "_coins",
        "_generator",
        "_used",
        "draws",
        "level",
        "leverage_accuracy",
        "leverage_regularization",
        "max_size",
        "oversampling",
    )

    def __init__(
        self, rule: LeverageRule, leverage_regularization: float, level: float, coins: np.random.Generator
    ) -> None:
        self.leverage_regularization: float = leverage_regularization
        self.level: float = level
        self.leverage_accuracy: float = float(rule.leverage_accuracy)
        self.oversampling: float = OVERSAMPLING if rule.oversampling is None else float(rule.oversampling)
        self.max_size: int | None = rule.max_size
        self.draws: int = 0
        self._draw_ahead(coins)

    @abstractmethod
    def _unexplained(self, candidate: Candidate) -> tuple[FloatArray | float, Any]:
        """Return the u of the score, and what :meth:`_drawing` can use again; of a block, that of each and None."""

    @abstractmethod
    def _drawing(self, candidate: Candidate, proposal: Proposal, appended: bool) -> tuple[Self, FloatArray | None]:
        """Return a copy with a point that is drawn, and v where u then falls by μ(φᵀv)², else None."""

    def score(self, candidate: Candidate) -> FloatArray | float:
        """Return the leverage score τ of a candidate, or of each of a block, in [0, 1 + ε]."""
        score: FloatArray | float = leverage_score(self._unexplained(candidate)[0], self.level, self.leverage_accuracy)
        return score

    def propose(self, candidate: Candidate) -> Proposal:
        if self.max_size is not None and len(candidate.features) >= self.max_size:
            return NOTHING
        unexplained, computed = self._unexplained(candidate)
        # p = min(1, γτ), and one coin
        score = leverage_score(unexplained, self.level, self.leverage_accuracy)
        probability = min(self.oversampling * float(score), 1.0)
        return Proposal(self._coins.item(self._used) < probability, probability, False, computed)

    def after(self, candidate: Candidate, proposal: Proposal, appended: bool) -> Self:
        if not proposal.draw:
            return self._after_coins(1)
        after = self._drawing(candidate, proposal, appended)[0]._after_coins(1)
        after.draws += 1
        return after

    def _after_coins(self, count: int) -> Self:
        """Return a copy in which so many coins are used."""
        after = copied(self)
        after._used += count
        if after._used == COINS_AHEAD:
            after._draw_ahead(after._generator)
        return after

    def _draw_ahead(self, generator: np.random.Generator) -> None:
        """Draw the next coins, in a dictionary that nobody else holds; the generator stays as it is."""
        self._generator = copy.deepcopy(generator)
        self._coins, self._used = self._generator.random(COINS_AHEAD), 0

    def after_block(self, block: Candidate, redundant: NDArray[np.bool_]) -> tuple[int, Self]:
        features, residual = block.features, np.asarray(block.residual)
        count, size = features.shape
        if self.is_full(size):
            return count, self
        unexplained = np.array(self._unexplained(block)[0])
        dictionary, done = self, 0
        while done < count:
            coins = dictionary._coins[dictionary._used :][: count - done]
            scores = leverage_score(unexplained[done : done + len(coins)], self.level, self.leverage_accuracy)
            probabilities = self.oversampling * scores
            drawn = np.flatnonzero(coins < probabilities)
            passed = int(drawn[0]) if len(drawn) else len(coins)
            dictionary = dictionary._after_coins(passed)
            done += passed
            if len(drawn):
                if not redundant[done]:
                    return done, dictionary
                # the score of what follows falls with the weight of a point that is drawn again
                again = Candidate(block.point[done], block.anchors, features[done], residual[done], 0.0, 0.0)
                proposal = Proposal(draw=True, probability=min(1.0, float(probabilities[passed])))
                dictionary, fall = dictionary._drawing(again, proposal, appended=False)
                dictionary = dictionary._after_coins(1)
                dictionary.draws, done = dictionary.draws + 1, done + 1
                if fall is not None:
                    unexplained[done:] -= self.level * times_vector(features[done:], fall) ** 2
        return count, dictionary

    def reseeded(self, entropy: int) -> Self:
        after = copied(self)
        after._draw_ahead(reseeded(self._generator, entropy))
        return after


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
        return KorsDictionary(self, level, level, generator)


class KorsDictionary(LeverageDictionary):
    """The state of :class:`Kors`.

    The appendix scores a point against the dictionary augmented by the point itself with weight 1. With
    u = k − k_Zᵀ(K_ZZ + μ·diag(p))⁻¹k_Z that is τ = (1 + ε)u/(u + μ). In whitened coordinates u = residual + μ·φᵀQφ with
    Q = (μI + Σ φ(z)φ(z)ᵀ/p_z)⁻¹, the sum over every point ever drawn. Q takes in a point that is drawn but adds no
    direction (a repeat of an anchor, at μ > k quite likely) as any other: its weight 1/p is not forgotten, and no
    second list of points is needed.
    """

    __slots__ = ("_inverse",)

    uses_variance = False

    def __init__(self, rule: Kors, leverage_regularization: float, level: float, coins: np.random.Generator) -> None:
        super().__init__(rule, leverage_regularization, level, coins)
        self._inverse = self._growing(np.empty((0, 0)))

    def _growing(self, inverse: FloatArray) -> Symmetric:
        """Return Q as a matrix that can gain a row for each anchor."""
        # a direction seen for the first time has weight 1/μ in Q before the point itself counts
        return Symmetric(inverse, 1.0 / self.level)

    def _unexplained(self, candidate: Candidate) -> tuple[FloatArray | float, FloatArray | None]:
        features = candidate.features
        if self.max_size is not None and features.shape[-1] >= self.max_size:
            raise UnavailableError(
                f"score: the dictionary has the {self.max_size} anchors it may have and keeps no scores; "
                "give a larger max_size=."
            )
        # u = residual + μ·φᵀQφ; and Qφ of one candidate
        if features.ndim == 1:
            solved = self._inverse.times_vector(features)
            return candidate.residual + self.level * float(solved.dot(features)), solved
        return candidate.residual + self.level * self._inverse.quadratic_forms(features), None

    def _drawing(self, candidate: Candidate, proposal: Proposal, appended: bool) -> tuple[Self, FloatArray]:
        features, inverse = candidate.features, self._inverse
        solved = inverse.times_vector(features) if proposal.computed is None else proposal.computed
        if appended:
            inverse, length = inverse.bordered(), math.sqrt(candidate.residual)
            features, solved = appended_to(features, length), appended_to(solved, length / self.level)
        # Q ← (Q⁻¹ + φφᵀ/p)⁻¹ = Q − vvᵀ with v = Qφ/√(p + φᵀQφ)
        fall = solved / math.sqrt(proposal.probability + float(features.dot(solved)))
        # once no score is asked for any more, m² numbers need not be kept
        kept = self._growing(np.empty((0, 0))) if self.is_full(len(features)) else inverse.plus(fall, -1.0)
        return evolve(self, _inverse=kept), fall

    def settled(self) -> Self:
        return evolve(self, _inverse=self._inverse.settled())

    def adopting(self, inverse: FloatArray) -> Self:
        # drawn points with weights 1/p would have estimated the sum
        kept = np.empty((0, 0)) if self.is_full(len(inverse)) else inverse
        return evolve(self, draws=len(inverse), _inverse=self._growing(kept))


@dataclass(frozen=True, kw_only=True)
class PosteriorVariance(LeverageRule):
    """The posterior variance as a score: τ' = (1 + ε)σ²/(1 + σ²), a leverage score at μ = λ.

    Cheaper than :class:`Kors` by one product with an m×m matrix per observation. σ² counts every observation, not only
    the drawn ones, so a region that was visited often gets no more anchors; dictionaries are smaller. The arguments are
    those of :class:`Kors`, without μ.
    """

    def start(self, regularization: float, generator: np.random.Generator) -> Dictionary:
        return PosteriorVarianceDictionary(self, regularization, 1.0, generator)


class PosteriorVarianceDictionary(LeverageDictionary):
    """The state of :class:`PosteriorVariance`: its coins alone."""

    __slots__ = ()

    def _unexplained(self, candidate: Candidate) -> tuple[FloatArray | float, None]:
        return candidate.variance, None

    def _drawing(self, candidate: Candidate, proposal: Proposal, appended: bool) -> tuple[Self, None]:
        del candidate, proposal, appended  # the variance falls by the observation itself
        return copied(self), None

    def adopting(self, inverse: FloatArray) -> Self:
        return evolve(self, draws=len(inverse))
