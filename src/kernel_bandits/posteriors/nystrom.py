"""The projected posterior: a dictionary of anchors carries it, O(m²) per action and per update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.linalg import blas

from kernel_bandits.arrays import FloatArray, InputError, UnavailableError
from kernel_bandits.dictionaries.base import Candidate, Dictionary
from kernel_bandits.kernels import KernelLike
from kernel_bandits.linalg import (
    border_inverse,
    border_inverse_factor,
    border_symmetric,
    inverse_and_log_determinant,
    lower_times,
    safe_sqrt,
    subtract_outer,
    times_transpose,
    transpose_times,
)
from kernel_bandits.posteriors.base import Evaluation, Posterior
from kernel_bandits.posteriors.history import History

HistoryMode: TypeAlias = Literal["all", "none"]

# A point whose residual is below this share of k(s, s) adds no direction: it would only add a row of noise to J.
DIRECTION_TOLERANCE = 1e-6
# Features wait until so many can enter A by one matrix product; the drift check follows. A few gemv per 64 rounds.
PENDING_ROWS = 64
# ‖APφ − φ‖/‖φ‖ at which P counts as drifted. Well above rounding (condition of A times 1e-16), well below 1e-6.
DRIFT_TOLERANCE = 1e-8
# The pass over the history holds one cross-Gram block of at most so many bytes, and never a t×m matrix.
BLOCK_BYTES = 2 * 2**20


@dataclass(frozen=True, slots=True)
class _NystromEvaluation(Evaluation):
    """Adds φ (A, m), Pφ (A, m), the residuals, the prior variances k(s, s) and the paper's σ², each (A,)."""

    features: FloatArray
    solved: FloatArray
    residual: FloatArray
    prior_variance: FloatArray
    variance: FloatArray

    def row(self, index: int) -> _NystromEvaluation:
        one = slice(index, index + 1)
        return _NystromEvaluation(
            self.round_index,
            self.mean[one],
            self.std[one],
            self.features[one].copy(),
            self.solved[one].copy(),
            self.residual[one],
            self.prior_variance[one],
            self.variance[one],
        )


