"""Scores for rewards that are far from Gaussian: how well the others predict each reward of a sample.

Rewards of two values are exact nearly everywhere and a matter of chance near a boundary. The evidence, which knows one
noise, believes the many exact ones and takes λ for small; the function then bends to every reward that was chance. What
the mean misses of rewards left out does not rest on the shape of the noise (Rasmussen & Williams 2006, §5.4.2; Bachoc
2013 finds the same of kernels that are not the right ones). It says little where the signal is faint, though, and
nothing of the scale of the noise. Two-valued rewards are scored by the mean of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.learning.blocks import Block, BlockScore, Parts, evidence_of, gradient_of, parts_and_mean, warped
from kernel_bandits.learning.warp import Warp
from kernel_bandits.numerics.linalg import add_products, add_symmetric_outer, safe_sqrt, symmetric_times_vector


def balanced_score(
    parameters: FloatArray, blocks: Sequence[Block], mean_precision: float, *, warp: Warp | None = None
) -> BlockScore:
    """Return the mean of the log evidence and of the score of rewards left out; arguments as of ``block_evidence``."""
    values = np.exp(parameters)
    parts, mean = parts_and_mean(values, warped(blocks, warp), mean_precision)
    evidence, by_covariances = evidence_of(parts, mean, mean_precision)
    left_out = _left_out_of(parts, mean, mean_precision, by_covariances, 0.5)
    return BlockScore(0.5 * (evidence + left_out), gradient_of(values, parts, by_covariances, blocks, warp), mean)


def left_out_score(
    parameters: FloatArray, blocks: Sequence[Block], mean_precision: float, *, warp: Warp | None = None
) -> BlockScore:
    """Return −n/2·log of the mean square by which rewards differ from what all others predict, in O(Σn³).

    That is the log likelihood of these errors at their best variance: it compares with the evidence in nats, but says
    nothing of the scale of the kernel, only of λ and of the parts relative to each other.

    Args:
        parameters: as for ``block_evidence``.
        blocks: the observations.
        mean_precision: of the prior of c, which the others predict too.
        warp: of their columns; the gradient then goes on with its numbers. None for none.

    Raises:
        KernelBanditsError: if a covariance is not positive definite at θ, or nothing is missed.
    """
    values = np.exp(parameters)
    parts, mean = parts_and_mean(values, warped(blocks, warp), mean_precision)
    by_covariances = [np.zeros_like(part.inverse) for part in parts]
    value = _left_out_of(parts, mean, mean_precision, by_covariances, 1.0)
    return BlockScore(value, gradient_of(values, parts, by_covariances, blocks, warp), mean)


def _left_out_of(
    parts: Sequence[Parts], mean: float, mean_precision: float, by_covariances: Sequence[FloatArray], share: float
) -> float:
    """Return the score F of blocks at one θ.

    Args:
        parts: the blocks there.
        mean: c.
        mean_precision: of its prior.
        by_covariances: upper triangles G, which become (1 − share)·G + share·∂F/∂Σ in place.
        share: as said.
    """
    sums = [part.inverse.sum(axis=0) for part in parts]
    weight = sum(float(total.sum()) for total in sums) + mean_precision
    # With c integrated out P = (Σ + 11ᵀ/precision)⁻¹ = Σ⁻¹ − uuᵀ/w, u = Σ⁻¹1 and w = 1ᵀu + precision. Without reward i
    # its prediction misses it by e_i = (Py)_i/P_ii, and Py = Σ⁻¹(y − c).
    misfits = [symmetric_times_vector(part.inverse, part.block.rewards - mean) for part in parts]
    diagonals = [part.inverse.diagonal() - total * total / weight for part, total in zip(parts, sums, strict=True)]
    errors = [misfit / diagonal for misfit, diagonal in zip(misfits, diagonals, strict=True)]
    count, square = sum(map(len, errors)), sum(float(error @ error) for error in errors)
    if not (math.isfinite(square) and square > 0.0):
        raise KernelBanditsError("The errors of rewards left out are not positive and finite at these parameters.")
    # ½·d Σe² = Σ g·d(Py) − Σ h·dP_ii with g = e/P_ii and h = e²/P_ii, and dP = −P·dΣ·P: by Σ it is
    # P·diag(h)·P less the symmetric part of (Pg)(Py)ᵀ
    ratios = [error / diagonal for error, diagonal in zip(errors, diagonals, strict=True)]
    weights = [error * ratio for error, ratio in zip(errors, ratios, strict=True)]
    across = sum(float(total @ ratio) for total, ratio in zip(sums, ratios, strict=True)) / weight
    among = sum(float(total * total @ one) for total, one in zip(sums, weights, strict=True)) / weight
    # F = −n/2·log(Σe²/n)
    scale = -share * count / square
    for part, total, misfit, ratio, one, by_covariance in zip(
        parts, sums, misfits, ratios, weights, by_covariances, strict=True
    ):
        # P·diag(h)·P = Σ⁻¹HΣ⁻¹ − (vuᵀ + uvᵀ)/w + uuᵀ·(uᵀHu)/w² with v = Σ⁻¹Hu
        shared = (symmetric_times_vector(part.inverse, one * total) - (0.5 * among) * total) / weight
        crossed = 0.5 * (symmetric_times_vector(part.inverse, ratio) - across * total)
        add_products(by_covariance, part.inverse * safe_sqrt(one), scale, keep=1.0 - share)
        add_symmetric_outer(by_covariance, shared, total, -scale)
        add_symmetric_outer(by_covariance, crossed, misfit, -scale)
    return -0.5 * count * (math.log(square / count) + 1.0 + math.log(2.0 * math.pi))
