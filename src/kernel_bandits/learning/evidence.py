"""How well a kernel of tables explains rewards: constant, linear and smooth parts of contexts, times those of actions.

Rewards are y = c + f(s) + noise. A *block* is a set of observations that share f: all of them, or those of one arm
where arms share nothing. Its covariance is Σ = X ∘ A + λI with

    X = b + l·L + w·W + s·S(ℓ)        A = 1 + l'·L' + s'·S'(ℓ') + o'·[same action]   or   A = 1 − κ·[another arm]

where L holds inner products, W those of decorrelated columns and S a Matérn kernel of contexts, L' and S' those of
actions; o' is what an action earns of its own, whatever its features. Named arms have the correlation 1 − κ with each
other; A = 1 within an arm. The columns may be warped first, all but those of W
(:class:`~kernel_bandits.learning.columns.Warp`).

The log evidence of all blocks is the sum over blocks, at the mean c that makes it largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.learning import defaults
from kernel_bandits.learning.columns import ColumnUnits, Warp, column_factors, weight_count
from kernel_bandits.numerics.linalg import add_products, add_symmetric_outer, safe_sqrt, times, times_transpose
from kernel_bandits.numerics.packed import (
    diagonal,
    inverse_and_log_determinant,
    log_determinant_and_solution,
    pack,
    unpack,
)

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
    _smooth: dict[float, FloatArray] = field(default_factory=dict, repr=False, compare=False)

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

    def smooth(self, lengthscale: float) -> FloatArray:
        """Return the Matérn kernel of smoothness 5/2, packed; a search asks for a few lengthscales again and again."""
        known = self._smooth.get(lengthscale)
        if known is None:
            # r² = 5q/ℓ²: k = (1 + r + r²/3)·e⁻ʳ
            r = self.distances * (math.sqrt(5.0) / lengthscale)
            known = r * (1.0 / 3.0)
            known += 1.0
            known *= r
            known += 1.0
            known *= np.exp(np.negative(r, out=r), out=r)
            self._smooth[lengthscale] = known
        return known

    def slopes(self, weights: FloatArray, linear: float, smooth: float, lengthscale: float) -> FloatArray:
        """Return ∂/∂x_a Σ_b weights_ab·(linear·⟨x_a, x_b⟩/n + smooth·m(x_a, x_b)) at each point, shape (m, d)."""
        size = len(self.columns)
        if not smooth:
            return times(linear * weights, self.columns) / self.count
        # ∂m/∂q = −⁵⁄₆/ℓ²·(1 + r)·e⁻ʳ in q = ‖x − y‖²/n
        r = unpack(self.distances, size) * (math.sqrt(5.0) / lengthscale)
        by_squares = weights * ((-5.0 / 6.0 * smooth / lengthscale**2) * (1.0 + r) * np.exp(-r))
        slopes = times(linear * weights - 2.0 * by_squares, self.columns)
        slopes += 2.0 * by_squares.sum(axis=1)[:, None] * self.columns
        return slopes / self.count


@dataclass(frozen=True)
class Block:
    """Observations that share one function. Matrices are packed (:mod:`~kernel_bandits.numerics.packed`).

    Attributes:
        contexts: their similarities.
        pulls: xW for each context x, shape (m, d_x).
        decorrelated: inner products of decorrelated contexts, xWyᵀ.
        actions: similarities of described actions.
        rewards: shape (n,).
        other_arm: 1 where two observations are of different arms and 0 elsewhere, for correlated arms.
        same_action: 1 where two observations are of the same described action; None where few return.
    """

    contexts: Similarity
    pulls: FloatArray
    decorrelated: FloatArray
    actions: Similarity | None
    rewards: FloatArray
    other_arm: FloatArray | None = None
    same_action: FloatArray | None = None

    def warped(self, warp: Warp) -> Block:
        """Return the block of warped columns."""
        actions = self.actions
        if actions is not None:
            offsets = self.contexts.columns @ warp.moves.T if warp.moves.size else None
            actions = actions.warped(warp.actions, offsets)
        # what actions have of their own is of actions as they are
        same = None if warp.moves.any() else self.same_action
        return replace(self, contexts=self.contexts.warped(warp.contexts), actions=actions, same_action=same)

    def factors(self, values: FloatArray) -> tuple[FloatArray, FloatArray | None]:
        """Return X and A at exp θ, packed; None for A = 1."""
        context = values[SMOOTH] * self.contexts.smooth(values[LENGTH])
        context += values[BIAS]
        context += values[LINEAR] * self.contexts.products
        context += values[DECORRELATED] * self.decorrelated
        action = None
        if self.actions is not None:
            action = values[ACTION_SMOOTH] * self.actions.smooth(values[ACTION_LENGTH])
            action += 1.0
            action += values[ACTION_LINEAR] * self.actions.products
            if self.same_action is not None:
                action += values[ACTION_OWN] * self.same_action
        elif self.other_arm is not None:
            action = -values[CONTRAST] * self.other_arm
            action += 1.0
        return context, action

    def covariance(self, values: FloatArray) -> FloatArray:
        """Return Σ at exp θ, packed."""
        covariance, action = self.factors(values)
        if action is not None:
            covariance *= action
        covariance[diagonal(len(self.rewards))] += values[NOISE]
        return covariance

    def slopes(self, values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray | None]:
        """Return ∂f/∂x and ∂f/∂a of f = Σ_b α_b·k(·, s_b) at each observation, in warped columns.

        All but what is linear in decorrelated contexts, which are not warped (:meth:`decorrelated_slopes`).

        Args:
            values: exp θ.
            weights: α, shape (n,).
        """
        size = len(weights)
        context, action = self.factors(values)
        by_context = np.broadcast_to(weights, (size, size)) if action is None else unpack(action, size) * weights
        of_contexts = self.contexts.slopes(by_context, values[LINEAR], values[SMOOTH], values[LENGTH])
        if self.actions is None:
            return of_contexts, None
        numbers = values[ACTION_LINEAR], values[ACTION_SMOOTH], values[ACTION_LENGTH]
        return of_contexts, self.actions.slopes(unpack(context, size) * weights, *numbers)

    def relevance_slopes(self, values: FloatArray, weights: FloatArray) -> FloatArray:
        """Return by how much the log evidence rises with the logarithm of each column of contexts, then of actions.

        All but what is linear in decorrelated contexts, which are not warped.

        Args:
            values: exp θ.
            weights: α, shape (n,).
        """
        size = len(weights)
        inverse, _ = inverse_and_log_determinant(self.covariance(values), size)
        # ∂F/∂Σ = ½(ααᵀ − Σ⁻¹), and ∂Σ_ab/∂log x_j = x_aj·∂Σ_ab/∂x_aj + x_bj·∂Σ_ab/∂x_bj
        by_covariance = np.outer(weights, weights) - inverse
        context, action = self.factors(values)
        by_context = by_covariance if action is None else by_covariance * unpack(action, size)
        slopes = self.contexts.slopes(by_context, values[LINEAR], values[SMOOTH], values[LENGTH])
        of_contexts: FloatArray = (slopes * self.contexts.columns).sum(axis=0)
        if self.actions is None:
            return of_contexts
        numbers = values[ACTION_LINEAR], values[ACTION_SMOOTH], values[ACTION_LENGTH]
        slopes = self.actions.slopes(by_covariance * unpack(context, size), *numbers)
        return np.concatenate([of_contexts, (slopes * self.actions.columns).sum(axis=0)])

    def decorrelated_slopes(self, values: FloatArray, weights: FloatArray) -> FloatArray:
        """Return what the decorrelated linear part adds to ∂f/∂x, in columns that are not warped."""
        _, action = self.factors(values)
        pulled: FloatArray = (
            weights @ self.pulls if action is None else (unpack(action, len(weights)) * weights) @ self.pulls
        )
        return values[DECORRELATED] * pulled


@dataclass(frozen=True)
class Evidence:
    """The log evidence F, the mean c at which it is taken, and α = Σ⁻¹(y − c) of each block."""

    value: float
    mean: float
    weights: list[FloatArray]


def log_evidence(parameters: FloatArray, blocks: Sequence[Block], mean_precision: float) -> Evidence:
    """Return the log evidence of blocks, in O(Σn³).

    Args:
        parameters: θ, shape (6,), (7,) where arms are correlated, or (10,) where actions are described.
        blocks: the observations.
        mean_precision: of the prior of c about the mean reward 0; its exponent is part of the value.

    Raises:
        KernelBanditsError: if a covariance is not positive definite at θ.
    """
    values, log_determinants, solved = np.exp(parameters), 0.0, []
    by_rewards, by_ones = 0.0, mean_precision
    for block in blocks:
        sides = np.stack([block.rewards, np.ones(len(block.rewards))])
        log_determinant, solution = log_determinant_and_solution(block.covariance(values), sides)
        log_determinants += log_determinant
        by_rewards += float(solution[0].sum())
        by_ones += float(solution[1].sum())
        solved.append(solution)
    # c = 1ᵀΣ⁻¹y/(1ᵀΣ⁻¹1 + precision)
    mean = by_rewards / by_ones
    weights = [one - mean * other for one, other in solved]
    misfit = sum(float((block.rewards - mean) @ own) for block, own in zip(blocks, weights, strict=True))
    count = sum(len(block.rewards) for block in blocks)
    value = -0.5 * (misfit + log_determinants + count * math.log(2.0 * math.pi) + mean_precision * mean * mean)
    if not math.isfinite(value):
        raise KernelBanditsError("The evidence is not finite at these parameters.")
    return Evidence(value, mean, weights)


@dataclass(frozen=True)
class Observations:
    """A sample, in random order.

    Attributes:
        contexts: standardised, shape (n, d_x).
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

    def apart(self) -> list[Block]:
        """Return all observations, those of each arm in a block."""
        return [self._block(np.flatnonzero(self.arms == arm)) for arm in range(self.arm_count)]

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
        units, contexts = self.context_units, self.contexts[rows]
        similarity = Similarity.of(contexts, units.variables, units.labels)
        pulls = times(contexts, units.precision)
        decorrelated = pack(times_transpose(pulls, contexts))
        return Block(similarity, pulls, decorrelated, described, self.rewards[rows], same_action=same)

    def _same_action(self, rows: NDArray[np.intp]) -> FloatArray | None:
        """1 where two observations are of the same action; None where actions return too seldom to be known."""
        kinds = np.unique(self.actions[rows], axis=0, return_inverse=True)[1].reshape(-1)
        if not self.may_return or kinds.max() >= len(kinds) // defaults.PLAYS_OF_ONE_ACTION:
            return None
        return pack(np.equal.outer(kinds, kinds).astype(np.float64))
