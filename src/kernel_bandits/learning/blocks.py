"""How well a mixed kernel explains rewards: constant, linear and smooth parts of contexts, times those of actions.

Rewards are y = c + f(s) + noise. A *block* is a set of observations that share f: all of them, or those of one arm
where arms share nothing. Its covariance is Σ = X ∘ A + λI with

    X = b + l·L + w·W + s·S(ℓ)        A = 1 + l'·L' + s'·S'(ℓ') + o'·[same action]   or   A = 1 − κ·[another arm]

where L holds inner products, W those of decorrelated columns and S a Matérn kernel of contexts, L' and S' those of
actions; o' is what an action earns of its own, whatever its features. Named arms have the correlation 1 − κ with each
other; A = 1 within an arm. The columns may be warped first, all but those of W
(:class:`~kernel_bandits.learning.columns.Warp`).

The log evidence of all blocks is the sum over blocks, at the mean c that makes it largest.

Rewards of two values are far from Gaussian: exact nearly everywhere, and a matter of chance near a boundary. The
evidence, which knows one noise, believes the many exact ones and takes λ for small; the function then bends to every
reward that was chance. How well the others predict each reward of a sample does not rest on the shape of the noise
(Rasmussen & Williams 2006, §5.4.2; Bachoc 2013 finds the same of kernels that are not the right ones). It says little
where the signal is faint, though, and nothing of the scale of the noise. Two-valued rewards are scored by the mean of
both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.learning import defaults
from kernel_bandits.learning.columns import ColumnUnits, Warp, WarpSizes, column_factors, weight_count
from kernel_bandits.numerics.linalg import (
    add_products,
    add_symmetric_outer,
    inner,
    safe_sqrt,
    symmetric_times_vector,
    times,
    times_transpose,
)
from kernel_bandits.numerics.packed import diagonal, inverse_and_log_determinant, pack, unpack

# θ = log of (b, l, w, s, ℓ, λ), and of (l', s', o', ℓ') where actions are described or of κ where arms are correlated.
BIAS, LINEAR, DECORRELATED, SMOOTH, LENGTH, NOISE = range(6)
ACTION_LINEAR, ACTION_SMOOTH, ACTION_OWN, ACTION_LENGTH = range(6, 10)
CONTRAST = 6
# The logarithm of a part that is not there.
ABSENT = -60.0


@dataclass(frozen=True)
class Similarity:
    """Inner products ⟨x, y⟩/n and distances ‖x − y‖/√n between the points of a block, both packed.

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
        count, size = max(count, 1), len(standardised)
        half_squares = np.zeros((size, size))
        add_products(half_squares, standardised, 1.0 / count)
        products = pack(half_squares)
        # ‖x − y‖² = ‖x‖² + ‖y‖² − 2⟨x, y⟩. Columns lie about their centre, so that little is lost; a small error of a
        # squared distance is one of the kernel, which is smooth in it.
        norms = half_squares.diagonal().copy()
        add_symmetric_outer(half_squares, norms, np.ones(size), -0.5)
        distances = pack(half_squares)
        distances *= -2.0
        distances[diagonal(size)] = 0.0
        distances = safe_sqrt(distances)
        labels = np.arange(standardised.shape[1]) if labels is None else labels
        return cls(products, distances, standardised, labels, count)

    @property
    def weights(self) -> int:
        """How many variables may have a weight of their own."""
        return weight_count(self.labels)

    def warped(self, relevance: FloatArray, offsets: FloatArray | None = None) -> Similarity:
        """Return the similarities of (columns − offsets)·exp(relevance of their variable)."""
        if not len(relevance) and offsets is None:
            return self
        columns = self.columns if offsets is None else self.columns - offsets
        return Similarity.of(columns * column_factors(relevance, self.labels), self.count, self.labels)

    def column_gradient(self, by_products: FloatArray, by_squares: FloatArray) -> FloatArray:
        """Return ∂F/∂columns, shape (m, d), from ∂F/∂ of each entry of the products and of the squared distances."""
        # ∂/∂x_a of Σ_{a ≤ b} B_ab⟨x_a, x_b⟩ is Σ_b B_ab·x_b with B_aa twice, that of Σ_{a < b} C_ab‖x_a − x_b‖² is
        # 2·Σ_b C_ab(x_a − x_b), whatever C_aa
        size = len(self.columns)
        both = by_products - 2.0 * by_squares
        both[diagonal(size)] += by_products[diagonal(size)]
        by_columns = times(unpack(both, size), self.columns)
        by_columns += 2.0 * unpack(by_squares, size).sum(axis=1)[:, None] * self.columns
        return by_columns / self.count

    def relevance_gradient(self, by_columns: FloatArray) -> FloatArray:
        """Return ∂F/∂relevance of each variable from ∂F/∂columns, of columns that are warped."""
        slopes = np.zeros(self.weights)
        np.add.at(slopes, self.labels, np.einsum("ij,ij->j", self.columns, by_columns))
        return slopes


