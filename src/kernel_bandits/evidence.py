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

from kernel_bandits.arrays import FloatArray, KernelBanditsError
from kernel_bandits.kernels import Stationary
from kernel_bandits.linalg import times, times_transpose
from kernel_bandits.threads import factorisation_threads

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


def log_evidence(
    kernel: Stationary,
    variance: float,
    noise: float,
    points: FloatArray,
    rewards: FloatArray,
    inducing: FloatArray,
    *,
    mean_precision: float | None = None,
) -> Evidence:
    """The collapsed bound F on the log marginal likelihood of rewards, and its gradient, in O(n·m²).

    Args:
        kernel: k, with one lengthscale per column or one for all.
        variance: v, the output variance: the prior variance of the expected reward.
        noise: λ, the noise variance.
        points: S, shape (n, d).
        rewards: y, shape (n,).
        inducing: Z, shape (m, d).
        mean_precision: None for c = 0. Otherwise c is the value that maximises F under the prior c ~ N(0, 1/precision),
            whose exponent is part of F; 0 for a flat one.
    """
    count = len(points)
    scaled, anchors = kernel.scaled(points), kernel.scaled(inducing)
    cross, cross_slope = kernel.value_and_slope(cdist(anchors, scaled, "sqeuclidean"))
    gram, gram_slope = cross, cross_slope
    if inducing is not points:
        gram, gram_slope = kernel.value_and_slope(cdist(anchors, anchors, "sqeuclidean"))
    J, A, B, N, log_determinant = _factorise(variance, noise, cross, gram)

    # Σ⁻¹b = (b − AᵀB⁻¹Ab)/λ with Σ = Q + λI, for b = y and b = 1
    sides = np.stack([rewards, np.ones(count)], axis=1)
    inverse = N.T @ N
    solved = (sides - A.T @ (inverse @ (A @ sides))) / noise
    mean, log_prior = 0.0, 0.0
    if mean_precision is not None:
        # c = 1ᵀΣ⁻¹y/(1ᵀΣ⁻¹1 + precision); F does not change with c there, so that its other derivatives ignore c
        mean = float(solved[:, 1] @ rewards) / (float(solved[:, 1].sum()) + mean_precision)
        log_prior = -0.5 * mean_precision * mean * mean
    # α = Σ⁻¹(y − c)
    weights = solved[:, 0] - mean * solved[:, 1]
    explained = float((rewards - mean) @ weights)
    unexplained = count * variance - noise * float(np.vdot(A, A))
    normaliser = log_determinant + count * math.log(2.0 * math.pi * noise)
    value = log_prior - 0.5 * (normaliser + explained + unexplained / noise)

    # ∂F/∂K_ZS = Wα αᵀ + Jᵀ(I − B⁻¹)A/√λ with W = K_ZZ⁻¹K_ZS = √λ·JᵀA
    # ∂F/∂K_ZZ = −½(Wα (Wα)ᵀ + Jᵀ(B − 2I + B⁻¹)J)
    identity = np.eye(len(inducing))
    pull = math.sqrt(noise) * (J.T @ (A @ weights))
    by_cross = times(J.T @ (identity - inverse) / math.sqrt(noise), A)
    by_cross += np.outer(pull, weights)
    by_gram = -0.5 * (np.outer(pull, pull) + J.T @ (B - 2.0 * identity + inverse) @ J)

    through_kernel = float(np.vdot(by_cross, cross)) + float(np.vdot(by_gram, gram)) + JITTER * float(np.trace(by_gram))
    by_variance = variance * (through_kernel - 0.5 * count / noise)
    # ∂q/∂log ℓ_j = −2·((s_j − z_j)/ℓ_j)²
    by_cross *= cross_slope
    by_gram *= gram_slope
    spread = _weighted_squares(by_cross, anchors, scaled) + _weighted_squares(by_gram, anchors, anchors)
    # ∂F/∂λ = ½(‖α‖² − trace Σ⁻¹ + trace(K − Q)/λ²) with λ·trace Σ⁻¹ = n − m + trace B⁻¹
    free = count - len(inducing) + float(np.trace(inverse))
    by_noise = 0.5 * (noise * float(weights @ weights) - free + unexplained / noise)
    return Evidence(value, -2.0 * variance * spread, by_variance, by_noise, mean)


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
    with factorisation_threads(len(symmetric)):
        factor, info = lapack.dpotrf(symmetric, lower=1, clean=1)
        if info:
            raise KernelBanditsError("A matrix that must be positive definite is not; the kernel may not be one.")
        inverse, _ = lapack.dtrtri(factor, lower=1)
    return np.ascontiguousarray(inverse), 2.0 * float(np.log(np.diagonal(factor)).sum())


def _weighted_squares(weights: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Σ_ab weights_ab·(left_a − right_b)² column by column, shape (d,), by products of matrices.

    About the mean of the left points, so that little is lost where the columns lie far from the origin.
    """
    centre = left.mean(axis=0)
    left, right = left - centre, right - centre
    squares = weights.sum(axis=1) @ (left * left) + weights.sum(axis=0) @ (right * right)
    return squares - 2.0 * (left * times(weights, right)).sum(axis=0)
