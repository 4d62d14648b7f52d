"""Ridge regression on explicit features, one observation at a time."""

import copy
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import lapack

from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.numerics import linalg
from kernel_bandits.numerics.blas_threads import factorisation_threads

# Features wait until this many can enter A by one matrix product; the drift check follows: a few gemv per 64 rounds.
PENDING_ROWS = 64
# ‖APφ − φ‖/‖φ‖ at which P counts as drifted. Well above rounding (condition of A times 1e-16), well below 1e-6.
DRIFT_TOLERANCE = 1e-8
# Forgetting divides by 1 − φᵀPφ; below this the digits it loses are better had from a fresh factorisation.
FORGETTING_TOLERANCE = 1e-4
# Observations that are learned at once enter by matrix products of at most this many rows and bytes.
BATCH_ROWS = 512
BATCH_BYTES = 2 * 2**20
# Rows of a Woodbury step, or half of m if that is more: with more the factor L costs more, with fewer each mirrors P.
WOODBURY_ROWS = 128
# 1 + φᵀPφ is at least 1; rounding that leaves less than this has lost every digit of φᵀPφ.
LEAST_SCALE = 0.5
_ARRAYS = ("covariance", "weights", "_precision", "_moment", "_pending", "_pending_rewards")


class Mass(NamedTuple):
    """The past in q further coordinates c, which are the last of φ."""

    cross: FloatArray  # Σ φcᵀ, shape (m, q)
    square: FloatArray  # Σ ccᵀ, shape (q, q)
    moment: FloatArray  # Σ rc, shape (q,)


