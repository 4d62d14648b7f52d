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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.learning.columns import weight_count
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
    """Inner products ⟨x, y⟩/n and squared distances ‖x − y‖²/n between the points of a block, both (m, m).

    Attributes:
        products: the first.
        distances: the second.
        columns: the points, standardised, shape (m, d).
        labels: the variable of each column, shape (d,).
        count: n, how many variables vary.
    """

    products: FloatArray
    distances: FloatArray
    columns: FloatArray
    labels: NDArray[np.intp]
    count: int

    @classmethod
    def of(cls, standardised: FloatArray, count: int, labels: NDArray[np.intp] | None = None) -> Similarity:
        """Those of standardised columns that stand for a number of variables; each for one of its own by default."""
        count = max(count, 1)
        products, distances = standardised @ standardised.T, cdist(standardised, standardised, "sqeuclidean")
        labels = np.arange(standardised.shape[1]) if labels is None else labels
        return cls(products / count, distances / count, standardised, labels, count)

    @property
    def weights(self) -> int:
        """How many variables may have a weight of their own."""
        return weight_count(self.labels)

    def weighted(self, relevance: FloatArray) -> Similarity:
        """Return the similarities of columns multiplied by exp(relevance) of their variable."""
        if not len(relevance):
            return self
        return Similarity.of(self.columns * np.exp(relevance)[self.labels], self.count, self.labels)

    def relevance_gradient(self, by_products: FloatArray, by_distances: FloatArray) -> FloatArray:
        """Return ∂F/∂relevance for symmetric ∂F/∂products and ∂F/∂distances, both (m, m)."""
        x = self.columns
        # ∂⟨x, y⟩/∂ρ_j = 2·x_j·y_j, and Σ_ab G_ab(x_aj − x_bj)² = 2·Σ_a x_aj²·(G1)_a − 2·x_jᵀGx_j
        linear = np.einsum("ij,ij->j", x, by_products @ x)
        smooth = 2.0 * (by_distances.sum(axis=1) @ (x * x) - np.einsum("ij,ij->j", x, by_distances @ x))
        slopes = np.zeros(self.weights)
        np.add.at(slopes, self.labels, 2.0 / self.count * (linear + smooth))
        return slopes


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

    @property
    def weights(self) -> tuple[int, int]:
        """How many variables of contexts and of actions may have a weight of their own."""
        return self.contexts.weights, 0 if self.actions is None else self.actions.weights

    def weighted(self, relevance: FloatArray) -> Block:
        """Return the block with variables multiplied by exp(relevance): those of contexts, then those of actions."""
        split = self.weights[0]
        actions = None if self.actions is None else self.actions.weighted(relevance[split:])
        return replace(self, contexts=self.contexts.weighted(relevance[:split]), actions=actions)


def box_parameters(parameters: FloatArray, settings: int) -> tuple[FloatArray, FloatArray]:
    """Return the widths w (d,) and moves M (d, d_x) of d settings; (0,) and (0, 0) where θ has neither."""
    if len(parameters) <= DESCRIBED:
        return np.empty(0), np.empty((0, 0))
    split = DESCRIBED + settings
    return np.exp(parameters[DESCRIBED:split]), parameters[split:].reshape(settings, -1)


@dataclass(frozen=True)
class BlockEvidence:
    """Log evidence F, ∂F/∂θ and, where it was asked for, ∂F/∂relevance; and the mean c at which they are taken."""

    value: float
    gradient: FloatArray
    mean: float
    relevance_gradient: FloatArray