@dataclass(frozen=True)
class Block:
    """Observations that share one function. Matrices are packed (:mod:`~kernel_bandits.numerics.packed`).

    Attributes:
        contexts: their similarities.
        decorrelated: inner products of decorrelated contexts.
        actions: similarities of described actions.
        rewards: shape (n,).
        other_arm: 1 where two observations are of different arms and 0 elsewhere, for correlated arms.
        same_action: 1 where two observations are of the same described action; None where few return.
        movable: whether contexts may move what actions do.
    """

    contexts: Similarity
    decorrelated: FloatArray
    actions: Similarity | None
    rewards: FloatArray
    other_arm: FloatArray | None = None
    same_action: FloatArray | None = None
    movable: bool = False

    @property
    def warp_sizes(self) -> WarpSizes:
        """How much of a warp there is to learn."""
        if self.actions is None:
            return WarpSizes(self.contexts.weights, 0, (0, 0))
        shape = (len(self.actions.labels), len(self.contexts.labels))
        return WarpSizes(self.contexts.weights, self.actions.weights, shape if self.movable and all(shape) else (0, 0))

    def warped(self, warp: Warp) -> Block:
        """Return the block of warped columns."""
        actions = self.actions
        if actions is not None:
            offsets = self.contexts.columns @ warp.moves.T if warp.moves.size else None
            actions = actions.warped(warp.actions, offsets)
        return replace(self, contexts=self.contexts.warped(warp.contexts), actions=actions)


@dataclass(frozen=True)
class BlockScore:
    """A score F such as the log evidence, its gradient in θ and in the numbers of a warp if any, and the mean c."""

    value: float
    gradient: FloatArray
    mean: float


class _Smooth(NamedTuple):
    """The Matérn kernel k of smoothness 5/2, all packed.

    Attributes:
        kernel: k.
        slope: (1 + r)·e⁻ʳ, of which ∂k/∂q is −⁵⁄₆/ℓ² times as much, in the squared distances q.
        by_length: ∂k/∂log ℓ.
    """

    kernel: FloatArray
    slope: FloatArray
    by_length: FloatArray

    @classmethod
    def at(cls, distances: FloatArray, lengthscale: float) -> _Smooth:
        # r² = 5q/ℓ²: k = (1 + r + r²/3)·e⁻ʳ and ∂k/∂log ℓ = −2q·∂k/∂q = r²/3·(1 + r)·e⁻ʳ
        negated = distances * (-math.sqrt(5.0) / lengthscale)
        decay = np.exp(negated)
        slope = np.subtract(1.0, negated)
        slope *= decay
        third = np.square(negated, out=negated)
        third *= 1.0 / 3.0
        decay *= third
        decay += slope
        third *= slope
        return cls(decay, slope, third)

    def by_squares(self, by_kernel: FloatArray, lengthscale: float) -> FloatArray:
        """Return ∂F/∂q from ∂F/∂k."""
        by_squares = by_kernel * self.slope
        by_squares *= -5.0 / 6.0 / lengthscale**2
        return by_squares


