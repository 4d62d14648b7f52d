"""Ridge regression on explicit features: a value, and the next one after each observation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import lapack

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.numerics import linalg
from kernel_bandits.numerics.linalg import Symmetric, factorisation_threads
from kernel_bandits.values import copied, evolve, fact

# Features wait until this many can enter A by one matrix product; the drift check follows: a few gemv per 64 rounds.
RECENT_ROWS = 64
# ‖APφ − φ‖/‖φ‖ at which P counts as drifted. Well above rounding (condition of A times 1e-16), well below 1e-6.
DRIFT_TOLERANCE = 1e-8
# Forgetting divides by 1 − φᵀPφ; below this the digits it loses are better had from a fresh factorisation.
FORGETTING_TOLERANCE = 1e-4
# Fewer observations are learned faster one by one.
FEWEST_TOGETHER = 9
# Observations that are learned at once enter by matrix products of at most this many rows and bytes.
BATCH_ROWS = 512
BATCH_BYTES = 2 * 2**20
# Rows of a Woodbury step, or half of m if that is more: with more the factor L costs more, with fewer each mirrors P.
WOODBURY_ROWS = 128
# 1 + φᵀPφ is at least 1; rounding that leaves less than this has lost every digit of φᵀPφ.
LEAST_SCALE = 0.5


class Mass(NamedTuple):
    """The past in q further coordinates c, which are the last of φ."""

    cross: FloatArray  # Σ φcᵀ, shape (m, q)
    square: FloatArray  # Σ ccᵀ, shape (q, q)
    moment: FloatArray  # Σ rc, shape (q,)


def batch_rows(size: int) -> int:
    """Return how many observations of ``size`` features to learn at once."""
    return min(BATCH_ROWS, max(RECENT_ROWS, BATCH_BYTES // (8 * max(size, 1))))


def sequential_factor(features: FloatArray, solved: FloatArray) -> FloatArray:
    """Return L with LLᵀ = I + ΦPΦᵀ for features Φ (b, m), given ΦP as ``solved``.

    L_jj² = 1 + φ_jᵀP_jφ_j, where P_j is P after the first j − 1 of the b observations: one factorisation holds the
    variances of all of them as they would be one after the other.
    """
    gram = linalg.times_transpose(solved, features)
    gram.flat[:: len(gram) + 1] += 1.0
    with factorisation_threads(len(gram)):
        factor, info = lapack.dpotrf(gram.T, lower=1, clean=1, overwrite_a=1)
    if info:
        raise KernelBanditsError("The tracked inverse is no longer positive definite; call refactored() on it.")
    return factor


class RidgeRegression:
    """A = λI + Σ φφᵀ, P = A⁻¹, b = Σ rφ and w = Pb, with log det(A/λ).

    P and w are tracked by rank-one steps. A and b are kept beside them, without the last observations and coordinates;
    every ``RECENT_ROWS`` of these enter, w is refined, and P is recomputed from A if APφ has left φ by more than
    ``DRIFT_TOLERANCE``.

    Attributes:
        regularization: λ.
        inverse: P, of shape (m, m).
        weights: w, shape (m,).
        log_determinant: log det(A/λ).
        drift: how far P was from A⁻¹ when it was last checked, relative.
        refactorizations: how often P was recomputed because it had drifted.
        rounds: how many observations P has learned.
    """

    __slots__ = (
        "_borders",
        "_drift_limit",
        "_moment",
        "_precision",
        "_recent",
        "drift",
        "inverse",
        "log_determinant",
        "refactorizations",
        "regularization",
        "rounds",
        "weights",
    )

    def __init__(self, regularization: float, size: int = 0) -> None:
        self.regularization: float = regularization
        self.inverse: Symmetric = Symmetric(np.eye(size) / regularization, 1.0 / regularization)
        self.weights: FloatArray = np.zeros(size)
        self.log_determinant: float = 0.0
        self.drift: float = 0.0
        self.refactorizations: int = 0
        self._precision = np.eye(size) * regularization
        # the further columns of A down to its diagonal, of coordinates that it does not have yet
        self._borders: tuple[FloatArray, ...] = ()
        self._moment = np.zeros(size)
        # features and rewards that are not in A and b yet
        self._recent: tuple[tuple[FloatArray, float], ...] = ()
        self.rounds: int = 0
        self._drift_limit = DRIFT_TOLERANCE

    size: int = fact("weights.size")
    """How many features there are: m."""

    @property
    def covariance(self) -> FloatArray:
        """P, shape (m, m); not to be changed."""
        return self.inverse.matrix

    @property
    def effective_dimension(self) -> float:
        """The trace of (A − λI)A⁻¹, which is m − λ·trace P."""
        return self.size - self.regularization * self.inverse.trace

    def shrinkage(self, features: FloatArray) -> float:
        """Return by what observations at features Φ (n, m) divide the variance φᵀPφ of any φ at most."""
        if len(features) > self.size:
            # RᵀR = ΦᵀΦ
            features = np.linalg.qr(features, mode="r")  # type: ignore[assignment] # typed as if it returned Q too
        # A + ΦᵀΦ ⪯ (1 + λ_max(ΦPΦᵀ))·A
        gram = linalg.times_transpose(linalg.times(features, self.covariance), features)
        return 1.0 + linalg.largest_eigenvalue(gram)

    def learned(
        self,
        features: FloatArray,
        reward: float,
        weight: float = 1.0,
        solved: FloatArray | None = None,
        mean: float | None = None,
    ) -> Self:
        """Return it with a reward of noise variance λ/weight at features φ.

        A point whose reward is never asked for has reward 0; w means nothing from then on. Where Pφ and φᵀw are known
        for a weight of 1, they are given.
        """
        if weight != 1.0:
            # √weight·r at √weight·φ
            features, reward = math.sqrt(weight) * features, math.sqrt(weight) * reward
        # P ← P − hhᵀ/c and w ← w + h(r − φᵀw)/c with h = Pφ and c = 1 + φᵀh (Sherman–Morrison); log det grows by log c
        solved = self.inverse.times_vector(features) if solved is None else solved
        mean = float(features.dot(self.weights)) if mean is None else mean
        scale = 1.0 + float(features.dot(solved))
        if not scale > LEAST_SCALE:
            raise InputError(
                f"kernel: its features are too large for λ = {self.regularization:g}; rounding left 1 + φᵀPφ at "
                f"{scale:.3g}, where at least 1 is expected. Scale the columns to about 1, or give a larger λ."
            )
        after = copied(self)
        after.inverse = self.inverse.plus(solved / math.sqrt(scale), -1.0)
        after.weights = self.weights + solved * ((reward - mean) / scale)
        after.log_determinant = self.log_determinant + math.log(scale)
        # a copy, since a row of an array keeps all of it
        after._recent = (*self._recent, (features.copy(), reward))
        after.rounds = self.rounds + 1
        if after.rounds % RECENT_ROWS == 0:
            after._absorb_recent()
            after._check_drift(features)
            after._refine()
        return after

    def learned_many(self, features: FloatArray, rewards: FloatArray) -> Self:
        """Return it with n rewards at features Φ (n, m), as if one after the other."""
        if len(rewards) < FEWEST_TOGETHER:
            after = self
            for row, reward in zip(features, rewards.tolist(), strict=True):
                after = after.learned(row, reward)
            return after
        return self._learned_together(features, rewards)

    def _learned_together(self, features: FloatArray, rewards: FloatArray) -> Self:
        after, rows = self._apart(), max(WOODBURY_ROWS, self.size // 2)
        for start in range(0, len(rewards), rows):
            some = slice(start, start + rows)
            solved = after.inverse.times(features[some])
            factor = sequential_factor(features[some], solved)
            # P ← P − WᵀW with W = L⁻¹ΦP (Woodbury); log det grows by log det LLᵀ
            reduced = linalg.lower_solve(factor, solved)
            linalg.add_gram(after.inverse.matrix, reduced, -1.0)
            after.log_determinant += 2.0 * float(np.log(np.diagonal(factor)).sum())
            # w ← w + Wᵀe with e = L⁻¹(r − Φw)
            misfit = rewards[some] - linalg.times_vector(features[some], after.weights)
            error = lapack.dtrtrs(factor, misfit, lower=1)[0]
            after.weights = after.weights + linalg.transpose_times_vector(reduced, error)
        after._absorb_recent()
        linalg.add_gram(after._precision, features, 1.0)
        after._moment = after._moment + linalg.transpose_times_vector(features, rewards)
        after.rounds += len(features)
        after._check_drift(features[-1])
        after._refine()
        return after

    def forgotten(self, features: Sequence[FloatArray]) -> Self:
        """Return it without some observations of reward 0."""
        after = self._apart()
        after._absorb_recent()
        if len(features) < RECENT_ROWS:
            for each in features:
                after._forget(each)
            return after
        for start in range(0, len(features), BATCH_ROWS):
            linalg.add_gram(after._precision, np.array(features[start : start + BATCH_ROWS]), -1.0)
        after._solve()
        return after

    def bordered(self, mass: Mass | None) -> Self:
        """Return it with one more coordinate, in which the past has the given mass; None for none."""
        size, level = self.size, self.regularization
        if mass is None:
            # A ← [[A, 0], [0, λ]]
            return evolve(
                self,
                inverse=self.inverse.bordered(),
                weights=linalg.appended_to(self.weights, 0.0),
                _borders=(*self._borders, linalg.appended_to(np.zeros(size), level)),
                _moment=linalg.appended_to(self._moment, 0.0),
            )
        cross, square, moment = mass.cross[:-1, 0], mass.square.item(), mass.moment.item()
        # A ← [[A, a], [aᵀ, λ + cc]]; by the Schur complement s = λ + cc − aᵀPa ≥ λ its inverse is
        # P ← [[P, 0], [0, 0]] + uuᵀ/s with u = [Pa, −1], and [[P, 0], [0, 1/λ]] is at hand
        solved = self.inverse.times_vector(cross)
        schur = max(level + square - float(cross @ solved), level)
        error = (moment - float(cross @ self.weights)) / schur
        corner = linalg.appended_to(np.zeros(size), 1.0 / math.sqrt(level))
        further = linalg.appended_to(solved, -1.0) / math.sqrt(schur)
        return evolve(
            self,
            inverse=self.inverse.bordered().plus(corner, -1.0).plus(further, 1.0),
            weights=linalg.appended_to(self.weights - error * solved, error),
            log_determinant=self.log_determinant + math.log(schur / level),
            _borders=(*self._borders, linalg.appended_to(cross, level + square)),
            _moment=linalg.appended_to(self._moment, moment),
        )

    def sums(self) -> tuple[FloatArray, FloatArray]:
        """Return Σ φφᵀ and Σ rφ."""
        after = self._apart()
        after._absorb_recent()
        after._precision.flat[:: self.size + 1] -= self.regularization
        return after._precision, after._moment

    def loaded(self, second_moment: FloatArray, moment: FloatArray) -> Self:
        """Return a regression on Σ φφᵀ and Σ rφ, which may have another size."""
        after = evolve(
            self,
            _precision=second_moment + self.regularization * np.eye(len(moment)),
            _borders=(),
            _moment=moment,
            _recent=(),
        )
        after._solve()
        return after

    def refactored(self) -> Self:
        """Return it with P, w and the log-determinant recomputed from A and b in O(m³): the same up to rounding."""
        after = self._apart()
        after._refactor()
        return after

    # What follows writes, in a regression that nobody else holds yet.

    def _apart(self) -> Self:
        """Return a copy that may be written to."""
        inverse = Symmetric(self.covariance.copy(), 1.0 / self.regularization)
        return evolve(self, inverse=inverse, _precision=self._precision.copy())

    def _forget(self, features: FloatArray) -> None:
        solved = self.inverse.times_vector(features)
        # 1 − φᵀPφ = 1/(1 + φᵀP₋φ) with the P₋ without the observation
        left = 1.0 - float(features @ solved)
        linalg.add_gram(self._precision, features[None, :], -1.0)
        if left < FORGETTING_TOLERANCE:
            self._solve()
            return
        # P ← P + hhᵀ/(1 − φᵀPφ) and w ← w + h(φᵀw)/(1 − φᵀPφ), the update run backwards
        linalg.add_gram(self.inverse.matrix, solved[None, :] / math.sqrt(left), 1.0)
        self.weights = self.weights + solved * (float(features @ self.weights) / left)
        self.log_determinant += math.log(left)

    def _refactor(self) -> None:
        self._absorb_recent()
        self._solve()
        self.refactorizations += 1

    def _solve(self) -> None:
        covariance, log_determinant = linalg.inverse_and_log_determinant(self._precision)
        self.inverse = Symmetric(covariance, 1.0 / self.regularization)
        self.weights = linalg.symmetric_times_vector(covariance, self._moment)
        self.log_determinant = log_determinant - self.size * math.log(self.regularization)

    def _absorb_recent(self) -> None:
        """Set A ← A + Σ φφᵀ and b ← b + Σ rφ over the observations that wait, in all coordinates."""
        size, known = self.size, len(self._precision)
        if size > known:
            precision = np.zeros((size, size))
            precision[:known, :known] = self._precision
            for place, border in enumerate(self._borders, start=known):
                precision[place, : place + 1] = precision[: place + 1, place] = border
            self._precision, self._borders = precision, ()
        if self._recent:
            rows, rewards = np.zeros((len(self._recent), size)), np.array([reward for _, reward in self._recent])
            for row, (features, _) in zip(rows, self._recent, strict=True):
                row[: len(features)] = features
            if size == known:
                self._precision = self._precision.copy()
            linalg.add_gram(self._precision, rows, 1.0)
            self._moment = self._moment + linalg.transpose_times_vector(rows, rewards)
            self._recent = ()

    def _check_drift(self, probe: FloatArray) -> None:
        """Measure how far P has left A⁻¹ along the probe, and refactor if it is too far."""
        self.drift = _drift(self._precision, self.inverse, probe)
        if self.drift > self._drift_limit:
            self._refactor()
            # What a fresh factorisation leaves is the condition of A, not drift: never chase it.
            self._drift_limit = max(DRIFT_TOLERANCE, 10.0 * _drift(self._precision, self.inverse, probe))

    def _refine(self) -> None:
        # w ← w + P(b − Aw)
        misfit = self._moment - linalg.symmetric_times_vector(self._precision, self.weights)
        self.weights = self.weights + self.inverse.times_vector(misfit)


def _drift(precision: FloatArray, inverse: Symmetric, probe: FloatArray) -> float:
    """Return ‖APφ − φ‖/‖φ‖ along a probe φ, shape (m,)."""
    length = float(np.linalg.norm(probe))
    product = linalg.symmetric_times_vector(precision, inverse.times_vector(probe))
    error = float(np.linalg.norm(product - probe))
    return error / length if length else 0.0
