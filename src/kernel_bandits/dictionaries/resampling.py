"""Dictionaries redrawn from the whole history, by the posterior variance: contextual BKB and BBKB."""

import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.dictionaries.base import Candidate, Dictionary, DictionaryRule, PlayedPoints, Proposal
from kernel_bandits.errors import InputError
from kernel_bandits.rng import reseeded
from kernel_bandits.values import evolve


@dataclass(frozen=True, kw_only=True)
class Resampling(DictionaryRule):
    """Redraw the whole dictionary from the history: each observed point with p_i = min(1, q̄·σ²(s_i)).

    σ² is the posterior variance over λ given all observations, the newest included. Calandriello et al. take it before
    the newest observation in BKB (2019) and at the start of the batch in BBKB (2020): up to 2 and C times as large, and
    so are their dictionaries at the same q̄. A point that is drawn twice is one anchor.

    Resampling happens when 1 + Σ σ²(s), over the points observed since the last one and with the σ² of its moment,
    exceeds the limit (Calandriello et al. 2020).

    Args:
        oversampling: q̄. It sets the dictionary size, whatever the limit.
        batch_variance_limit: C of BBKB, at least 1. At 1 the dictionary is redrawn in every round, which is BKB.
        keeps_first: whether the first point is an anchor until the first resampling, as in the published BKB and BBKB;
            otherwise there is no anchor until then, and play is uniform.
    """

    oversampling: float = 2.0
    batch_variance_limit: float = 10.0
    keeps_first: bool = False

    def __post_init__(self) -> None:
        as_positive("oversampling", self.oversampling)
        if as_positive("batch_variance_limit", self.batch_variance_limit) < 1.0:
            given = self.batch_variance_limit
            raise InputError(f"batch_variance_limit: expected at least 1, got {given!r}; 1 resamples every round.")

    def start(self, regularization: float, generator: np.random.Generator) -> Dictionary:
        return ResamplingDictionary(self, regularization, generator)


class ResamplingDictionary(Dictionary):
    """The state of :class:`Resampling`: the running batch, and σ² frozen at its start."""

    __slots__ = (
        "_batch_variance",
        "_coins",
        "_frozen_covariance",
        "batch_variance_limit",
        "keeps_first",
        "oversampling",
        "regularization",
    )

    uses_variance = False

    def __init__(self, rule: Resampling, regularization: float, coins: np.random.Generator) -> None:
        self.regularization: float = regularization
        self.oversampling: float = float(rule.oversampling)
        self.batch_variance_limit: float = float(rule.batch_variance_limit)
        self.keeps_first: bool = rule.keeps_first
        self._coins = coins
        self._frozen_covariance = np.empty((0, 0))
        self._batch_variance = 0.0

    def _frozen_variance(self, candidate: Candidate) -> FloatArray:
        features = candidate.features
        # σ² = residual/λ + φᵀPφ with the P of the last resampling; the anchors, hence φ and residual, are its too
        explained = np.vecdot(features @ self._frozen_covariance, features)
        return np.asarray(candidate.residual / self.regularization + explained)

    def propose(self, candidate: Candidate) -> Proposal:
        total = 1.0 + self._batch_variance + float(self._frozen_variance(candidate))
        if total > self.batch_variance_limit:
            return Proposal(draw=False, probability=0.0, resample=True)
        return Proposal(draw=self._awaits_first(candidate), probability=1.0)

    def _awaits_first(self, candidate: Candidate) -> bool:
        return self.keeps_first and candidate.features.shape[-1] == 0

    def after(self, candidate: Candidate, proposal: Proposal, appended: bool) -> Self:
        total = self._batch_variance + float(self._frozen_variance(candidate))
        if proposal.draw and appended:
            # nothing was observed at the start of the batch: P = I/λ on the first anchor
            return evolve(self, _batch_variance=total, _frozen_covariance=np.eye(1) / self.regularization)
        return evolve(self, _batch_variance=total)

    def after_block(self, block: Candidate, redundant: NDArray[np.bool_]) -> tuple[int, Self]:
        del redundant
        if self._awaits_first(block):
            return 0, self
        sums = self._batch_variance + np.cumsum(self._frozen_variance(block))
        count = int(np.searchsorted(1.0 + sums, self.batch_variance_limit, side="right"))
        return count, evolve(self, _batch_variance=float(sums[count - 1])) if count else self

    def probabilities(self, variances: FloatArray) -> FloatArray:
        """Return the chance p = min(1, q̄σ²) of each point."""
        return np.minimum(1.0, self.oversampling * variances)

    def redrawn(self, played: PlayedPoints) -> tuple[FloatArray, Self]:
        chances = self.probabilities(played.variances())
        coins = copy.deepcopy(self._coins)
        drawn = coins.random(len(chances)) < chances
        if not drawn.any():
            # As may happen with a few points repeated often; an empty dictionary would forget everything.
            drawn[chances.argmax()] = True
        return played.points[drawn], evolve(self, _coins=coins)

    def adopting(self, inverse: FloatArray) -> Self:
        return evolve(self, _frozen_covariance=inverse.copy(), _batch_variance=0.0)

    def reseeded(self, entropy: int) -> Self:
        return evolve(self, _coins=reseeded(self._coins, entropy))