@dataclass(frozen=True)
class Parts:
    """A block at one θ: X and A with their pieces, packed, the full Σ⁻¹ and log det Σ."""

    block: Block
    context: FloatArray
    context_smooth: _Smooth
    action: FloatArray | None
    action_smooth: _Smooth | None
    inverse: FloatArray
    log_determinant: float

    @classmethod
    def at(cls, block: Block, values: FloatArray) -> Parts:
        smooth = _Smooth.at(block.contexts.distances, values[LENGTH])
        context = values[SMOOTH] * smooth.kernel
        context += values[BIAS]
        context += values[LINEAR] * block.contexts.products
        context += values[DECORRELATED] * block.decorrelated
        action, action_smooth = None, None
        if block.actions is not None:
            action_smooth = _Smooth.at(block.actions.distances, values[ACTION_LENGTH])
            action = values[ACTION_SMOOTH] * action_smooth.kernel
            action += 1.0
            action += values[ACTION_LINEAR] * block.actions.products
            if block.same_action is not None:
                action += values[ACTION_OWN] * block.same_action
        elif block.other_arm is not None:
            action = -values[CONTRAST] * block.other_arm
            action += 1.0
        covariance = context.copy() if action is None else context * action
        size = len(block.rewards)
        covariance[diagonal(size)] += values[NOISE]
        inverse, log_determinant = inverse_and_log_determinant(covariance, size)
        return cls(block, context, smooth, action, action_smooth, inverse, log_determinant)

    def by_covariance(self, misfit: FloatArray) -> FloatArray:
        """Return the upper triangle of ∂F/∂Σ = ½(ααᵀ − Σ⁻¹) with α = Σ⁻¹(y − c)."""
        by_covariance = -0.5 * self.inverse
        add_symmetric_outer(by_covariance, misfit, misfit, 0.25)
        return by_covariance

    def gradient(self, values: FloatArray, by_entry: FloatArray) -> FloatArray:
        """Return ∂F/∂θ from ∂F/∂ of each entry of Σ."""
        gradient = np.zeros(len(values))
        gradient[NOISE] = values[NOISE] * by_entry[diagonal(len(self.block.rewards))].sum()
        if self.block.other_arm is not None:
            gradient[CONTRAST] = -values[CONTRAST] * inner(by_entry * self.context, self.block.other_arm)
        if self.block.actions is not None and self.action_smooth is not None:
            by_action = by_entry * self.context
            gradient[ACTION_LINEAR] = values[ACTION_LINEAR] * inner(by_action, self.block.actions.products)
            gradient[ACTION_SMOOTH] = values[ACTION_SMOOTH] * inner(by_action, self.action_smooth.kernel)
            if self.block.same_action is not None:
                gradient[ACTION_OWN] = values[ACTION_OWN] * inner(by_action, self.block.same_action)
            gradient[ACTION_LENGTH] = values[ACTION_SMOOTH] * inner(by_action, self.action_smooth.by_length)
        by_context = by_entry if self.action is None else by_entry * self.action
        gradient[BIAS] = values[BIAS] * by_context.sum()
        gradient[LINEAR] = values[LINEAR] * inner(by_context, self.block.contexts.products)
        gradient[DECORRELATED] = values[DECORRELATED] * inner(by_context, self.block.decorrelated)
        gradient[SMOOTH] = values[SMOOTH] * inner(by_context, self.context_smooth.kernel)
        gradient[LENGTH] = values[SMOOTH] * inner(by_context, self.context_smooth.by_length)
        return gradient

    def warp_gradient(self, values: FloatArray, by_entry: FloatArray, block: Block, warp: Warp) -> FloatArray:
        """Return ∂F/∂(ρ, ρ', M) in one row; the block is the one before it was warped."""
        sizes, slopes = block.warp_sizes, []
        if sizes.contexts:
            by_context = by_entry if self.action is None else by_entry * self.action
            by_squares = self.context_smooth.by_squares(values[SMOOTH] * by_context, values[LENGTH])
            contexts = self.block.contexts
            slopes.append(
                contexts.relevance_gradient(contexts.column_gradient(values[LINEAR] * by_context, by_squares))
            )
        actions = self.block.actions
        if actions is not None and self.action_smooth is not None and sizes.total > sizes.contexts:
            by_action = by_entry * self.context
            by_squares = self.action_smooth.by_squares(values[ACTION_SMOOTH] * by_action, values[ACTION_LENGTH])
            by_columns = actions.column_gradient(values[ACTION_LINEAR] * by_action, by_squares)
            if sizes.actions:
                slopes.append(actions.relevance_gradient(by_columns))
            if warp.moves.size:
                # a' = (a − Mx)·exp ρ'
                factors = column_factors(warp.actions, actions.labels)
                slopes.append(-((by_columns * factors).T @ block.contexts.columns).ravel())
        return np.concatenate([*slopes, np.empty(0)])


