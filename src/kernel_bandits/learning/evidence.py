"""How well a kernel explains rewards: the collapsed variational bound on the log marginal likelihood, with gradients.

Rewards are y = c + f(s) + noise with f a Gaussian process of covariance v·k, k a stationary kernel, v its output
variance, and Gaussian noise of variance λ; c is a constant mean. With inducing points Z and
Q = K_SZ K_ZZ⁻¹ K_ZS the bound (Titsias 2009) is

    F = log N(y; c, Q + λI) − trace(K − Q)/(2λ)  ≤  log N(y; c, K + λI),

with equality where Z spans S. The trace is what the inducing points leave unexplained: without it a kernel could look
good because they are poor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.spatial.distance import cdist

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import Stationary
from kernel_bandits.numerics.blas_threads import factorisation_threads
from kernel_bandits.numerics.linalg import factorise, inverse_and_log_determinant, times, times_transpose

# Added to the unit diagonal of K_ZZ/v: it keeps the factor above rounding, and F a bound, a slightly smaller one.
JITTER = 1e-9


class Evidence(NamedTuple):
    """The bound and its derivatives.

    Attributes:
        value: F, in nats.
        lengthscales: ∂F/∂log ℓ_j for each column, shape (d,); that of a lengthscale that columns share is their sum.
        variance: ∂F/∂log v.
        noise: ∂F/∂log λ.
        mean: the c at which F is taken, in the units of the reward.
    """

    value: float
    lengthscales: FloatArray
    variance: float
    noise: float
    mean: float


class _Factors(NamedTuple):
    """J = L⁻¹ with LLᵀ = K_ZZ, A = J·K_ZS/√λ of shape (m, n), B = I + AAᵀ, N = M⁻¹ with MMᵀ = B, and log det B."""

    J: FloatArray
    A: FloatArray
    B: FloatArray
    N: FloatArray
    log_determinant: float


class _Fit(NamedTuple):
    """The mean c, α = Σ⁻¹(y − c) of shape (n,), (y − c)ᵀα, and the exponent of the prior of c."""

    mean: float
    weights: FloatArray
    misfit: float
    log_prior: float


def log_evidence(
    kernel: Stationary,
    variance: float,
    noise: float,
    points: FloatArray,
    rewards: FloatArray,
    inducing: FloatArray | None = None,
    *,
    mean_precision: float | None = None,
) -> Evidence:
    """Return the collapsed bound F on the log marginal likelihood of rewards, and its gradient, in O(n·m²).

    Args:
        kernel: k, with one lengthscale per column or one for all.
        variance: v, the output variance: the prior variance of the expected reward.
        noise: λ, the noise variance.
        points: S, shape (n, d).
        rewards: y, shape (n,).
        inducing: Z, shape (m, d). None for Z = S, where F is the log marginal likelihood itself, in O(n³).
        mean_precision: None for c = 0. Otherwise c is the value that maximises F under the prior c ~ N(0, 1/precision),
            whose exponent is part of F; 0 for a flat one.
    """
    if inducing is None:
        return _exact_evidence(kernel, variance, noise, kernel.scaled(points), rewards, mean_precision)
    count = len(points)
    scaled, anchors = kernel.scaled(points), kernel.scaled(inducing)
    cross, cross_slope = kernel.value_and_slope(cdist(anchors, scaled, "sqeuclidean"))
    gram, gram_slope = kernel.value_and_slope(cdist(anchors, anchors, "sqeuclidean"))
    J, A, B, N, log_determinant = _factorise(variance, noise, cross, gram)

    # Σ⁻¹b = (b − AᵀB⁻¹Ab)/λ with Σ = Q + λI
    inverse = N.T @ N
    sides = _sides(rewards)
    fit = _fit(rewards, (sides - A.T @ (inverse @ (A @ sides))) / noise, mean_precision)
    unexplained = count * variance - noise * float(np.vdot(A, A))
    normaliser = log_determinant + count * math.log(2.0 * math.pi * noise)
    value = fit.log_prior - 0.5 * (normaliser + fit.misfit + unexplained / noise)

    # ∂F/∂K_ZS = Wα αᵀ + Jᵀ(I − B⁻¹)A/√λ with W = K_ZZ⁻¹K_ZS = √λ·JᵀA
    # ∂F/∂K_ZZ = −½(Wα (Wα)ᵀ + Jᵀ(B − 2I + B⁻¹)J)
    identity = np.eye(len(inducing))
    pull = math.sqrt(noise) * (J.T @ (A @ fit.weights))
    by_cross = times(J.T @ (identity - inverse) / math.sqrt(noise), A)
    by_cross += np.outer(pull, fit.weights)
    by_gram = -0.5 * (np.outer(pull, pull) + J.T @ (B - 2.0 * identity + inverse) @ J)

    through_kernel = float(np.vdot(by_cross, cross)) + float(np.vdot(by_gram, gram)) + JITTER * float(np.trace(by_gram))
    by_variance = variance * (through_kernel - 0.5 * count / noise)
    # ∂q/∂log ℓ_j = −2·((s_j − z_j)/ℓ_j)²
    by_cross *= cross_slope
    by_gram *= gram_slope
    spread = _weighted_squares(by_cross, anchors, scaled) + _weighted_squares(by_gram, anchors, anchors)
    # ∂F/∂λ = ½(‖α‖² − trace Σ⁻¹ + trace(K − Q)/λ²) with λ·trace Σ⁻¹ = n − m + trace B⁻¹
    free = count - len(inducing) + float(np.trace(inverse))
    by_noise = 0.5 * (noise * float(fit.weights @ fit.weights) - free + unexplained / noise)
    return Evidence(value, -2.0 * variance * spread, by_variance, by_noise, fit.mean)


def _exact_evidence(
    kernel: Stationary,
    variance: float,
    noise: float,
    scaled: FloatArray,
    rewards: FloatArray,
    mean_precision: float | None,
) -> Evidence:
    """F with Z = S, by one factorisation of Σ = K + λI instead of two and products between them."""
    gram, slope = kernel.value_and_slope(cdist(scaled, scaled, "sqeuclidean"))
    covariance = variance * gram
    covariance.flat[:: len(gram) + 1] += noise
    inverse, log_determinant = inverse_and_log_determinant(covariance)
    fit = _fit(rewards, inverse.dot(_sides(rewards)), mean_precision)
    value = fit.log_prior - 0.5 * (log_determinant + len(rewards) * math.log(2.0 * math.pi) + fit.misfit)
    # ∂F/∂Σ = ½(ααᵀ − Σ⁻¹)
    by_covariance = np.multiply.outer(fit.weights, fit.weights)
    by_covariance -= inverse
    by_covariance *= 0.5
    by_variance, by_noise = variance * float(np.vdot(by_covariance, gram)), noise * float(np.trace(by_covariance))
    by_covariance *= slope
    return Evidence(
        value, -2.0 * variance * _weighted_squares(by_covariance, scaled, scaled), by_variance, by_noise, fit.mean
    )


def log_marginal_likelihood(
    kernel: Stationary, variance: float, noise: float, points: FloatArray, rewards: FloatArray
) -> float:
    """Return the log marginal likelihood log N(y; 0, v·K + λI) by itself; arguments as for :func:`log_evidence`."""
    covariance = variance * kernel(points)
    covariance.flat[:: len(points) + 1] += noise
    log_determinant = factorise(covariance)
    whitened, _ = lapack.dtrtrs(covariance.T, rewards, lower=1)
    return -0.5 * (log_determinant + len(rewards) * math.log(2.0 * math.pi) + float(whitened @ whitened))


def _sides(rewards: FloatArray) -> FloatArray:
    """Columns y and 1, shape (n, 2)."""
    return np.stack([rewards, np.ones(len(rewards))], axis=1)


def _fit(rewards: FloatArray, solved: FloatArray, mean_precision: float | None) -> _Fit:
    """From Σ⁻¹y and Σ⁻¹1 as columns."""
    if mean_precision is None:
        return _Fit(0.0, solved[:, 0], float(rewards @ solved[:, 0]), 0.0)
    # c = 1ᵀΣ⁻¹y/(1ᵀΣ⁻¹1 + precision); F does not change with c there, so that its other derivatives ignore c
    mean = float(solved[:, 1] @ rewards) / (float(solved[:, 1].sum()) + mean_precision)
    weights = solved[:, 0] - mean * solved[:, 1]
    return _Fit(mean, weights, float((rewards - mean) @ weights), -0.5 * mean_precision * mean * mean)


def _factorise(variance: float, noise: float, cross: FloatArray, gram: FloatArray) -> _Factors:
    """From k(Z, S), shape (m, n), and k(Z, Z)."""
    covariance = variance * gram
    covariance.flat[:: len(gram) + 1] += variance * JITTER
    whitening, _ = _inverse_factor(covariance)
    features = times((variance / math.sqrt(noise)) * whitening, cross)
    capacitance = times_transpose(features, features)
    capacitance.flat[:: len(gram) + 1] += 1.0
    return _Factors(whitening, features, capacitance, *_inverse_factor(capacitance))


def _inverse_factor(symmetric: FloatArray) -> tuple[FloatArray, float]:
    """L⁻¹ with LLᵀ = S, and log det S."""
    factor = symmetric.copy()
    log_determinant = factorise(factor)
    with factorisation_threads(len(symmetric)):
        inverse, _ = lapack.dtrtri(factor.T, lower=1, overwrite_c=1)
    return np.tril(inverse), log_determinant


def _weighted_squares(weights: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Return Σ_ab weights_ab·(left_a − right_b)² column by column, shape (d,), by products of matrices.

    About the mean of the left points, so that little is lost where the columns lie far from the origin.
    """
    centre = left.mean(axis=0)
    left, right = left - centre, right - centre
    squares = weights.sum(axis=1) @ (left * left) + weights.sum(axis=0) @ (right * right)
    return squares - 2.0 * (left * times(weights, right)).sum(axis=0)
