"""The paper's theory as functions of a Gram matrix or of numbers, corrected where the proofs need it.

``gram`` is K_T = k(S, S) for any set of points, for instance :func:`observed_gram` of a policy that has run. The errata
these functions follow are listed, with derivations, in ``docs/theory.md``.
"""

import math
from typing import Protocol

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count, as_points, as_positive, require_finite
from kernel_bandits.errors import InputError
from kernel_bandits.posterior.base import Posterior


class Learner(Protocol):
    """A policy with one posterior."""

    @property
    def posterior(self) -> Posterior:
        """The model."""

    @property
    def observed_points(self) -> FloatArray:
        """Every point learned so far, shape (T, d), if the history is kept."""


def observed_gram(policy: Learner) -> FloatArray:
    """Return K_T of the points a policy has observed, shape (T, T); needs a policy that keeps its history."""
    points = policy.observed_points
    return policy.posterior.kernel(points, points)


def _eigenvalues(gram: FloatArray) -> FloatArray:
    """Eigenvalues of a Gram matrix, largest first, rounding below zero removed."""
    gram = as_points("gram", gram)
    require_finite("gram", gram)
    if gram.shape[0] != gram.shape[1] or not np.allclose(gram, gram.T, atol=1e-8 * (1 + np.abs(gram).max())):
        raise InputError(f"gram: expected a symmetric matrix, got shape {gram.shape}; use kernel(points).")
    return np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)


def effective_dimension(gram: FloatArray, regularization: float) -> float:
    """Return d_eff(λ, T) = trace K(K + λI)⁻¹ (Definition 3.1)."""
    eigenvalues = _eigenvalues(gram)
    return float((eigenvalues / (eigenvalues + as_positive("regularization", regularization))).sum())


def information_gain(gram: FloatArray, regularization: float) -> float:
    """Return γ(λ, t) = ½·log det(I + K/λ)."""
    return 0.5 * float(np.log1p(_eigenvalues(gram) / as_positive("regularization", regularization)).sum())


def valko_dimension(gram: FloatArray, regularization: float, horizon: int) -> int:
    """Return d̃(λ, t) = min{j : j·λ·log T ≥ Σ_{k>j} λ_k(K)} (Valko et al. 2013)."""
    eigenvalues = _eigenvalues(gram)
    tails = np.append(eigenvalues[::-1].cumsum()[::-1], 0.0)
    level = as_positive("regularization", regularization)
    budgets = np.arange(len(tails)) * level * math.log(as_count("horizon", horizon))
    return int(np.flatnonzero(budgets >= tails)[0])


def capacity_factor(horizon: int, regularization: float, kernel_bound: float = 1.0) -> float:
    """Return log(e + eTκ²/λ), with which log det(I + K/λ) ≤ factor·d_eff (Proposition 3.1)."""
    return math.log(math.e + math.e * horizon * kernel_bound**2 / as_positive("regularization", regularization))


def k_ucb_regret_bound(
    *,
    horizon: int,
    regularization: float,
    norm_bound: float,
    effective_dimension: float,
    noise_bound: float = 1.0,
    kernel_bound: float = 1.0,
    corrected: bool = True,
) -> float:
    """Return the bound of Theorem 3.1 on the expected regret of K-UCB run with the radius of Lemma 3.1 at δ = 1/T.

    R_T ≤ 2 + 2·√(c·T·ℓ·d_eff)·(√λ·B + R·√(2·log T + ℓ·d_eff)) with ℓ = log(e + eTκ²/λ), for expected rewards in [−1,
    1].

    Args:
        horizon: T.
        regularization: λ.
        norm_bound: B ≥ ‖θ*‖.
        effective_dimension: d_eff(λ, T).
        noise_bound: R; the paper takes 1.
        kernel_bound: κ with k(s, s) ≤ κ².
        corrected: c = 1/ln 2, as min(u, 1) ≤ log(1 + u)/ln 2 in the proof demands; the paper prints c = 1. The
            corrected bound also uses max(β, 1), which matters for R < 1 alone.
    """
    ell = capacity_factor(horizon, regularization, kernel_bound)
    deviation = 2 * math.log(horizon) + ell * effective_dimension
    beta = math.sqrt(regularization) * norm_bound + noise_bound * math.sqrt(deviation)
    constant = 1.0 / math.log(2.0) if corrected else 1.0
    beta = max(beta, 1.0) if corrected else beta
    return 2 + 2 * beta * math.sqrt(constant * horizon * ell * effective_dimension)