def block_evidence(
    parameters: FloatArray, blocks: Sequence[Block], mean_precision: float, *, warp: Warp | None = None
) -> BlockScore:
    """Log evidence of blocks and its gradient, in O(Σn³).

    Args:
        parameters: θ, shape (6,), (7,) where arms are correlated, or (10,) where actions are described.
        blocks: the observations.
        mean_precision: of the prior of c about the mean reward 0; its exponent is part of the value.
        warp: of their columns; the gradient then goes on with its numbers. None for none.

    Raises:
        KernelBanditsError: if a covariance is not positive definite at θ.
    """
    values = np.exp(parameters)
    parts, mean = parts_and_mean(values, warped(blocks, warp), mean_precision)
    value, by_covariances = evidence_of(parts, mean, mean_precision)
    return BlockScore(value, gradient_of(values, parts, by_covariances, blocks, warp), mean)


def warped(blocks: Sequence[Block], warp: Warp | None) -> Sequence[Block]:
    """Return the blocks of warped columns."""
    return blocks if warp is None else [block.warped(warp) for block in blocks]


def evidence_of(parts: Sequence[Parts], mean: float, mean_precision: float) -> tuple[float, list[FloatArray]]:
    """Return the log evidence F of blocks at one θ, and the upper triangle of ∂F/∂Σ of each."""
    value, by_covariances = -0.5 * mean_precision * mean * mean, []
    for part in parts:
        rewards = part.block.rewards - mean
        misfit = symmetric_times_vector(part.inverse, rewards)
        value -= 0.5 * (float(rewards @ misfit) + part.log_determinant + len(rewards) * math.log(2.0 * math.pi))
        by_covariances.append(part.by_covariance(misfit))
    if not math.isfinite(value):
        raise KernelBanditsError("The evidence is not finite at these parameters.")
    return value, by_covariances


def gradient_of(
    values: FloatArray,
    parts: Sequence[Parts],
    by_covariances: Sequence[FloatArray],
    blocks: Sequence[Block],
    warp: Warp | None,
) -> FloatArray:
    """Return ∂F/∂θ, followed by ∂F/∂(ρ, ρ', M) if there is a warp, from ∂F/∂Σ of each block.

    Args:
        values: exp θ.
        parts: the warped blocks there.
        by_covariances: the upper triangles of ∂F/∂Σ, shape (n, n) each.
        blocks: the observations before they were warped.
        warp: of their columns.
    """
    gradient = np.zeros(len(values))
    warp_gradient = np.zeros(0 if warp is None else blocks[0].warp_sizes.total)
    for part, by_covariance, block in zip(parts, by_covariances, blocks, strict=True):
        # each entry beside the diagonal stands for two
        by_entry = pack(by_covariance)
        by_entry *= 2.0
        by_entry[diagonal(len(by_covariance))] *= 0.5
        gradient += part.gradient(values, by_entry)
        if warp is not None:
            warp_gradient += part.warp_gradient(values, by_entry, block, warp)
    return np.append(gradient, warp_gradient)