class NystromPosterior(Posterior[_NystromEvaluation]):
    """Kernel ridge regression restricted to the span of the anchors (eq. 7 and Proposition 4.2 of the paper).

    Whitened coordinates: J = L⁻¹ with LLᵀ = K_ZZ, features φ(s) = J k_Z(s), A = λI + Σ φφᵀ, P = A⁻¹ and w = P Σ rφ.
    They give the paper's quantities as Λ = JᵀPJ and k_ZᵀΛΓ = φᵀw, but every eigenvalue of A is at least λ whatever the
    condition of K_ZZ.

    P and w are tracked by rank-one steps. A and b = Σ rφ are kept beside them; every ``PENDING_ROWS`` observations w is
    refined against them, and P is recomputed from A when APφ has left φ by more than ``DRIFT_TOLERANCE``.

    Args:
        kernel: the covariance function.
        regularization: λ.
        dictionary: the rule that chooses anchors. It belongs to this posterior alone.
        history: ``"all"`` keeps every state and reward, 8(d + 1) bytes a round, so that a point that becomes an anchor
            finds the past projected onto it too, in one pass over the history. ``"none"`` keeps none: the past has no
            mass on a direction that is added later (the operator W̃ in the proof of Theorem 4.1), memory is O(m²) and
            nothing grows with t.
    """

    def __init__(
        self, kernel: KernelLike, regularization: float, dictionary: Dictionary, history: HistoryMode = "all"
    ) -> None:
        super().__init__(kernel, regularization)
        if history not in ("all", "none"):
            raise InputError(f"history: expected 'all' or 'none', got {history!r}.")
        self.dictionary = dictionary
        self.history: HistoryMode = history
        self.drift = 0.0
        self._drift_limit = DRIFT_TOLERANCE
        self.refactorizations = 0
        self._history = History() if history == "all" else None
        self._anchors = np.empty((0, 0))
        self._dimension: int | None = None
        self._factor = np.empty((0, 0))
        self._precision = np.empty((0, 0))
        self._moment = np.empty(0)
        self._covariance = np.empty((0, 0))
        self._weights = np.empty(0)
        self._pending = np.empty((PENDING_ROWS, 0))
        self._pending_count = 0
        if dictionary.initial_points is not None:
            for point in dictionary.initial_points:
                evaluation = self.evaluate(point[None, :])
                if _adds_direction(evaluation):
                    self._append_anchor(point, evaluation)
            self._dimension = dictionary.initial_points.shape[1]

    @property
    def dimension(self) -> int | None:
        return self._dimension

    @property
    def dictionary_points(self) -> FloatArray:
        return self._anchors.copy()

    @property
    def dictionary_size(self) -> int:
        return len(self._anchors)

    @property
    def observed_points(self) -> FloatArray:
        return self._kept_history().points

    @property
    def observed_rewards(self) -> FloatArray:
        """Every observed reward in order, shape (t,), where the history is kept."""
        return self._kept_history().rewards

    @property
    def effective_dimension(self) -> float:
        # trace K̃(K̃ + λI)⁻¹ = m − λ·trace P
        return self.dictionary_size - self.regularization * float(np.trace(self._covariance))

    def _kept_history(self) -> History:
        if self._history is None:
            raise UnavailableError("history: this posterior was built with history='none' and keeps no observations.")
        return self._history

    def _evaluate(self, points: FloatArray) -> _NystromEvaluation:
        prior = self.kernel.diag(points)
        gram = self.kernel(points, self._anchors) if len(self._anchors) else np.empty((len(points), 0))
        # φ = J k_Z(s), one row each
        features = times_transpose(np.ascontiguousarray(gram), self._factor)
        solved = features @ self._covariance
        mean = features @ self._weights
        # ‖(I − P_Z)k(s, ·)‖² = k(s, s) − ‖φ‖²
        residual = np.maximum(prior - np.einsum("ij,ij->i", features, features), 0.0)
        # σ² = residual/λ + φᵀPφ
        variance = residual / self.regularization + np.einsum("ij,ij->i", features, solved)
        std = safe_sqrt(self.regularization * variance)
        return _NystromEvaluation(self.round_index, mean, std, features, solved, residual, prior, variance)

    def _observe(self, point: FloatArray, reward: float, evaluation: _NystromEvaluation) -> None:
        candidate = Candidate(
            evaluation.features[0],
            float(evaluation.residual[0]),
            float(evaluation.prior_variance[0]),
            float(evaluation.variance[0]),
        )
        proposal = self.dictionary.propose(candidate)
        appended = proposal.draw and _adds_direction(evaluation)
        features, solved = candidate.features, evaluation.solved[0]
        mean, residual = float(evaluation.mean[0]), candidate.residual
        if appended:
            self._append_anchor(point, evaluation)
            features = np.append(features, math.sqrt(residual))
            solved = self._covariance @ features
            mean, residual = float(features @ self._weights), 0.0
        self.dictionary.commit(candidate, proposal, appended)

        # P ← P − hhᵀ/c and w ← w + h(r − φᵀw)/c with h = Pφ and c = 1 + φᵀh (Sherman–Morrison)
        scale = 1.0 + float(features @ solved)
        subtract_outer(self._covariance, solved / math.sqrt(scale))
        self._weights += solved * ((reward - mean) / scale)
        # log det(A/λ) grows by log c; the residual trace ρ by what the anchors do not explain
        self.log_determinant += math.log(scale)
        self.residual_trace += residual

        self._moment += reward * features
        self._pending[self._pending_count] = features
        self._pending_count += 1
        if self._history is not None:
            self._history.append(point, reward)
        self._dimension = len(point)
        self.round_index += 1
        if self.round_index % PENDING_ROWS == 0:
            self._absorb_pending()
            self._check_drift(features)

    def _append_anchor(self, point: FloatArray, evaluation: _NystromEvaluation) -> None:
        """Add one direction; the past is projected onto it where it is kept."""
        features, pivot = evaluation.features[0], math.sqrt(float(evaluation.residual[0]))
        with np.errstate(invalid="ignore", over="ignore"):
            cross, square, moment = self._project_history(point, features, pivot)
        if not math.isfinite(square + moment):
            raise InputError(f"kernel: {self.kernel!r} returned values that are not finite between observed points.")
        self._absorb_pending()

        # A ← [[A, a], [aᵀ, λ + cc]]; its inverse by the Schur complement s = λ + cc − aᵀPa ≥ λ
        solved = self._covariance @ cross
        schur = max(self.regularization + square - float(cross @ solved), self.regularization)
        error = (moment - float(cross @ self._weights)) / schur
        self._precision = border_symmetric(self._precision, cross, self.regularization + square)
        self._covariance = border_inverse(self._covariance, solved, schur)
        self._weights = np.append(self._weights - error * solved, error)
        self._moment = np.append(self._moment, moment)
        self._factor = border_inverse_factor(self._factor, features, pivot)
        self._anchors = np.concatenate([self._anchors.reshape(-1, len(point)), point[None, :]])
        self._pending = np.zeros((PENDING_ROWS, len(self._anchors)))
        self.log_determinant += math.log(schur / self.regularization)
        self.residual_trace = max(self.residual_trace - square, 0.0)

    def _project_history(
        self, point: FloatArray, features: FloatArray, pivot: float
    ) -> tuple[FloatArray, float, float]:
        """The past in the coordinate of a further anchor z: a = Σ φ(s_i)c_i, cc = Σ c_i² and cy = Σ c_i r_i.

        c_i = (k(s_i, z) − φ(s_i)ᵀφ(z))/l, where φ(s_i)ᵀφ(z) = k_Z(s_i)ᵀJᵀφ(z): O(t·m), kernel recomputed block by
        block.
        """
        size = len(features)
        if self._history is None or not len(self._history):
            return np.zeros(size), 0.0, 0.0
        coefficients = transpose_times(self._factor, features)
        anchors = np.concatenate([self._anchors.reshape(-1, len(point)), point[None, :]])
        rows = max(1, BLOCK_BYTES // (8 * (size + 1)))
        gram_sum, square, moment = np.zeros(size), 0.0, 0.0
        for block_points, block_rewards in self._history.blocks():
            for start in range(0, len(block_points), rows):
                part = slice(start, start + rows)
                gram = self.kernel(block_points[part], anchors)
                coordinate = (gram[:, size] - gram[:, :size] @ coefficients) / pivot
                gram_sum += coordinate @ gram[:, :size]
                square += float(coordinate @ coordinate)
                moment += float(coordinate @ block_rewards[part])
        return lower_times(self._factor, gram_sum), square, moment

    def _absorb_pending(self) -> None:
        """A ← A + Σ φφᵀ over the features that wait."""
        if self._pending_count and self._precision.size:
            rows = self._pending[: self._pending_count].T
            blas.dgemm(1.0, rows, rows, beta=1.0, c=self._precision.T, trans_b=1, overwrite_c=1)
        self._pending_count = 0

    def _check_drift(self, probe: FloatArray) -> None:
        """Refine w against A and b, measure how far P has left A⁻¹ along the probe, and refactor if it is too far."""
        self.drift = self._measure_drift(probe)
        if self.drift > self._drift_limit:
            self.refactor()
            # What a fresh factorisation leaves is the condition of A, not drift: never chase it.
            self._drift_limit = max(DRIFT_TOLERANCE, 10.0 * self._measure_drift(probe))
        # w ← w + P(b − Aw)
        self._weights += self._covariance @ (self._moment - self._precision @ self._weights)

    def _measure_drift(self, probe: FloatArray) -> float:
        # ‖APφ − φ‖/‖φ‖
        length = float(np.linalg.norm(probe))
        error = float(np.linalg.norm(self._precision @ (self._covariance @ probe) - probe))
        return error / length if length else 0.0

    def refactor(self) -> None:
        """Recompute P, w and the log-determinant from A and b in O(m³); predictions change by rounding alone."""
        self._absorb_pending()
        self._covariance, log_determinant = inverse_and_log_determinant(self._precision)
        self._weights = self._covariance @ self._moment
        self.log_determinant = log_determinant - self.dictionary_size * math.log(self.regularization)
        self.refactorizations += 1


def _adds_direction(evaluation: _NystromEvaluation) -> bool:
    return bool(evaluation.residual[0] > DIRECTION_TOLERANCE * evaluation.prior_variance[0])