def ek_ucb_regret_bound(
    *,
    horizon: int,
    regularization: float,
    leverage_regularization: float,
    norm_bound: float,
    effective_dimension: float,
    dictionary_size: float,
    draws: float | None = None,
    oversampling: float = 2.0,
    leverage_accuracy: float = 0.5,
    noise_bound: float = 1.0,
    kernel_bound: float = 1.0,
    corrected: bool = True,
) -> float:
    """Return the bound of Theorem 4.1 on the expected regret of EK-UCB, for expected rewards in [−1, 1] and δ = 1/T.

    With ℓ = log(e + eTκ²/λ), where ‖(I − P_t)F_t^{1/2}‖² ≤ μ for all t:

    - as printed: 2 + 2·β̃·√(T·(4·ℓ·d_eff + 2·mμ/λ)), β̃ = (√λ + √μ)·B + R·√(4·log T + 2·ℓ·d_eff);
    - corrected: 4 + 2·max(β̃, 1)·√(T·(ℓ·d_eff/ln 2 + m + E/λ)), β̃ = √(λ + μ)·B + R·√(2·log T + ℓ·d_eff), with
      E = μ·Σp_t/(γ(1 + ε) − 1), the most that the acceptance rule of KORS can leave out. The printed proof bounds a
      trace by an operator norm and orders two operators that are not ordered; ``docs/theory.md`` has the repair.

    Args:
        horizon: T.
        regularization: λ.
        leverage_regularization: μ, a bound on ‖(I − P_t)F_t^{1/2}‖², with probability 1 − 1/T.
        norm_bound: B ≥ ‖θ*‖.
        effective_dimension: d_eff(λ, T).
        dictionary_size: m.
        draws: Σp_t, the expected number of points that KORS draws, repeats included; needed if corrected.
        oversampling: γ; the corrected bound needs γ(1 + ε) > 1.
        leverage_accuracy: ε.
        noise_bound: R; the paper takes 1.
        kernel_bound: κ.
        corrected: as above.
    """
    ell = capacity_factor(horizon, regularization, kernel_bound)
    deviation = 2 * math.log(horizon) + ell * effective_dimension
    if not corrected:
        bias = (math.sqrt(regularization) + math.sqrt(leverage_regularization)) * norm_bound
        widths = 4 * ell * effective_dimension + 2 * dictionary_size * leverage_regularization / regularization
        return 2 + 2 * (bias + noise_bound * math.sqrt(2 * deviation)) * math.sqrt(horizon * widths)
    margin = oversampling * (1 + leverage_accuracy) - 1
    if draws is None or margin <= 0:
        raise InputError(
            f"draws, oversampling: the corrected bound needs the number of draws and γ(1 + ε) > 1, "
            f"got {draws} and {oversampling}·{1 + leverage_accuracy}."
        )
    beta = math.sqrt(regularization + leverage_regularization) * norm_bound + noise_bound * math.sqrt(deviation)
    left_out = leverage_regularization * draws / margin
    widths = ell * effective_dimension / math.log(2.0) + dictionary_size + left_out / regularization
    return 4 + 2 * max(beta, 1.0) * math.sqrt(horizon * widths)


def k_ucb_rate(capacity: float) -> float:
    """Return the exponent of T in the regret of K-UCB when d_eff ≤ (T/λ)^α, α in [0, 1].

    (1 + 3α)/(2 + 2α) (Corollary 3.1).

    It is reached with λ ≈ T^{α/(1 + α)}.
    """
    capacity = _check_capacity(capacity)
    return (1 + 3 * capacity) / (2 + 2 * capacity)


def ek_ucb_rate(capacity: float, dictionary_exponent: float) -> float:
    """Return the exponent of T in EK-UCB's regret with m = T^x anchors, d_eff ≤ (T/λ)^α, α > 0 (Corollary 4.1).

    1 + x(α − 1)/(2α) with λ = μ = T·m^{−1/α} while x ≤ α/(1 + α); beyond that more anchors do not help, λ = μ stays at
    T^{α/(1 + α)} and the rate is that of K-UCB.
    """
    if _check_capacity(capacity) == 0:
        raise InputError("capacity: expected α in (0, 1]; at α = 0 a constant number of anchors is enough.")
    if not dictionary_exponent >= 0:
        raise InputError(f"dictionary_exponent: expected a number of at least 0, got {dictionary_exponent!r}.")
    if dictionary_exponent >= capacity / (1 + capacity):
        return k_ucb_rate(capacity)
    return 1 + dictionary_exponent * (capacity - 1) / (2 * capacity)


