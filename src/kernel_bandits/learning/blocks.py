"""The evidence of mixed kernels: constant, linear and smooth parts of contexts, times those of actions.

Rewards are y = c + f(s) + noise. A *block* is a set of observations that share f: all of them, or those of one arm
where arms share nothing. Its covariance is Σ = X ∘ A + λI with

    X = b + l·L + w·W + s·S(ℓ)        A = 1 + l'·L' + s'·S'(ℓ') + o'·[same action]   or   A = 1 − κ·[another arm]

where L holds inner products, W those of decorrelated columns and S a Matérn kernel of contexts, L' and S' those of
actions; o' is what an action earns of its own, whatever its features. Named arms have the correlation 1 − κ with each
other; A = 1 within an arm. In a box L' and S' may be of a' = (a − Mx)/w: each setting has a width w_j of its own, and
the sensors x move what settings a do.

The log evidence of all blocks is the sum over blocks, at the mean c that makes it largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.numerics.linalg import inverse_and_log_determinant

# θ = log of (b, l, w, s, ℓ, λ), and of (l', s', o', ℓ') where actions are described or of κ where arms are correlated.
# In a box the log of the widths w may follow, and then M row by row, which is no logarithm.
BIAS, LINEAR, DECORRELATED, SMOOTH, LENGTH, NOISE = range(6)
ACTION_LINEAR, ACTION_SMOOTH, ACTION_OWN, ACTION_LENGTH = range(6, 10)
DESCRIBED = 10
CONTRAST = 6
# The logarithm of a part that is not there.
ABSENT = -60.0


@dataclass(frozen=True)
class Similarity:
    """Inner products ⟨x, y⟩/n and squared distances ‖x − y‖²/n between the points of a block, both (n, n)."""

    products: FloatArray
    distances: FloatArray

    @classmethod
    def of(cls, standardised: FloatArray, variables: int) -> Similarity:
        """Those of standardised columns that stand for a number of variables."""
        count = max(variables, 1)
        return cls(standardised @ standardised.T / count, cdist(standardised, standardised, "sqeuclidean") / count)


@dataclass(frozen=True)
class Block:
    """Observations that share one function.

    Attributes:
        contexts: their similarities.
        decorrelated: inner products of decorrelated contexts, shape (n, n).
        actions: similarities of described actions.
        rewards: shape (n,).
        other_arm: 1 where two observations are of different arms and 0 elsewhere, shape (n, n), for correlated arms.
        same_action: 1 where two observations are of the same described action, shape (n, n); None where few return.
        settings: the columns of a box, in the units of the distances of actions, shape (n, d).
        sensors: the columns of contexts there, shape (n, d_x).
    """

    contexts: Similarity
    decorrelated: FloatArray
    actions: Similarity | None
    rewards: FloatArray
    other_arm: FloatArray | None = None
    same_action: FloatArray | None = None
    settings: FloatArray | None = None
    sensors: FloatArray | None = None

    def moved(self, parameters: FloatArray) -> FloatArray | None:
        """Return a' = (a − Mx)/w of the settings of a box, shape (n, d); None where θ has neither."""
        if self.settings is None or self.sensors is None or len(parameters) <= DESCRIBED:
            return None
        widths, moves = box_parameters(parameters, self.settings.shape[1])
        return (self.settings - self.sensors @ moves.T) / widths


def box_parameters(parameters: FloatArray, settings: int) -> tuple[FloatArray, FloatArray]:
    """Return the widths w (d,) and moves M (d, d_x) of d settings; (0,) and (0, 0) where θ has neither."""
    if len(parameters) <= DESCRIBED:
        return np.empty(0), np.empty((0, 0))
    split = DESCRIBED + settings
    return np.exp(parameters[DESCRIBED:split]), parameters[split:].reshape(settings, -1)


@dataclass(frozen=True)
class BlockEvidence:
    """Log evidence F, ∂F/∂θ, and the mean c at which they are taken."""

    value: float
    gradient: FloatArray
    mean: float


