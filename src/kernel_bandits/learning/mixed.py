"""Learning the mixed kernel of a table: how much of the reward is noise, constant, linear and smooth.

The fit minimises −log of the prior less the log evidence of the observations. It moves the parameters away from their
prior where the data ask for it. Everything is in units of the spread of the columns and of the rewards.

Named arms share nothing unless the evidence says that they are correlated. Often they are: where one of two offers is
right for a visitor the other is not, so what one earned says as much of the other.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.kernels import Kernel, Shear, TensorProduct
from kernel_bandits.kernels.composite import PerArm
from kernel_bandits.kernels.mixed import Mixed
from kernel_bandits.learning import defaults, evidence
from kernel_bandits.learning.columns import (
    ALIKE,
    NO_WARP,
    Columns,
    ColumnUnits,
    Warp,
    action_units,
    column_factors,
    relabelled,
    weight_count,
)
from kernel_bandits.learning.evidence import Block, Evidence, Observations, log_evidence
from kernel_bandits.learning.fit import search
from kernel_bandits.learning.prior import ARM_PRIOR, BOX_PRIOR, DESCRIBED_PRIOR, MixedPrior
from kernel_bandits.numerics.linalg import in_one_thread, times
from kernel_bandits.numerics.memory import keep_freed_arrays
from kernel_bandits.numerics.packed import inverse_and_log_determinant
from kernel_bandits.posterior.base import CURVED, FLAT, PLANE

# The median of |z| of a standard normal z.
NORMAL_MEDIAN = 0.6745
# Far above a part that is absent, and far below one that is there.
PRESENT = math.exp(0.5 * evidence.ABSENT)


@dataclass(frozen=True)
class MixedModel:
    """Rewards as mean + f(s) + noise, with f of a mixed kernel.

    Attributes:
        kernel: of joint points.
        noise: λ, in squared reward units.
        mean: c, the expected reward where nothing is known.
        parameters: θ in units of the sample.
        bonus: how many standard deviations an upper bound lies above the mean.
        contexts: units of the context columns.
        actions: units of the action columns; None where they name arms.
        is_provisional: whether only level and spread of the rewards were learned.
        evidence: the log evidence of the sample, in nats.
        warp: of the columns that the kernel compares.
        shape: what the rewards of a box show of the settings; ``CURVED`` elsewhere.
    """

    kernel: Kernel
    noise: float
    mean: float
    parameters: FloatArray
    bonus: float
    contexts: ColumnUnits
    actions: ColumnUnits | None
    is_provisional: bool
    evidence: float
    warp: Warp
    shape: int = CURVED

    @property
    def correlation(self) -> float:
        """Of what two named arms earn in one context; 0 where arms share nothing."""
        if self.actions is not None or len(self.parameters) <= evidence.CONTRAST:
            return 0.0
        return 1.0 - math.exp(self.parameters[evidence.CONTRAST])

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """The parts of the variance of a reward: noise, constant, linear, smooth, and of single actions."""
        values = np.exp(self.parameters)
        bias, linear, decorrelated, smooth = values[: evidence.LENGTH].tolist()
        # without columns nothing is linear in them
        linear = (
            linear * self.contexts.mean_square(self.warp.contexts) + decorrelated if len(self.contexts.varies) else 0.0
        )
        by_linear = by_smooth = own = 0.0
        if self.actions is not None:
            by_linear, by_smooth, own = values[evidence.ACTION_LINEAR : evidence.ACTION_LENGTH].tolist()
            by_linear *= self.actions.mean_square(self.warp.actions)
        # (b + l + s)(1 + l' + s'): what has a smooth factor is smooth, what is left with a linear one linear
        straight = linear * (1.0 + by_linear) + bias * by_linear
        parts = {
            "noise": float(values[evidence.NOISE]),
            "constant": bias,
            "linear": float(straight),
            "smooth": float((bias + linear + smooth) * (1.0 + by_linear + by_smooth) - bias - straight),
        }
        if own > PRESENT:
            parts["of single actions"] = float((bias + linear + smooth) * own)
        total = sum(parts.values())
        return tuple((name, part / total) for name, part in parts.items())

    def with_variables(self, columns: Columns, dimension: int) -> MixedModel:
        """Return the same model of columns that are divided into variables otherwise."""
        split, warp = columns.contexts, self.warp
        contexts = relabelled(warp.contexts, self.contexts.labels, columns.of(slice(0, split), dimension))
        actions = warp.actions
        if self.actions is not None:
            actions = relabelled(actions, self.actions.labels, columns.of(slice(split, dimension), dimension))
        return replace(self, warp=replace(warp, contexts=contexts, actions=actions))

    def relative_lengthscales(self, dimension: int) -> tuple[float, ...]:
        """Lengthscales over the spread of their columns, √12 standard deviations; 0 in the columns that name an arm."""
        values = np.exp(self.parameters)
        relative = np.zeros(dimension)
        split = len(self.contexts.varies)
        relative[:split] = _relative(self.contexts, values[evidence.LENGTH], self.warp.contexts)
        if self.actions is not None:
            relative[split:] = _relative(self.actions, values[evidence.ACTION_LENGTH], self.warp.actions)
        return tuple(relative.tolist())


def _by_variable(columns: FloatArray, labels: NDArray[np.intp]) -> FloatArray:
    """Return the sums of columns (d,) that belong to one variable; nothing where none has a weight of its own."""
    return np.bincount(labels, columns).astype(np.float64) if weight_count(labels) else ALIKE


def _relative(units: ColumnUnits, lengthscale: float, relevance: FloatArray) -> FloatArray:
    shrink = 1.0 / column_factors(relevance, units.labels)
    return np.where(units.varies, shrink * lengthscale * math.sqrt(units.variables / 12.0), math.inf)


def greatest_contrast(arms: int) -> float:
    """Return the largest log κ of K arms, all correlated alike: 1 − κ is −1/(K − 1) at least."""
    return math.log(1.0 + defaults.NEARLY_OPPOSITE / (arms - 1.0)) if arms > 1 else 0.0


class MixedObjective:
    """−log of the prior of θ less the log evidence of some observations.

    Args:
        observations: blocks of one kind.
        prior: of θ.
        two_valued: whether rewards have two values.
        arms: how many arms there are, where they are correlated.

    Attributes:
        blocks: the observations.
        prior: of θ.
        medians: of θ under the prior.
        low: lower bounds of θ.
        high: upper bounds of θ.
    """

    def __init__(
        self,
        observations: Sequence[Block],
        prior: MixedPrior,
        two_valued: bool,
        arms: int = 0,
    ) -> None:
        self.blocks: Sequence[Block] = observations
        self.prior: MixedPrior = prior
        self.medians: FloatArray = prior.medians(observations[0])
        self._widths = prior.widths(observations[0], two_valued)
        self.low: FloatArray = self.medians - prior.reach
        self.high: FloatArray = self.medians + prior.reach
        if two_valued:
            self.low[evidence.NOISE] = self.medians[evidence.NOISE] - defaults.LESS_NOISE
        if observations[0].other_arm is not None:
            self.high[evidence.CONTRAST] = greatest_contrast(arms)

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(len(block.rewards) for block in self.blocks)

    def warped(self, warp: Warp) -> MixedObjective:
        """Return the objective of the same observations with warped columns."""
        warped = copy.copy(self)
        warped.blocks = [block.warped(warp) for block in self.blocks]
        return warped

    def evidence(self, parameters: FloatArray) -> Evidence:
        """Return the log evidence at θ."""
        return log_evidence(parameters, self.blocks, mean_precision=1.0)

    def __call__(self, parameters: FloatArray) -> float:
        """Return the value; infinite where the evidence cannot be computed."""
        try:
            return self.penalty(parameters) - self.evidence(parameters).value
        except KernelBanditsError:
            return math.inf

    def penalty(self, parameters: FloatArray) -> float:
        """Return −log of the prior of θ, up to a constant."""
        offset = parameters - self.medians
        pull = offset / self._widths**2
        common = self.prior.signal_width**2
        # log of parts ~ N(median, diag w² + s²·11ᵀ), whose inverse is diag w⁻² − f·w⁻²(w⁻²)ᵀ with f = s²/(1 + s²·Σw⁻²)
        together = float(pull[: evidence.LENGTH].sum())
        precision = self._widths[: evidence.LENGTH] ** -2.0
        shared = common / (1.0 + common * float(precision.sum())) * together
        pull[: evidence.LENGTH] -= shared * precision
        values = np.exp(parameters)
        total = float(values[: evidence.LENGTH].sum())
        if self.blocks[0].actions is not None:
            total *= 1.0 + float(values[evidence.ACTION_LINEAR : evidence.ACTION_LENGTH].sum())
        # signal and noise together make up the variance of the rewards
        log_total = math.log(total + float(values[evidence.NOISE]))
        return 0.5 * (float(offset @ pull) + (log_total / self.prior.total_width) ** 2)

    def minimum(self, start: FloatArray, absent: Sequence[int] = ()) -> tuple[FloatArray, float]:
        """Return the best θ that a search from a start finds, and its value; without the parts that are absent."""
        start = np.clip(start, self.low, self.high)
        start[list(absent)] = evidence.ABSENT
        each = np.delete(np.eye(len(start)), list(absent), axis=0)
        return search(self, start, np.concatenate([self.signal, each]), self.low, self.high)

    @property
    def signal(self) -> FloatArray:
        """Directions in which all parts grow together, and at the expense of noise, shape (2, p)."""
        signal = np.zeros((2, len(self.medians)))
        signal[:, : evidence.LENGTH] = 1.0
        signal[1, evidence.NOISE] = -1.0
        return signal


def box_shape(objective: MixedObjective, parameters: FloatArray) -> int:
    """Return what the rewards of a box show of the settings: ``FLAT``, ``PLANE`` or ``CURVED``.

    A part of the model has to earn ½·log n nats for each of its parameters. A single reward on a peak earns nothing,
    since it might be noise; but it stands out.

    Args:
        objective: of the rewards.
        parameters: θ of the model with all parts.
    """
    price, full = 0.5 * math.log(objective.count), objective.evidence(parameters).value
    # what is absent are a part and its lengthscale, or two parts and the lengthscale of one
    for_plane, for_flat = 2.0 * price, 3.0 * price
    plane, _ = objective.minimum(parameters, [evidence.ACTION_SMOOTH])
    earned = full - objective.evidence(plane).value
    # flat rewards are a plane without slopes, and such a one explains no more
    if earned > for_flat:
        return CURVED
    flat, _ = objective.minimum(parameters, [evidence.ACTION_LINEAR, evidence.ACTION_SMOOTH])
    if full - objective.evidence(flat).value <= for_flat and not _stands_out(_surprises(objective, flat)):
        return FLAT
    return PLANE if earned <= for_plane and not _stands_out(_surprises(objective, plane)) else CURVED


def _surprises(objective: MixedObjective, parameters: FloatArray) -> FloatArray:
    """Return by how many standard deviations each reward exceeds what the others predict of it, shape (n,)."""
    values, found = np.exp(parameters), []
    for block, weights in zip(objective.blocks, objective.evidence(parameters).weights, strict=True):
        inverse, _ = inverse_and_log_determinant(block.covariance(values), len(weights))
        # without reward i, its prediction misses it by α_i/(Σ⁻¹)_ii with variance 1/(Σ⁻¹)_ii
        found.append(weights / np.sqrt(inverse.diagonal()))
    return np.concatenate(found)


def _stands_out(surprises: FloatArray) -> bool:
    """Return whether the largest of some deviations is more than chance."""
    # the largest of n standard normals is below √(2 log n) on average, and rarely one above that
    usual = float(np.median(np.abs(surprises - np.median(surprises)))) / NORMAL_MEDIAN
    return float(surprises.max() - np.median(surprises)) > usual * (math.sqrt(2.0 * math.log(len(surprises))) + 1.0)


@dataclass(frozen=True)
class _Place:
    """θ and a warp of some observations, and how good they are: the objective there, and the price of moves."""

    objective: MixedObjective
    warp: Warp
    parameters: FloatArray
    value: float


class MixedSample:
    """Observations on which a mixed kernel is fitted.

    Args:
        points: joint points, shape (n, d).
        rewards: shape (n,), not all equal.
        columns: what they are.
        arms: whether actions name arms.
        before: the model before, if there was one.
        prior: of the parameters; by default ``ARM_PRIOR`` for arms, ``BOX_PRIOR`` in a box and ``DESCRIBED_PRIOR``
            elsewhere.
        shown: further contexts, without rewards, shape (m, d_x): columns are measured on them too.
    """

    def __init__(
        self,
        points: FloatArray,
        rewards: FloatArray,
        columns: Columns,
        arms: bool,
        before: MixedModel | None,
        prior: MixedPrior | None = None,
        shown: FloatArray | None = None,
    ) -> None:
        if prior is None:
            prior = ARM_PRIOR if arms else DESCRIBED_PRIOR if columns.box is None else BOX_PRIOR
        split, dimension = columns.contexts, points.shape[1]
        self._split, self._arms, self._prior = split, arms, prior
        self._in_box = columns.box is not None
        contexts, actions = points[:, :split], points[:, split:]
        # what moves described actions is linear in the contexts as they are
        measured = contexts if shown is None else np.concatenate([shown, contexts])
        self._contexts = ColumnUnits.of_contexts(
            measured, columns.of(slice(0, split), dimension), None if before is None else before.contexts, may_bend=arms
        )
        self._actions = None if arms else action_units(actions, columns, None if before is None else before.actions)
        self._centre, self._spread = float(rewards.mean()), float(rewards.std())
        self._values = np.unique(rewards)
        self._rewards = (rewards - self._centre) / self._spread
        self._observations = Observations(
            self._contexts.standardised(contexts),
            actions,
            self._rewards,
            self._contexts,
            self._actions,
            may_return=not self._in_box,
        )

    @cached_property
    def _all_arms(self) -> Block:
        """Observations of all arms, as those of correlated arms."""
        return self._observations.together(defaults.CORRELATED_SAMPLE_SIZE)

    @property
    def _are_few(self) -> bool:
        """Whether rewards are too few to learn more of them than their level and spread."""
        return len(self._rewards) < self._prior.observations * self._observations.arm_count

    @cached_property
    def _is_two_valued(self) -> bool:
        """Whether rewards have two values, and not because the higher one is the price of a single action."""
        if len(self._values) != 2:
            return False
        return self._arms or len(np.unique(self._observations.actions[self._rewards > 0.0], axis=0)) > 1

    def fit(self, before: MixedModel | None) -> MixedModel:
        """Return the model with the best evidence and prior together, near the prior where the evidence is thin."""
        keep_freed_arrays()
        with in_one_thread():
            return self._fit(before)

    def _fit(self, before: MixedModel | None) -> MixedModel:
        objective = self._objective(self._observations.apart())
        if self._are_few:
            return self._model(_Place(objective, NO_WARP, objective.medians, 0.0))
        # from where the last fit ended, but for moves
        warp, start = self._alike, objective.medians
        if before is not None and not before.is_provisional:
            if before.warp.contexts.shape == warp.contexts.shape and before.warp.actions.shape == warp.actions.shape:
                warp = replace(before.warp, moves=warp.moves)
            known = min(len(before.parameters), len(start))
            start = np.append(before.parameters[:known], start[known:])
            if self._actions is not None and before.warp.moves.any():
                start[evidence.ACTION_OWN] = objective.medians[evidence.ACTION_OWN]
        shape = CURVED
        if self._in_box:
            shape = box_shape(objective, objective.minimum(min(objective.medians, start, key=objective))[0])
        found = self._searched(objective, warp, start)
        if self._may_correlate:
            found = self._with_correlation(found)
        found = self._with_relevance(found)
        if self._actions is not None and 0 < self._split * int(self._actions.varies.sum()) <= defaults.MOST_MOVES:
            found = self._with_moves(found, before)
        return replace(self._model(found), shape=shape)

    @property
    def _alike(self) -> Warp:
        """The warp of columns that all count alike."""
        actions = 0 if self._actions is None else weight_count(self._actions.labels)
        return Warp(np.zeros(weight_count(self._contexts.labels)), np.zeros(actions), np.empty((0, 0)))

    def _searched(self, objective: MixedObjective, warp: Warp, start: FloatArray) -> _Place:
        """Return the best place of a warp that a search from θ finds; in a box with relevance among the parameters."""
        if self._in_box:
            return self._searched_in_box(objective, warp, start)
        parameters, value = objective.warped(warp).minimum(start)
        return _Place(objective, warp, parameters, value + self._warp_price(warp))

    def _searched_in_box(self, objective: MixedObjective, warp: Warp, start: FloatArray) -> _Place:
        """Return the best θ and relevance that a search finds.

        Experiments are few, and few settings may matter far more than the others: each has to earn its weight.
        """
        count, split = len(start), len(warp.contexts)
        moving = np.flatnonzero(warp.moves)
        # moves by powers of e times as large
        numbers = np.concatenate([warp.contexts, warp.actions, np.zeros(len(moving))])
        known: dict[bytes, MixedObjective] = {}

        def warped(numbers: FloatArray) -> Warp:
            moves = warp.moves.copy()
            moves.flat[moving] *= np.exp(numbers[split + len(warp.actions) :])
            return Warp(numbers[:split], numbers[split : split + len(warp.actions)], moves)

        def value(both: FloatArray) -> float:
            of = warped(both[count:])
            key = of.flat.tobytes()
            if key not in known:
                known.clear()
                known[key] = objective.warped(of)
            return known[key](both[:count]) + self._warp_price(of)

        reach = np.full(len(numbers), self._prior.reach)
        directions = np.concatenate(
            [np.pad(objective.signal, ((0, 0), (0, len(numbers)))), np.eye(count + len(numbers))]
        )
        low, high = np.append(objective.low, -reach), np.append(objective.high, reach)
        start = np.clip(np.append(start, numbers), low, high)
        best, found = search(value, start, directions, low, high, defaults.BOX_SEARCHED)
        return _Place(objective, warped(best[count:]), best[:count], found)

    def _warp_price(self, warp: Warp) -> float:
        """Return what a warp has to earn, in nats: ½·log n for each move, and in a box for what is relevant.

        There relevance has a Cauchy prior, which holds what is nearly 0 and asks 2·log(ρ/τ) nats for what leaves: the
        price of a parameter, not of a distance.
        """
        price = self._price * np.count_nonzero(warp.moves)
        if self._in_box:
            price += float(np.log1p((warp.relevance / defaults.RELEVANCE_WIDTH) ** 2).sum())
        return price

    def _at(self, place: _Place, warp: Warp, parameters: FloatArray | None = None) -> _Place:
        """Return the place of another warp and, if given, another θ."""
        parameters = place.parameters if parameters is None else parameters
        value = place.objective.warped(warp)(parameters) + self._warp_price(warp)
        return _Place(place.objective, warp, parameters, value)

    def _with_correlation(self, found: _Place) -> _Place:
        """Return the place of correlated arms where the evidence says that they are correlated."""
        together = self._objective([self._all_arms], self._observations.arm_count)
        opposite = float(together.high[evidence.CONTRAST])
        # κ = 1, of arms that share nothing, is what the others are compared with
        contrasts = (0.0, opposite, 0.5 * opposite, defaults.ALIKE_CONTRAST)
        warped = together.warped(found.warp)
        values = [warped(np.append(found.parameters, contrast)) for contrast in contrasts]
        best = int(np.argmin(values))
        if not best:
            return found
        return self._searched(together, found.warp, np.append(found.parameters, contrasts[best]))

    def _with_relevance(self, found: _Place) -> _Place:
        """Return the place of variables that count as much as the function rises and falls in them, if it is better.

        And of what the evidence itself asks for, if that gains more than as many weights would by chance.
        """
        if self._in_box:
            return found
        before = found
        for _ in range(defaults.RELEVANCE_ROUNDS):
            best = min((self._at(found, warp) for warp in self._by_slopes(found)), key=lambda place: place.value)
            if not best.value < found.value - defaults.WORTHWHILE_NATS:
                break
            found = best
        found = self._uphill(found)
        return found if found is before else self._searched(found.objective, found.warp, found.parameters)

    def _by_slopes(self, place: _Place) -> list[Warp]:
        """Return warps by which variables count as much as the learned function rises and falls in them."""
        contexts, actions = self._slopes(place)
        relevance = [self._relevance(contexts, self._contexts, self._observations.contexts), place.warp.actions]
        if self._actions is not None and actions is not None:
            columns = self._actions.standardised(self._observations.actions)
            relevance[1] = self._relevance(actions, self._actions, columns)
        return [
            replace(place.warp, contexts=power * relevance[0], actions=power * relevance[1])
            for power in defaults.RELEVANCE_POWERS
        ]

    def _uphill(self, start: _Place) -> _Place:
        """Return the place of relevance up the steepest slope of the evidence, if it is better than by chance.

        d weights that are fitted to noise gain d/2 nats on average, with a standard deviation of √(d/2).
        """
        found = start
        for _ in range(defaults.UPHILL_STEPS):
            slopes = self._relevance_slopes(found)
            largest = float(np.abs(slopes).max(initial=0.0))
            if not (math.isfinite(largest) and largest > 0.0):
                break
            warps = [found.warp.moved(size / largest * slopes) for size in defaults.UPHILL_SIZES]
            best = min((self._at(found, warp) for warp in warps), key=lambda place: place.value)
            if not best.value < found.value - defaults.UPHILL_NATS:
                break
            found = best
        by_chance = 0.5 * len(start.warp.relevance)
        return found if found.value < start.value - by_chance - math.sqrt(by_chance) else start

    def _relevance_slopes(self, place: _Place) -> FloatArray:
        """Return by how much the log evidence rises with the relevance of each variable."""
        objective, values = place.objective.warped(place.warp), np.exp(place.parameters)
        weights = objective.evidence(place.parameters).weights
        found = [block.relevance_slopes(values, own) for block, own in zip(objective.blocks, weights, strict=True)]
        columns, split = np.sum(found, axis=0), self._split
        slopes = _by_variable(columns[:split], self._contexts.labels)
        if self._actions is None:
            return slopes
        return np.concatenate([slopes, _by_variable(columns[split:], self._actions.labels)])

    def _with_moves(self, still: _Place, before: MixedModel | None) -> _Place:
        """Return the place of actions that contexts move, if it is better by the price of its moves."""
        assert self._actions is not None
        moves, start = np.zeros((len(self._actions.labels), self._split)), still.parameters.copy()
        warp = replace(still.warp, moves=moves)
        if before is not None and before.warp.moves.shape == moves.shape and before.warp.moves.any():
            warp, start = before.warp, before.parameters.copy()
        # moves take the place of what an action has of its own
        objective = self._objective([replace(block, same_action=None) for block in self._observations.apart()])
        start[evidence.ACTION_OWN] = objective.medians[evidence.ACTION_OWN]
        found = self._searched(objective, warp, start)
        for _ in range(defaults.MOVE_ROUNDS):
            longer = found.parameters.copy()
            longer[evidence.LENGTH] += 1.0
            places = [
                self._at(found, replace(found.warp, moves=candidate), parameters)
                for candidate in self._moves(found)
                for parameters in (found.parameters, longer)
            ]
            best = min((found, *places), key=lambda place: place.value)
            if best is found:
                break
            found = self._with_relevance(self._searched(objective, best.warp, best.parameters))
        return found if found.warp.moves.any() and found.value < still.value else still

    def _slopes(self, place: _Place) -> tuple[FloatArray, FloatArray | None]:
        """Return the slopes of the learned function in standardised contexts and actions, at each observation."""
        objective, warp, values = place.objective.warped(place.warp), place.warp, np.exp(place.parameters)
        factors = column_factors(warp.contexts, self._contexts.labels)
        by_context, by_action = [], []
        for block, weights in zip(objective.blocks, objective.evidence(place.parameters).weights, strict=True):
            contexts, actions = block.slopes(values, weights)
            contexts = contexts * factors + block.decorrelated_slopes(values, weights)
            if actions is not None and self._actions is not None:
                by_action.append(actions * column_factors(warp.actions, self._actions.labels))
                if warp.moves.size:
                    # f(x, a − Mx)
                    contexts -= by_action[-1] @ warp.moves
            by_context.append(contexts)
        return np.concatenate(by_context), np.concatenate(by_action) if by_action else None

    def _relevance(self, slopes: FloatArray, units: ColumnUnits, columns: FloatArray) -> FloatArray:
        """Return ρ by the mean square of the slopes in each variable, shrunk towards 0 while observations are few.

        The diagonal of the average gradient outer product (Radhakrishnan et al. 2024).
        """
        if not weight_count(units.labels):
            return ALIKE
        squares = np.bincount(units.labels, (slopes**2).sum(axis=0) * columns.var(axis=0))
        varying = np.unique(units.labels[units.varies])
        mean = float(squares[varying].mean()) if len(varying) else 0.0
        if not (math.isfinite(mean) and mean > 0.0):
            return np.zeros(len(squares))
        share = len(slopes) / (len(slopes) + len(varying))
        return 0.5 * np.log(1.0 - share + share * squares / mean)

    def _moves(self, place: _Place) -> list[FloatArray]:
        """Return what contexts may move: the slopes in the contexts as multiples of those in the actions.

        Of f(x, a) = g(a − Mx) they are −Mᵀ times as large. Those of the largest effect, few or all, and more than that:
        where a narrow ridge is not yet seen as one, its slopes are too small.
        """
        assert self._actions is not None
        contexts, actions = self._slopes(place)
        assert actions is not None
        gram = times(actions.T, actions)
        steep = np.sqrt(gram.diagonal())[:, None]
        gram.flat[:: len(gram) + 1] += 1e-3 * float(np.trace(gram)) / len(gram) + np.finfo(float).tiny
        moves = -np.asarray(np.linalg.solve(gram, times(actions.T, contexts)), dtype=np.float64)
        moves *= np.multiply.outer(self._actions.varies, self._contexts.varies)
        if not np.isfinite(moves).all():
            return []
        effects = np.abs(moves) * steep
        sizes = np.sort(effects, axis=None)[::-1]
        counts = [2**power for power in range(math.ceil(math.log2(moves.size)) + 1)]
        largest = [np.where(effects >= sizes[min(count, moves.size) - 1], moves, 0.0) for count in counts]
        return [0.0 * moves, *(factor * some for some in largest for factor in defaults.MOVE_FACTORS)]

    def _objective(self, observations: list[Block], arms: int = 0) -> MixedObjective:
        prior = self._prior
        if self._arms and self._is_two_valued and not self._are_few:
            less = prior.two_valued_noise / max(self._observations.arm_count, 2)
            prior = replace(prior, signal=prior.signal - less)
        return MixedObjective(observations, prior, self._is_two_valued, arms)

    @property
    def _price(self) -> float:
        """What a parameter has to earn, in nats."""
        return 0.5 * math.log(len(self._rewards))

    def evidence_gained(self, found: MixedModel, before: MixedModel) -> float:
        """Return the log evidence of a model of this sample less that of the one before, on the same observations."""
        with in_one_thread():
            return self._evidence_of(found) - self._evidence_of(before)

    def _evidence_of(self, model: MixedModel) -> float:
        """Return the log evidence of a model, on the observations of all arms where they may be correlated."""
        parameters = model.parameters
        observed = self._observations.apart()
        if self._may_correlate:
            observed = [self._all_arms]
            contrast = parameters[evidence.CONTRAST] if len(parameters) > evidence.CONTRAST else 0.0
            # two arms can be more opposite than three: the model before may not have known them all
            contrast = min(contrast, greatest_contrast(self._observations.arm_count))
            parameters = np.append(parameters[: evidence.CONTRAST], contrast)
        return log_evidence(parameters, [block.warped(model.warp) for block in observed], 1.0).value

    @property
    def _may_correlate(self) -> bool:
        """Whether it is learned how arms correlate."""
        return bool(self._arms and self._split and 2 <= self._observations.arm_count <= defaults.MOST_CORRELATED_ARMS)

    def _model(self, place: _Place) -> MixedModel:
        objective, warp, parameters = place.objective.warped(place.warp), place.warp, place.parameters
        found = objective.evidence(parameters)
        square = self._spread**2
        values = np.exp(parameters)
        bias, linear, decorrelated, smooth = (values[: evidence.LENGTH] * square).tolist()
        contexts = self._contexts.kernel(
            bias, linear, smooth, float(values[evidence.LENGTH]), decorrelated=decorrelated, relevance=warp.contexts
        )
        # as for the shares: without columns nothing is linear in them
        variance = contexts.variance if self._split else bias + smooth
        kernel: Kernel
        if self._actions is None:
            kernel = PerArm(contexts, self._split)
            if len(values) > evidence.CONTRAST:
                kernel = TensorProduct(contexts, self._arm_kernel(1.0 - float(values[evidence.CONTRAST])), self._split)
        else:
            straight, curved, own, length = values[evidence.ACTION_LINEAR :].tolist()
            own = own if objective.blocks[0].same_action is not None else 0.0
            unit = 1.0 if self._split else variance
            actions = self._actions.kernel(
                unit, unit * straight, unit * curved, length, own=unit * own, relevance=warp.actions
            )
            variance *= 1.0 + straight * self._actions.mean_square(warp.actions) + curved + own
            kernel = TensorProduct(contexts, actions, self._split, self._shear(warp)) if self._split else actions
        mean = self._centre + self._spread * found.mean
        return MixedModel(
            kernel,
            float(values[evidence.NOISE] * square),
            mean,
            parameters,
            self._bonus(mean, math.sqrt(variance)),
            self._contexts,
            self._actions,
            self._are_few,
            found.value,
            warp,
        )

    def _shear(self, warp: Warp) -> Shear | None:
        """Return how contexts move actions, in the units of the data."""
        if not warp.moves.any() or self._actions is None:
            return None
        slopes = self._actions.spread[:, None] * warp.moves / self._contexts.spread
        return Shear(slopes * self._contexts.varies, self._contexts.centre)

    def _arm_kernel(self, correlation: float) -> Mixed:
        """Return the kernel of arms of which those observed have this correlation, and others none."""
        # of unit vectors ⟨a, Mb⟩ is an entry of M
        known = self._observations.actions.any(axis=0).astype(np.float64)
        metric = correlation * np.outer(known, known)
        np.fill_diagonal(metric, 1.0)
        return Mixed(0.0, 1.0, 0.0, metric=metric)

    def _bonus(self, mean: float, deviation: float) -> float:
        """Return how many prior standard deviations lie between the mean and what may be hoped for.

        ``BONUS`` or ``BOX_BONUS``, unless rewards have two values. Then the expected reward of mean c and deviation σ
        that is either the lower value or a single higher one has the higher one at c + σ²/(c − lower): rare successes
        are worth looking for. Where the signal is faint that is less than one deviation, and one is what counts.

        Zero-inflated rewards, nothing or a price, are often the least one. What an arm pays when it pays is then
        unknown until it does, and the best of K unknown arms is expected √(2·log K) deviations above the mean.
        """
        if not self._is_two_valued:
            if self._in_box:
                return defaults.BOX_BONUS
            least = int((self._rewards == self._rewards.min()).sum())
            many = max(defaults.ZERO_INFLATED_COUNT, defaults.ZERO_INFLATED_SHARE * len(self._rewards))
            if self._arms and least > many:
                return max(defaults.BONUS, math.sqrt(2.0 * math.log(self._observations.arm_count)))
            return defaults.BONUS
        lower, upper = self._values.tolist()
        hoped = max(defaults.TWO_VALUED_BONUS, deviation / max(mean - lower, 1e-3 * (upper - lower)))
        return max(defaults.LEAST_TWO_VALUED_BONUS, min(hoped, (upper - mean) / deviation))