def _smooth(distances: FloatArray, lengthscale: float) -> tuple[FloatArray, FloatArray]:
    """Return the Matérn kernel of smoothness 5/2 and its derivative in the squared distances q."""
    # r² = 5q/ℓ²: k = (1 + r + r²/3)e⁻ʳ and ∂k/∂q = −⁵⁄₆·(1 + r)e⁻ʳ/ℓ²
    squared = (5.0 / lengthscale**2) * distances
    r = np.sqrt(squared)
    decay = np.exp(-r)
    return (1.0 + r + squared / 3.0) * decay, (-5.0 / 6.0 / lengthscale**2) * (1.0 + r) * decay


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

    def by_covariance(self, misfit: FloatArray) -> FloatArray:
        """Return ∂F/∂Σ = ½(ααᵀ − Σ⁻¹) with α = Σ⁻¹(y − c)."""
        return 0.5 * (np.multiply.outer(misfit, misfit) - self.inverse)

    def gradient(self, values: FloatArray, by_covariance: FloatArray) -> FloatArray:
        """Return ∂F/∂θ."""
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
            by_length = _by_length(self.actions, self.action_slope)
            gradient[ACTION_LENGTH] = values[ACTION_SMOOTH] * np.vdot(by_action, by_length)
            if self.moved is not None:
                gradient[DESCRIBED:] = self._by_box(values, by_action, self.moved)
        if self.action is not None:
            by_covariance = by_covariance * self.action
        gradient[BIAS] = values[BIAS] * by_covariance.sum()
        gradient[LINEAR] = values[LINEAR] * np.vdot(by_covariance, self.block.contexts.products)
        gradient[DECORRELATED] = values[DECORRELATED] * np.vdot(by_covariance, self.block.decorrelated)
        gradient[SMOOTH] = values[SMOOTH] * np.vdot(by_covariance, self.context_smooth)
        by_length = _by_length(self.block.contexts, self.context_slope)
        gradient[LENGTH] = values[SMOOTH] * np.vdot(by_covariance, by_length)
        return gradient

    def _by_box(self, values: FloatArray, by_action: FloatArray, moved: FloatArray) -> FloatArray:
        """Return ∂F/∂ of log w and of M, shape (d + d·d_x,), from ∂F/∂A."""
        assert self.block.sensors is not None
        # C = −2·∂F/∂q with q = ‖a' − b'‖²
        by_distance = -2.0 * values[ACTION_SMOOTH] * by_action * self.action_slope
        # ∂F/∂a' = 2l'·Ba' − 2·Σ_b C_ab(a' − b') with B = ∂F/∂A
        by_moved = 2.0 * (values[ACTION_LINEAR] * by_action + by_distance) @ moved
        by_moved -= 2.0 * by_distance.sum(axis=1)[:, None] * moved
        # a' = (a − Mx)/w
        widths = box_parameters(self.parameters, moved.shape[1])[0]
        by_moves = -(by_moved / widths).T @ self.block.sensors
        return np.concatenate([-(moved * by_moved).sum(axis=0), by_moves.ravel()])

    def relevance_gradient(self, values: FloatArray, by_covariance: FloatArray) -> FloatArray:
        """Return ∂F/∂relevance of the variables of contexts, then of those of actions."""
        slopes, (of_contexts, of_actions) = [], self.block.weights
        if of_contexts:
            by_context = by_covariance if self.action is None else by_covariance * self.action
            by_distance = values[SMOOTH] * by_context * self.context_slope
            slopes.append(self.block.contexts.relevance_gradient(values[LINEAR] * by_context, by_distance))
        if of_actions and self.block.actions is not None:
            by_action = by_covariance * self.context
            by_distance = values[ACTION_SMOOTH] * by_action * self.action_slope
            slopes.append(self.block.actions.relevance_gradient(values[ACTION_LINEAR] * by_action, by_distance))
        return np.concatenate([*slopes, np.empty(0)])


def _by_length(similarity: Similarity, slope: FloatArray) -> FloatArray:
    """Return ∂k/∂log ℓ = −2q·∂k/∂q."""
    return -2.0 * similarity.distances * slope


def block_evidence(
    parameters: FloatArray, blocks: Sequence[Block], mean_precision: float, *, of_relevance: bool = False
) -> BlockEvidence:
    """Log evidence of blocks and its gradient, in O(Σn³).

    Args:
        parameters: θ, shape (6,), (7,) where arms are correlated, or (10,) where actions are described;
            (10 + d + d·d_x,) with the widths of d settings of a box and how d_x sensors move them.
        blocks: the observations.
        mean_precision: of the prior of c about the mean reward 0; its exponent is part of the value.
        of_relevance: whether to compute the gradient in the relevance of variables.

    Raises:
        KernelBanditsError: if a covariance is not positive definite at θ.
    """
    values = np.exp(parameters)
    parts, mean = _parts_and_mean(parameters, blocks, mean_precision)
    value, gradient = -0.5 * mean_precision * mean * mean, np.zeros(len(values))
    relevance_gradient = np.zeros(sum(blocks[0].weights) if of_relevance else 0)
    for part in parts:
        rewards = part.block.rewards - mean
        misfit = part.inverse @ rewards
        value -= 0.5 * (float(rewards @ misfit) + part.log_determinant + len(rewards) * math.log(2.0 * math.pi))
        by_covariance = part.by_covariance(misfit)
        gradient += part.gradient(values, by_covariance)
        if of_relevance:
            relevance_gradient += part.relevance_gradient(values, by_covariance)
    if not math.isfinite(value):
        raise KernelBanditsError("The evidence is not finite at these parameters.")
    return BlockEvidence(value, gradient, mean, relevance_gradient)


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