def batch_rows(size: int) -> int:
    """Return how many observations of ``size`` features to learn at once."""
    return min(BATCH_ROWS, max(PENDING_ROWS, BATCH_BYTES // (8 * max(size, 1))))


def sequential_factor(features: FloatArray, solved: FloatArray) -> FloatArray:
    """L with LLᵀ = I + ΦPΦᵀ for features Φ (b, m) and H = ΦP.

    L_jj² = 1 + φ_jᵀP_jφ_j, where P_j is P after the first j − 1 of the b observations: one factorisation holds the
    variances of all of them as they would be one after the other.
    """
    gram = linalg.times_transpose(solved, features)
    gram.flat[:: len(gram) + 1] += 1.0
    with factorisation_threads(len(gram)):
        factor, info = lapack.dpotrf(gram.T, lower=1, clean=1, overwrite_a=1)
    if info:
        raise KernelBanditsError(
            "The tracked inverse is no longer positive definite; call refactor() on the posterior."
        )
    return factor


def _stacked(blocks: Sequence[tuple[FloatArray, FloatArray]], size: int) -> tuple[FloatArray, FloatArray]:
    """Features and rewards of all blocks; features with fewer than ``size`` coordinates have zeros in the others."""
    features, taken = np.zeros((sum(len(rewards) for _, rewards in blocks), size)), 0
    for block, _ in blocks:
        features[taken : taken + len(block), : block.shape[1]] = block
        taken += len(block)
    return features, np.concatenate([rewards for _, rewards in blocks])


def _drift(precision: FloatArray, covariance: FloatArray, probe: FloatArray) -> float:
    """Return ‖APφ − φ‖/‖φ‖ along a probe φ, shape (m,)."""
    length = float(np.linalg.norm(probe))
    product = linalg.symmetric_times_vector(precision, linalg.symmetric_times_vector(covariance, probe))
    error = float(np.linalg.norm(product - probe))
    return error / length if length else 0.0


class RidgeRegression:
    """A = λI + Σ φφᵀ, P = A⁻¹, b = Σ rφ and w = Pb, with log det(A/λ).

    P and w are tracked by rank-one steps. A and b are kept beside them; every ``PENDING_ROWS`` observations w is
    refined against them, and P is recomputed from A when APφ has left φ by more than ``DRIFT_TOLERANCE``.
    """

    __slots__ = (
        "_deferred",
        "_deferred_rows",
        "_drift_limit",
        "_moment",
        "_pending",
        "_pending_count",
        "_pending_rewards",
        "_precision",
        "_rounds",
        "_stale",
        "covariance",
        "drift",
        "log_determinant",
        "refactorizations",
        "regularization",
        "weights",
    )

    def __init__(self, regularization: float, size: int = 0) -> None:
        self.regularization = regularization
        self.covariance = np.eye(size) / regularization
        self.weights = np.zeros(size)
        self.log_determinant = 0.0
        self.drift = 0.0
        self.refactorizations = 0
        self._precision = np.eye(size) * regularization
        self._moment = np.zeros(size)
        self._pending = np.zeros((PENDING_ROWS, size))
        self._pending_rewards = np.zeros(PENDING_ROWS)
        self._pending_count = 0
        self._deferred: list[tuple[FloatArray, FloatArray]] = []
        self._deferred_rows = 0
        self._stale = False
        self._rounds = 0
        self._drift_limit = DRIFT_TOLERANCE

    # looked up in C, for every round asks for it
    size: int = property(attrgetter("weights.size"))  # type: ignore[assignment]
    """How many features there are: m."""

    @property
    def effective_dimension(self) -> float:
        """The trace of (A − λI)A⁻¹, which is m − λ·trace P."""
        return self.size - self.regularization * float(np.trace(self.covariance))

    def observe_steps(
        self, features: FloatArray, solved: FloatArray, variance: float, mean: float, reward: float
    ) -> Steps:
        """Return the steps that learn a reward at features φ, given h = Pφ, variance = φᵀh and mean = φᵀw."""
        # P ← P − hhᵀ/c and w ← w + h(r − φᵀw)/c with c = 1 + φᵀh (Sherman–Morrison); log det grows by log c
        scale = 1.0 + variance
        if not scale > LEAST_SCALE:
            raise InputError(
                f"kernel: its features are too large for λ = {self.regularization:g}; rounding left 1 + φᵀPφ at "
                f"{scale:.3g}, where at least 1 is expected. Scale the columns to about 1, or give a larger λ."
            )
        weights = self.weights + solved * ((reward - mean) / scale)
        log_determinant = self.log_determinant + math.log(scale)
        fall, count, rounds = solved / math.sqrt(scale), self._pending_count, self._rounds + 1
        if rounds % PENDING_ROWS:
            narrow = linalg.subtract_outer_step(self.covariance, fall)
            return [narrow, (self._store, count, features, reward, weights, log_determinant, rounds)]
        checked = self.copy()
        linalg.subtract_outer(checked.covariance, fall)
        checked._store(count, features, reward, weights, log_determinant, rounds)
        checked._absorb_pending()
        checked._check_drift(features)
        checked._refine()
        return [replace_state(self, checked)]

    def _store(
        self, row: int, features: FloatArray, reward: float, weights: FloatArray, log_determinant: float, rounds: int
    ) -> None:
        """Write what an observation changes besides P; may be repeated."""
        self.weights, self.log_determinant = weights, log_determinant
        self._pending[row], self._pending_rewards[row] = features, reward
        self._pending_count, self._rounds = row + 1, rounds

    def learn_steps(self, features: FloatArray, reward: float) -> Steps:
        """Call :meth:`observe_steps` where nothing is known of h = Pφ and φᵀw yet."""
        solved = linalg.symmetric_times_vector(self.covariance, features)
        return self.observe_steps(features, solved, float(features @ solved), float(features @ self.weights), reward)

    def count_steps(self, coordinates: FloatArray) -> Steps:
        """Return the steps that learn φ with a reward that is never asked for; w means nothing from then on."""
        solved = linalg.symmetric_times_vector(self.covariance, coordinates)
        return self.observe_steps(coordinates, solved, float(coordinates @ solved), 0.0, 0.0)

    def count_many(self, coordinates: Sequence[FloatArray]) -> None:
        """Learn points with rewards that are never asked for, in a regression that nobody else holds."""
        if len(coordinates) < PENDING_ROWS:
            for features in coordinates:
                carry_out(self.count_steps(features))
            return
        rows = batch_rows(self.size)
        for start in range(0, len(coordinates), rows):
            block = np.array(coordinates[start : start + rows])
            self.defer(block, np.zeros(len(block)))
        self.settle()

    def copy(self) -> Self:
        """Return an independent copy of the regression."""
        twin = copy.copy(self)
        for name in _ARRAYS:
            setattr(twin, name, getattr(self, name).copy())
        twin._deferred = list(self._deferred)
        return twin

    def observe_many(self, features: FloatArray, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Learn n rewards at features Φ (n, m), as if one after the other.

        Return l = √(1 + φᵀPφ) and (r − φᵀw)/l of each, with P and w after those before it, both (n,).
        """
        scales, errors = np.empty(len(rewards)), np.empty(len(rewards))
        rows = max(WOODBURY_ROWS, self.size // 2)
        for start in range(0, len(rewards), rows):
            some = slice(start, start + rows)
            factor, reduced = self._narrow(features[some])
            # w ← w + Wᵀe with e = L⁻¹(r − Φw)
            misfit = rewards[some] - linalg.times_vector(features[some], self.weights)
            scales[some], errors[some] = np.diagonal(factor), lapack.dtrtrs(factor, misfit, lower=1)[0]
            self.weights += linalg.transpose_times_vector(reduced, errors[some])
        if len(rewards):
            self._moment += linalg.transpose_times_vector(features, rewards)
            self._note_many(features)
            self._refine()
        return scales, errors

    def count_block(self, features: FloatArray) -> None:
        """Learn points (n, m) at once as :meth:`count_steps` does, in a regression that nobody else holds."""
        self._narrow(features)
        self._note_many(features)

    def _narrow(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bring P and the log-determinant up to date with points Φ (b, m); return L with LLᵀ = I + ΦPΦᵀ, and L⁻¹ΦP."""
        solved = linalg.times(features, self.covariance)
        factor = sequential_factor(features, solved)
        # P ← P − WᵀW with W = L⁻¹ΦP (Woodbury); log det grows by log det LLᵀ
        reduced = linalg.lower_solve(factor, solved)
        linalg.add_gram(self.covariance, reduced, -1.0)
        self.log_determinant += 2.0 * float(np.log(np.diagonal(factor)).sum())
        return factor, reduced

    def _note_many(self, features: FloatArray) -> None:
        """Bring A up to date with points that P has learned, and check the drift."""
        self._absorb_pending()
        linalg.add_gram(self._precision, features, 1.0)
        self._rounds += len(features)
        self._check_drift(features[-1])

    def forget(self, features: FloatArray) -> None:
        """Take back an observation of reward 0 at features φ, in a regression that nobody else holds."""
        solved = linalg.times_vector(self.covariance, features)
        # 1 − φᵀPφ = 1/(1 + φᵀP₋φ) with the P₋ without the observation
        left = 1.0 - float(features @ solved)
        self._absorb_pending()
        linalg.add_gram(self._precision, features[None, :], -1.0)
        if left < FORGETTING_TOLERANCE:
            self._solve()
            return
        # P ← P + hhᵀ/(1 − φᵀPφ) and w ← w + h(φᵀw)/(1 − φᵀPφ), the update run backwards
        linalg.add_gram(self.covariance, solved[None, :] / math.sqrt(left), 1.0)
        self.weights += solved * (float(features @ self.weights) / left)
        self.log_determinant += math.log(left)

    def forget_many(self, coordinates: Sequence[FloatArray]) -> None:
        """Take back observations of reward 0, in a regression that nobody else holds."""
        if len(coordinates) < PENDING_ROWS:
            for features in coordinates:
                self.forget(features)
            return
        self._absorb_pending()
        for start in range(0, len(coordinates), BATCH_ROWS):
            linalg.add_gram(self._precision, np.array(coordinates[start : start + BATCH_ROWS]), -1.0)
        self._solve()

    def defer(self, features: FloatArray, rewards: FloatArray) -> None:
        """Take b observations without bringing P, w and the log-determinant up to date; :meth:`settle` does that.

        A few of them wait for a Woodbury step; more than m/2 enter A and b at once, since P is then cheaper recomputed.
        Features may be longer than before: the past has nothing in the coordinates that were added, unless
        :meth:`add_mass` says so.
        """
        self._deferred.append((features, rewards))
        self._deferred_rows += len(rewards)
        if self._deferred_rows > features.shape[1] // 2:
            self._absorb_deferred()

    def add_mass(self, mass: Mass) -> None:
        """Let the past have mass in the last coordinates, which only later observations had; :meth:`settle` follows."""
        self._absorb_deferred()
        self._stale = True
        # φφᵀ where the c of φ counted as 0 so far: A gains φcᵀ + cφᵀ − ccᵀ in their columns and rows
        known = len(self._moment) - len(mass.moment)
        self._precision[:, known:] += mass.cross
        self._precision[known:, :] += mass.cross.T
        self._precision[known:, known:] -= mass.square
        self._moment[known:] += mass.moment

    def settle(self) -> None:
        """Bring P, w and the log-determinant up to date with all observations that were deferred."""
        if self._stale or (self._deferred and self._deferred[-1][0].shape[1] > self.size):
            self._absorb_deferred()
            self._stale = False
            self._solve()
        waiting, self._deferred, self._deferred_rows = self._deferred, [], 0
        for features, rewards in waiting:
            self.observe_many(features, rewards)

    def _absorb_deferred(self) -> None:
        self._absorb_pending()
        if not self._deferred:
            return
        known, size = len(self._moment), self._deferred[-1][0].shape[1]
        if size > known:
            precision = np.zeros((size, size))
            precision[:known, :known] = self._precision
            np.fill_diagonal(precision[known:, known:], self.regularization)
            self._precision, self._moment = precision, np.append(self._moment, np.zeros(size - known))
            self._pending = np.zeros((PENDING_ROWS, size))
        # What came before a coordinate has nothing in it. Large blocks enter by themselves, which copies nothing.
        large = [block for block in self._deferred if block[0].shape[1] == size and len(block[1]) >= PENDING_ROWS]
        small = [block for block in self._deferred if block[0].shape[1] < size or len(block[1]) < PENDING_ROWS]
        for features, rewards in [*large, *([_stacked(small, size)] if small else [])]:
            linalg.add_gram(self._precision, features, 1.0)
            self._moment += linalg.transpose_times_vector(features, rewards)
        self._rounds += self._deferred_rows
        self._deferred, self._deferred_rows, self._stale = [], 0, True

    def bordered(self, mass: Mass) -> Self:
        """Return a regression with one more coordinate, in which the past has the given mass."""
        grown = copy.copy(self)
        grown._precision, grown._moment = self._precision.copy(), self._moment.copy()
        grown._pending_rewards = self._pending_rewards.copy()
        grown._absorb_pending()
        grown._border(mass)
        return grown

    def _border(self, mass: Mass) -> None:
        cross, square, moment = mass.cross[:-1, 0], mass.square.item(), mass.moment.item()
        # A ← [[A, a], [aᵀ, λ + cc]]; its inverse by the Schur complement s = λ + cc − aᵀPa ≥ λ
        solved = linalg.symmetric_times_vector(self.covariance, cross)
        schur = max(self.regularization + square - float(cross @ solved), self.regularization)
        error = (moment - float(cross @ self.weights)) / schur
        self.covariance = linalg.border_inverse(self.covariance, solved, schur)
        self.weights = np.append(self.weights - error * solved, error)
        self.log_determinant += math.log(schur / self.regularization)
        self._precision = linalg.border_symmetric(self._precision, cross, self.regularization + square)
        self._moment = np.append(self._moment, moment)
        self._pending = np.zeros((PENDING_ROWS, self.size))

    def load(self, second_moment: FloatArray, moment: FloatArray) -> None:
        """Start over from Σ φφᵀ and Σ rφ, which may have another size."""
        self._precision = second_moment + self.regularization * np.eye(len(moment))
        self._moment = moment
        self._pending = np.zeros((PENDING_ROWS, len(moment)))
        self._pending_count = 0
        self._solve()

    def refactor(self) -> None:
        """Recompute P, w and the log-determinant from A and b in O(m³); predictions change by rounding alone."""
        self._absorb_pending()
        self._solve()
        self.refactorizations += 1

    def _solve(self) -> None:
        self.covariance, log_determinant = linalg.inverse_and_log_determinant(self._precision)
        self.weights = linalg.symmetric_times_vector(self.covariance, self._moment)
        self.log_determinant = log_determinant - self.size * math.log(self.regularization)

    def _absorb_pending(self) -> None:
        """Set A ← A + Σ φφᵀ and b ← b + Σ rφ over the observations that wait."""
        rows, rewards = self._pending[: self._pending_count], self._pending_rewards[: self._pending_count]
        linalg.add_gram(self._precision, rows, 1.0)
        self._moment += linalg.transpose_times_vector(rows, rewards)
        self._pending_count = 0

    def _check_drift(self, probe: FloatArray) -> None:
        """Measure how far P has left A⁻¹ along the probe, and refactor if it is too far."""
        self.drift = _drift(self._precision, self.covariance, probe)
        if self.drift > self._drift_limit:
            self.refactor()
            # What a fresh factorisation leaves is the condition of A, not drift: never chase it.
            self._drift_limit = max(DRIFT_TOLERANCE, 10.0 * _drift(self._precision, self.covariance, probe))

    def _refine(self) -> None:
        # w ← w + P(b − Aw)
        misfit = self._moment - linalg.symmetric_times_vector(self._precision, self.weights)
        self.weights += linalg.symmetric_times_vector(self.covariance, misfit)