def _smooth(distances: FloatArray, lengthscale: float) -> tuple[FloatArray, FloatArray]:
    """Return the Matérn kernel of smoothness 5/2 and its derivative in log ℓ."""
    # r² = 5q/ℓ²: k = (1 + r + r²/3)e⁻ʳ and ∂k/∂log ℓ = r²(1 + r)e⁻ʳ/3
    squared = (5.0 / lengthscale**2) * distances
    r = np.sqrt(squared)
    decay = np.exp(-r)
    return (1.0 + r + squared / 3.0) * decay, squared * (1.0 + r) * decay / 3.0


@dataclass(frozen=True)
class _Parts:
    """A block at one θ: X and A with their pieces, Σ⁻¹ and log det Σ."""

    block: Block
    parameters: FloatArray
    context: FloatArray
    context_smooth: FloatArray
    context_slope: FloatArray
    action: FloatArray | None
    actions: Similarity | None
    moved: FloatArray | None
    action_smooth: FloatArray
    action_slope: FloatArray
    inverse: FloatArray
    log_determinant: float

    @classmethod
    def at(cls, block: Block, parameters: FloatArray) -> _Parts:
        values = np.exp(parameters)
        smooth, slope = _smooth(block.contexts.distances, values[LENGTH])
        context = values[BIAS] + values[LINEAR] * block.contexts.products + values[SMOOTH] * smooth
        context += values[DECORRELATED] * block.decorrelated
        action, action_smooth, action_slope = None, np.empty(0), np.empty(0)
        covariance = context.copy()
        moved = block.moved(parameters)
        actions = block.actions if moved is None else Similarity.of(moved, 1)
        if actions is not None:
            action_smooth, action_slope = _smooth(actions.distances, values[ACTION_LENGTH])
            action = 1.0 + values[ACTION_LINEAR] * actions.products + values[ACTION_SMOOTH] * action_smooth
            if block.same_action is not None:
                action += values[ACTION_OWN] * block.same_action
        elif block.other_arm is not None:
            action = 1.0 - values[CONTRAST] * block.other_arm
        if action is not None:
            covariance *= action
        covariance.flat[:: len(covariance) + 1] += values[NOISE]
        inverse, log_determinant = inverse_and_log_determinant(covariance)
        return cls(
            block,
            parameters,
            context,
            smooth,
            slope,
            action,
            actions,
            moved,
            action_smooth,
            action_slope,
            inverse,
            log_determinant,
        )

    def gradient(self, misfit: FloatArray) -> FloatArray:
        """Return ∂F/∂θ with α = Σ⁻¹(y − c)."""
        values = np.exp(self.parameters)
        # ∂F/∂Σ = ½(ααᵀ − Σ⁻¹)
        by_covariance = 0.5 * (np.multiply.outer(misfit, misfit) - self.inverse)
        gradient = np.zeros(len(values))
        gradient[NOISE] = values[NOISE] * np.trace(by_covariance)
        if self.block.other_arm is not None:
            gradient[CONTRAST] = -values[CONTRAST] * np.vdot(by_covariance * self.context, self.block.other_arm)
        if self.actions is not None:
            by_action = by_covariance * self.context
            gradient[ACTION_LINEAR] = values[ACTION_LINEAR] * np.vdot(by_action, self.actions.products)
            gradient[ACTION_SMOOTH] = values[ACTION_SMOOTH] * np.vdot(by_action, self.action_smooth)
            if self.block.same_action is not None:
                gradient[ACTION_OWN] = values[ACTION_OWN] * np.vdot(by_action, self.block.same_action)
            gradient[ACTION_LENGTH] = values[ACTION_SMOOTH] * np.vdot(by_action, self.action_slope)
            if self.moved is not None:
                gradient[DESCRIBED:] = self._by_box(values, by_action, self.actions.distances, self.moved)
        if self.action is not None:
            by_covariance = by_covariance * self.action
        gradient[BIAS] = values[BIAS] * by_covariance.sum()
        gradient[LINEAR] = values[LINEAR] * np.vdot(by_covariance, self.block.contexts.products)
        gradient[DECORRELATED] = values[DECORRELATED] * np.vdot(by_covariance, self.block.decorrelated)
        gradient[SMOOTH] = values[SMOOTH] * np.vdot(by_covariance, self.context_smooth)
        gradient[LENGTH] = values[SMOOTH] * np.vdot(by_covariance, self.context_slope)
        return gradient

    def _by_box(
        self, values: FloatArray, by_action: FloatArray, distances: FloatArray, moved: FloatArray
    ) -> FloatArray:
        """Return ∂F/∂ of log w and of M, shape (d + d·d_x,), from ∂F/∂A."""
        assert self.block.sensors is not None
        # ∂S'/∂log ℓ' = −2q·∂S'/∂q with q = ‖a' − b'‖²; at q = 0 the difference a' − b' is 0 too
        shares = np.divide(self.action_slope, distances, out=np.zeros_like(distances), where=distances > 0.0)
        by_distance = values[ACTION_SMOOTH] * by_action * shares
        # ∂F/∂a' = 2l'·Ba' − 2·Σ_b C_ab(a' − b') with B = ∂F/∂A and C = −2·∂F/∂q
        by_moved = 2.0 * (values[ACTION_LINEAR] * by_action + by_distance) @ moved
        by_moved -= 2.0 * by_distance.sum(axis=1)[:, None] * moved
        # a' = (a − Mx)/w
        widths = box_parameters(self.parameters, moved.shape[1])[0]
        by_moves = -(by_moved / widths).T @ self.block.sensors
        return np.concatenate([-(moved * by_moved).sum(axis=0), by_moves.ravel()])


