"""Online sampling by ridge leverage scores: a point is drawn with probability min(1, γτ)."""

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.dictionaries.base import (
    NOTHING,
    Candidate,
    Dictionary,
    DictionaryRule,
    HistoryMode,
    Proposal,
    fast,
)
from kernel_bandits.errors import InputError
from kernel_bandits.numerics.linalg import times_vector
from kernel_bandits.rng import reseeded
from kernel_bandits.values import evolve

# The γ of a rule that gives none: 2, or 1 where the kernel is learned. A kernel that fits the rewards closely leaves
# more to explain than one chosen by hand, and half the anchors give the same regret in a third of the time.
OVERSAMPLING, LEARNED_OVERSAMPLING = 2.0, 1.0
# Coins are drawn this many at a time; one by one the same generator would give the same ones.
COINS_AHEAD = 256


class Coins:
    """Uniform numbers of a generator, as a value: which of them are used, and a generator of those to come."""

    __slots__ = ("_ahead", "_generator", "_used")

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = copy.deepcopy(generator)
        self._ahead = self._generator.random(COINS_AHEAD)
        self._used = 0

    @property
    def next(self) -> float:
        """The next coin."""
        return self._ahead.item(self._used)

    def ahead(self, count: int) -> FloatArray:
        """Return the next coins, at most this many and at least one."""
        return self._ahead[self._used : self._used + count]

    def after(self, count: int = 1) -> Self:
        """Return what is left once some of the coins that :meth:`ahead` showed are used."""
        used = self._used + count
        return evolve(self, _used=used) if used < COINS_AHEAD else type(self)(self._generator)

    def reseeded(self, entropy: int) -> Self:
        """Return coins of the same stream of another seed."""
        return type(self)(reseeded(self._generator, entropy))


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
    """

    __slots__ = ("coins", "draws", "leverage_accuracy", "leverage_regularization", "max_size", "oversampling")

    def __init__(self, rule: LeverageRule, leverage_regularization: float, coins: np.random.Generator) -> None:
        self.leverage_regularization: float = leverage_regularization
        self.leverage_accuracy = float(rule.leverage_accuracy)
        self.oversampling = OVERSAMPLING if rule.oversampling is None else float(rule.oversampling)
        self.max_size = rule.max_size
        self.draws = 0
        self.coins = Coins(coins)

    @abstractmethod
    def _measure(self, candidate: Candidate) -> tuple[FloatArray | float, Any]:
        """Return what the score is a function of, besides the residual, and what :meth:`_drawing` can use again.

        Of a block, that of each candidate and None.
        """

    @abstractmethod
    def _score(self, residual: FloatArray | float, measure: FloatArray | float) -> FloatArray | float:
        """Return the leverage score τ in [0, 1 + ε]."""

    @abstractmethod
    def _drawing(self, candidate: Candidate, proposal: Proposal, appended: bool) -> tuple[Self, FloatArray | None]:
        """Return it with a point that is drawn, and v where measures then fall by (φᵀv)², else None."""

    def score(self, candidate: Candidate) -> FloatArray | float:
        """Return the leverage score τ of a candidate, or of each of a block, in [0, 1 + ε]."""
        return self._score(candidate.residual, self._measure(candidate)[0])

    def propose(self, candidate: Candidate) -> Proposal:
        if self.max_size is not None and len(candidate.features) >= self.max_size:
            return NOTHING
        measure, computed = self._measure(candidate)
        probability = self.oversampling * float(self._score(candidate.residual, measure))
        if probability > 1.0:
            probability = 1.0
        proposal: Proposal = fast(Proposal, (self.coins.next < probability, probability, False, computed))
        return proposal

    def after(self, candidate: Candidate, proposal: Proposal, appended: bool) -> Self:
        if not proposal.draw:
            return evolve(self, coins=self.coins.after())
        drawing, _ = self._drawing(candidate, proposal, appended)
        return evolve(drawing, coins=self.coins.after(), draws=self.draws + 1)

    def after_block(self, block: Candidate, redundant: NDArray[np.bool_]) -> tuple[int, Self]:
        features, residual = block.features, np.asarray(block.residual)
        count, size = features.shape
        if self.is_full(size):
            return count, self
        measures = np.asarray(self._measure(block)[0])
        dictionary, done = self, 0
        while done < count:
            coins = dictionary.coins.ahead(count - done)
            ahead = slice(done, done + len(coins))
            probabilities = self.oversampling * np.asarray(self._score(residual[ahead], measures[ahead]))
            drawn = np.flatnonzero(coins < probabilities)
            passed = int(drawn[0]) if len(drawn) else len(coins)
            dictionary = evolve(dictionary, coins=dictionary.coins.after(passed))
            done += passed
            if len(drawn):
                if not redundant[done]:
                    return done, dictionary
                # the score of what follows falls with the weight of a point that is drawn again
                again = Candidate(block.point[done], block.anchors, features[done], residual[done], 0.0, 0.0)
                proposal = Proposal(draw=True, probability=min(1.0, float(probabilities[passed])))
                drawing, fall = dictionary._drawing(again, proposal, appended=False)
                dictionary = evolve(drawing, coins=dictionary.coins.after(), draws=dictionary.draws + 1)
                done += 1
                if fall is not None:
                    measures[done:] -= times_vector(features[done:], fall) ** 2
        return count, dictionary

    def reseeded(self, entropy: int) -> Self:
        return evolve(self, coins=self.coins.reseeded(entropy))