def surprises(parameters: FloatArray, blocks: Sequence[Block], mean_precision: float) -> list[FloatArray]:
    """Return by how many standard deviations the rewards of each block exceed what the others predict of them."""
    parts, mean = parts_and_mean(np.exp(parameters), blocks, mean_precision)
    # without reward i, its prediction misses it by α_i/(Σ⁻¹)_ii with variance 1/(Σ⁻¹)_ii
    return [
        symmetric_times_vector(part.inverse, part.block.rewards - mean) / np.sqrt(part.inverse.diagonal())
        for part in parts
    ]


def parts_and_mean(values: FloatArray, blocks: Sequence[Block], mean_precision: float) -> tuple[list[Parts], float]:
    """Return the blocks at exp θ, and the mean c at which their evidence is largest."""
    parts = [Parts.at(block, values) for block in blocks]
    sums = [part.inverse.sum(axis=0) for part in parts]
    # c = 1ᵀΣ⁻¹y/(1ᵀΣ⁻¹1 + precision); F is stationary in c there, so its other derivatives ignore c
    weight = sum(float(total.sum()) for total in sums) + mean_precision
    return parts, sum(float(total @ part.block.rewards) for total, part in zip(sums, parts, strict=True)) / weight


@dataclass(frozen=True)
class Observations:
    """A sample, in random order.

    Attributes:
        contexts: shape (n, d_x).
        actions: shape (n, d_a).
        rewards: in units of their spread, about their mean, shape (n,).
        context_units: of the context columns.
        action_units: of the action columns; None where they name arms.
        may_return: whether described actions may have something of their own.
    """

    contexts: FloatArray
    actions: FloatArray
    rewards: FloatArray
    context_units: ColumnUnits
    action_units: ColumnUnits | None
    may_return: bool

    @cached_property
    def arms(self) -> NDArray[np.intp]:
        """The arm of each observation, numbered from 0, shape (n,); all are of one where actions are described."""
        if self.action_units is not None:
            return np.zeros(len(self.actions), dtype=np.intp)
        return np.unique(self.actions, axis=0, return_inverse=True)[1].reshape(-1)

    @cached_property
    def arm_count(self) -> int:
        """How many arms there are."""
        return int(self.arms.max()) + 1

    def apart(self, size: int) -> list[Block]:
        """Return the first observations, those of each arm in a block."""
        arms = self.arms[:size]
        return [self._block(np.flatnonzero(arms == arm)) for arm in np.unique(arms)]

    def together(self, size: int) -> Block:
        """Return the first observations as those of correlated arms."""
        arms = self.arms[:size]
        return replace(self._block(np.arange(len(arms))), other_arm=pack((arms[:, None] != arms).astype(np.float64)))

    def _block(self, rows: NDArray[np.intp]) -> Block:
        """Return some observations of one arm, or of described actions."""
        described = same = None
        units = self.action_units
        if units is not None:
            described = Similarity.of(units.standardised(self.actions[rows]), units.variables, units.labels)
            same = self._same_action(rows)
        units = self.context_units
        contexts = units.standardised(self.contexts[rows])
        similarity = Similarity.of(contexts, units.variables, units.labels)
        decorrelated = pack(times_transpose(times(contexts, units.precision), contexts))
        return Block(similarity, decorrelated, described, self.rewards[rows], same_action=same)

    def _same_action(self, rows: NDArray[np.intp]) -> FloatArray | None:
        """1 where two observations are of the same action; None where actions return too seldom to be known."""
        kinds = np.unique(self.actions[rows], axis=0, return_inverse=True)[1].reshape(-1)
        if not self.may_return or kinds.max() >= len(kinds) // defaults.PLAYS_OF_ONE_ACTION:
            return None
        return pack(np.equal.outer(kinds, kinds).astype(np.float64))