def block_evidence(parameters: FloatArray, blocks: Sequence[Block], mean_precision: float) -> BlockEvidence:
    """Log evidence of blocks and its gradient, in O(Σn³).

    Args:
        parameters: θ, shape (6,), (7,) where arms are correlated, or (10,) where actions are described;
            (10 + d + d·d_x,) with the widths of d settings of a box and how d_x sensors move them.
        blocks: the observations.
        mean_precision: of the prior of c about the mean reward 0; its exponent is part of the value.

    Raises:
        KernelBanditsError: if a covariance is not positive definite at θ.
    """
    parts, mean = _parts_and_mean(parameters, blocks, mean_precision)
    value, gradient = -0.5 * mean_precision * mean * mean, np.zeros(len(parameters))
    for part in parts:
        rewards = part.block.rewards - mean
        misfit = part.inverse @ rewards
        value -= 0.5 * (float(rewards @ misfit) + part.log_determinant + len(rewards) * math.log(2.0 * math.pi))
        gradient += part.gradient(misfit)
    if not math.isfinite(value):
        raise KernelBanditsError("The evidence is not finite at these parameters.")
    return BlockEvidence(value, gradient, mean)


def surprises(parameters: FloatArray, blocks: Sequence[Block], mean_precision: float) -> list[FloatArray]:
    """Return by how many standard deviations the rewards of each block exceed what the others predict of them."""
    parts, mean = _parts_and_mean(parameters, blocks, mean_precision)
    # without reward i, its prediction misses it by α_i/(Σ⁻¹)_ii with variance 1/(Σ⁻¹)_ii
    return [part.inverse @ (part.block.rewards - mean) / np.sqrt(part.inverse.diagonal()) for part in parts]


def _parts_and_mean(
    parameters: FloatArray, blocks: Sequence[Block], mean_precision: float
) -> tuple[list[_Parts], float]:
    """Return the blocks at θ, and the mean c at which their evidence is largest."""
    parts = [_Parts.at(block, parameters) for block in blocks]
    sums = [part.inverse.sum(axis=0) for part in parts]
    # c = 1ᵀΣ⁻¹y/(1ᵀΣ⁻¹1 + precision); F is stationary in c there, so its other derivatives ignore c
    weight = sum(float(total.sum()) for total in sums) + mean_precision
    return parts, sum(float(total @ part.block.rewards) for total, part in zip(sums, parts, strict=True)) / weight