def kors_budget(horizon: int, failure_probability: float) -> float:
    """Return γ = 12·log(T/δ), the oversampling that Proposition 4.1 asks for (at ε = ½)."""
    return 12.0 * math.log(as_count("horizon", horizon) / _check_probability(failure_probability))


def kors_dictionary_bound(effective_dimension: float, horizon: int, failure_probability: float) -> float:
    """M ≤ 9·d_eff(μ, T)·log(2T/δ)², with probability 1 − δ and d_eff at the leverage regularisation μ (Prop. 4.1)."""
    logarithm = math.log(2.0 * as_count("horizon", horizon) / _check_probability(failure_probability))
    return 9.0 * effective_dimension * logarithm**2


def kors_draws_bound(
    gram: FloatArray, leverage_regularization: float, oversampling: float, leverage_accuracy: float = 0.5
) -> float:
    """E[Σp_t] ≤ log det(I + E[F_T]/μ)/log(1 + 1/c), c = γ(1 + ε): how many points KORS draws on average.

    For every γ > 0, and for points that depend on past coins and rewards (``docs/theory.md``). The
    dictionary has at most as many anchors.

    Args:
        gram: of the points if they are fixed beforehand. If they are adaptive, any matrix with the eigenvalues of
            E[F_T], such as the Gram matrix of the points of all n runs together, over n.
        leverage_regularization: μ.
        oversampling: γ.
        leverage_accuracy: ε.
    """
    rate = as_positive("oversampling", oversampling) * (1.0 + leverage_accuracy)
    return 2.0 * information_gain(gram, leverage_regularization) / math.log1p(1.0 / rate)


def projected_excess(residual_trace: float, count: int, regularization: float) -> float:
    """Return t·log(1 + ρ/(tλ)) ≤ ρ/λ, by which log det(I + K/λ) exceeds log det(I + K̃/λ) at most, for t points.

    Of a positive semi-definite t × t matrix with a given trace, the identity's multiple has the largest log det(I + ·).
    """
    if count == 0:
        return 0.0
    return count * math.log1p(residual_trace / (count * as_positive("regularization", regularization)))


def number_of_stages(horizon: int) -> int:
    """S = ⌈½·log₂T⌉ + 1 of SupKernelUCB."""
    return math.ceil(0.5 * math.log2(as_count("horizon", horizon))) + 1


def stage_widths_bound(
    log_determinant: float, dictionary_size: float = 0.0, left_out: float = 0.0, *, regularization: float
) -> float:
    """G_s = log det(I + K_s/λ)/ln 2 + m_s + E_s/λ ≥ Σ min(σ², 1) over the rounds of a stage; exact where m_s = E_s = 0.

    Args:
        log_determinant: log det(I + K_s/λ) of the exact Gram matrix of the stage's points.
        dictionary_size: m_s.
        left_out: E_s = μ·Σp/(γ(1 + ε) − 1), or the summed residuals of the points that did not become anchors.
        regularization: λ.
    """
    return log_determinant / math.log(2.0) + dictionary_size + left_out / as_positive("regularization", regularization)


def sup_kernel_ucb_regret_bound(*, horizon: int, radius: float, widths: float) -> float:
    """R_T ≤ 2√T + 8·max(η, 1)·√(T·Σ_s G_s) for SupKernelUCB, exact or efficient, with probability 1 − δ.

    For expected rewards in [−1, 1] and the η of :class:`~kernel_bandits.StageRadius`.

    Args:
        horizon: T.
        radius: the largest η that was used.
        widths: Σ_s G_s, see :func:`stage_widths_bound`.
    """
    rounds = as_count("horizon", horizon)
    return 2.0 * math.sqrt(rounds) + 8.0 * max(radius, 1.0) * math.sqrt(rounds * widths)


def projection_error(gram: FloatArray, cross_gram: FloatArray, dictionary_gram: FloatArray) -> float:
    """Return ‖(I − P)F^{1/2}‖², the largest eigenvalue of K_SS − K_SZ K_ZZ⁻¹ K_ZS; shapes (t, t), (t, m) and (m, m)."""
    explained = cross_gram @ np.linalg.lstsq(dictionary_gram, cross_gram.T, rcond=1e-13)[0]
    return max(float(np.linalg.eigvalsh(gram - (explained + explained.T) / 2)[-1]), 0.0)


def _check_capacity(value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"capacity: expected α in [0, 1], got {value!r}.")
    return float(value)


def _check_probability(value: float) -> float:
    if not 0 < value < 1:
        raise InputError(f"failure_probability: expected a number between 0 and 1, got {value!r}.")
    return float(value)
