"""Online sampling by ridge leverage scores: a point is drawn with probability min(1, γτ)."""

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.commit import Steps, attributes, carry_out
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

    Coins are drawn ahead and used up by commits, so that an observation that fails uses none.
    """

    __slots__ = (
        "_ahead",
        "_coins",
        "_used",
        "draws",
        "leverage_accuracy",
        "leverage_regularization",
        "max_size",
        "oversampling",
    )

    def __init__(self, rule: LeverageRule, leverage_regularization: float, coins: np.random.Generator) -> None:
        self.leverage_regularization: float = leverage_regularization
        self.leverage_accuracy = float(rule.leverage_accuracy)
        self.oversampling = OVERSAMPLING if rule.oversampling is None else float(rule.oversampling)
        self.max_size = rule.max_size
        # How many points were drawn, those that added no direction included; anchors that were chosen count.
        self.draws = 0
        self._coins = coins
        self._ahead = coins.random(COINS_AHEAD)
        self._used = 0

    @abstractmethod
    def _measure(self, candidate: Candidate) -> FloatArray | float:
        """Return what the score is a function of, besides the residual; of each candidate of a block."""

    @abstractmethod
    def _score(self, residual: FloatArray | float, measure: FloatArray | float) -> FloatArray | float:
        """Return the leverage score τ in [0, 1 + ε]."""

    @abstractmethod
    def _draw_steps(self, candidate: Candidate, probability: float, appended: bool) -> tuple[Steps, FloatArray | None]:
        """Return the steps that note a drawn point, and v where measures then fall by (φᵀv)², else None."""

    def score(self, candidate: Candidate) -> FloatArray | float:
        """Return the leverage score τ of a candidate, or of each of a block, in [0, 1 + ε]."""
        return self._score(candidate.residual, self._measure(candidate))

    def propose(self, candidate: Candidate) -> Proposal:
        if self.max_size is not None and len(candidate.features) >= self.max_size:
            return NOTHING
        probability = self.oversampling * float(self._score(candidate.residual, self._measure(candidate)))
        if probability > 1.0:
            probability = 1.0
        proposal: Proposal = fast(Proposal, (self._ahead.item(self._used) < probability, probability, False))
        return proposal

    def commit(self, candidate: Candidate, proposal: Proposal, appended: bool) -> None:
        carry_out(self.commit_steps(candidate, proposal, appended))

    def commit_steps(self, candidate: Candidate, proposal: Proposal, appended: bool) -> Steps:
        used = self._used + 1
        steps = [(setattr, self, "_used", used)] if used < COINS_AHEAD else self._coin_steps(1)
        if proposal.draw:
            steps += self._draw_steps(candidate, proposal.probability, appended)[0]
            steps.append((setattr, self, "draws", self.draws + 1))
        return steps

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
            carry_out(self._coin_steps(passed))
            done += passed
            if len(drawn):
                if not redundant[done]:
                    return done
                # the score of what follows falls with the weight of a point that is drawn again
                one = Candidate(features[done], residual[done], 0.0, 0.0)
                steps, fall = self._draw_steps(one, min(1.0, float(probabilities[passed])), appended=False)
                carry_out([*steps, *self._coin_steps(1), (setattr, self, "draws", self.draws + 1)])
                done += 1
                if fall is not None:
                    measures[done:] -= times_vector(features[done:], fall) ** 2
        return count

    def twin(self) -> Self:
        # coins are replaced and never drawn in place; arrays may be written to
        twin = copy.copy(self)
        for name, value in attributes(self).items():
            if isinstance(value, np.ndarray):
                setattr(twin, name, value.copy())
        return twin

    def on_reseed(self) -> None:
        """Forget the coins that were drawn ahead from the old stream."""
        self._ahead, self._used = self._coins.random(COINS_AHEAD), 0

    def _coin_steps(self, count: int) -> Steps:
        """Return the steps that use up coins."""
        used = self._used + count
        if used < COINS_AHEAD:
            return [(setattr, self, "_used", used)]
        coins = copy.deepcopy(self._coins)
        ahead = coins.random(COINS_AHEAD)
        return [(setattr, self, "_coins", coins), (setattr, self, "_ahead", ahead), (setattr, self, "_used", 0)]
