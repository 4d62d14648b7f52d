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

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.kernels import Kernel, Shear, TensorProduct
from kernel_bandits.kernels.mixed import Mixed, PerArm
from kernel_bandits.learning import blocks, defaults
from kernel_bandits.learning.blocks import (
    Block,
    BlockScore,
    Observations,
    block_evidence,
    surprises,
)
from kernel_bandits.learning.columns import (
    NO_WARP,
    Columns,
    ColumnUnits,
    Warp,
    action_units,
    column_factors,
    relabelled,
)
from kernel_bandits.learning.fit import descend
from kernel_bandits.learning.prior import ARM_PRIOR, BOX_PRIOR, DESCRIBED_PRIOR, MixedPrior
from kernel_bandits.numerics.linalg import in_one_thread
from kernel_bandits.numerics.memory import keep_freed_arrays

# What rewards show of the settings of a box: nothing, a plane, or more than that.
FLAT, PLANE, CURVED = range(3)
# The median of |z| of a standard normal z.
NORMAL_MEDIAN = 0.6745
# Far above a part that is absent, and far below one that is there.
PRESENT = math.exp(0.5 * blocks.ABSENT)
# The value of an objective where there is none.
IMPOSSIBLE = 1e12


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
        if self.actions is not None or len(self.parameters) <= blocks.CONTRAST:
            return 0.0
        return 1.0 - math.exp(self.parameters[blocks.CONTRAST])

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """The parts of the variance of a reward: noise, constant, linear, smooth, and of single actions."""
        values = np.exp(self.parameters)
        bias, linear, decorrelated, smooth = values[: blocks.LENGTH].tolist()
        # without columns nothing is linear in them
        linear = (
            linear * self.contexts.mean_square(self.warp.contexts) + decorrelated if len(self.contexts.varies) else 0.0
        )
        by_linear = by_smooth = own = 0.0
        if self.actions is not None:
            by_linear, by_smooth, own = values[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH].tolist()
            by_linear *= self.actions.mean_square(self.warp.actions)
        # (b + l + s)(1 + l' + s'): what has a smooth factor is smooth, what is left with a linear one linear
        straight = linear * (1.0 + by_linear) + bias * by_linear
        parts = {
            "noise": float(values[blocks.NOISE]),
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
        relative[:split] = _relative(self.contexts, values[blocks.LENGTH], self.warp.contexts)
        if self.actions is not None:
            relative[split:] = _relative(self.actions, values[blocks.ACTION_LENGTH], self.warp.actions)
        return tuple(relative.tolist())


def _relative(units: ColumnUnits, lengthscale: float, relevance: FloatArray) -> FloatArray:
    shrink = 1.0 / column_factors(relevance, units.labels)
    return np.where(units.varies, shrink * lengthscale * math.sqrt(units.variables / 12.0), math.inf)


def greatest_contrast(arms: int) -> float:
    """Return the largest log κ of K arms, all correlated alike: 1 − κ is −1/(K − 1) at least."""
    return math.log(1.0 + defaults.NEARLY_OPPOSITE / (arms - 1.0)) if arms > 1 else 0.0


class MixedObjective:
    """The objective over θ on some observations.

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
        self.blocks, self.prior = observations, prior
        self.medians = prior.medians(observations[0])
        self._widths = prior.widths(observations[0], two_valued)
        self.low, self.high = self.medians - prior.reach, self.medians + prior.reach
        if observations[0].other_arm is not None:
            self.high[blocks.CONTRAST] = greatest_contrast(arms)

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(len(block.rewards) for block in self.blocks)

    def warped(self, warp: Warp) -> MixedObjective:
        """Return the objective of the same observations with warped columns."""
        warped = copy.copy(self)
        warped.blocks = [block.warped(warp) for block in self.blocks]
        return warped

    def evidence(self, parameters: FloatArray) -> BlockScore:
        """Return the log evidence at θ."""
        return block_evidence(parameters, self.blocks, mean_precision=1.0)

    def surprises(self, parameters: FloatArray) -> FloatArray:
        """Return by how many standard deviations each reward exceeds what the others predict of it, shape (n,)."""
        return np.concatenate(surprises(parameters, self.blocks, mean_precision=1.0))

    def __call__(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and its gradient; a large value where the score cannot be computed."""
        try:
            score = block_evidence(parameters, self.blocks, mean_precision=1.0)
        except KernelBanditsError:
            return IMPOSSIBLE, np.zeros(len(parameters))
        penalty, gradient = self.penalty(parameters)
        return penalty - score.value, gradient - score.gradient

    def penalty(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return −log of the prior of θ, up to a constant, and its gradient."""
        offset = parameters - self.medians
        pull = offset / self._widths**2
        common = self.prior.signal_width**2
        # log of parts ~ N(median, diag w² + s²·11ᵀ), whose inverse is diag w⁻² − f·w⁻²(w⁻²)ᵀ with f = s²/(1 + s²·Σw⁻²)
        together = float(pull[: blocks.LENGTH].sum())
        precision = self._widths[: blocks.LENGTH] ** -2.0
        shared = common / (1.0 + common * float(precision.sum())) * together
        pull[: blocks.LENGTH] -= shared * precision
        total, slope = self._log_total(parameters)
        width = self.prior.total_width
        penalty = 0.5 * (float(offset @ pull) + (total / width) ** 2)
        return penalty, pull + total / width**2 * slope

    def _log_total(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return the log of signal plus noise, in units of the variance of the rewards, and its gradient."""
        values = np.exp(parameters)
        parts, factor = values[: blocks.LENGTH], 1.0
        gradient = np.zeros(len(values))
        if self.blocks[0].actions is not None:
            factors = values[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH]
            factor = 1.0 + float(factors.sum())
            gradient[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH] = parts.sum() * factors
        gradient[: blocks.LENGTH] = factor * parts
        gradient[blocks.NOISE] = values[blocks.NOISE]
        total = factor * float(parts.sum()) + float(values[blocks.NOISE])
        return math.log(total), gradient / total

    def minimum(self, starts: Sequence[FloatArray], absent: Sequence[int] = ()) -> tuple[FloatArray, float]:
        """Return the best θ found from the best of some starts, and its value; without the parts that are absent."""
        low, high = self.low.copy(), self.high.copy()
        low[list(absent)] = high[list(absent)] = blocks.ABSENT
        return descend(self, starts, low, high, self.prior.iterations, self.count, self.prior.tolerance)


class WarpObjective:
    """The objective over θ and a warp: each number of it has to be paid for by the evidence.

    A variable of relevance ρ is multiplied by exp ρ in the linear and in the smooth part: what does not matter for one
    does not matter for the other either. The priors of ρ and of moves are Cauchy distributions. They hold what is
    nearly 0 there, as normal ones do, and ask 2·log(ρ/τ) nats for a number that leaves, however far: the price of a
    parameter, not of a distance.

    Args:
        objective: over θ, of columns that are not warped.
    """

    def __init__(self, objective: MixedObjective) -> None:
        self._objective = objective
        self._count, self._sizes = len(objective.medians), objective.blocks[0].warp_sizes
        prior = objective.prior
        widths = [prior.relevance_width] * self._sizes.weights
        self._widths = np.array(widths + [prior.moves_width] * (self._sizes.total - self._sizes.weights))
        self._varying = np.zeros(self._sizes.moves[0], dtype=bool)
        for block in objective.blocks:
            if block.actions is not None and len(self._varying):
                self._varying |= np.ptp(block.actions.columns, axis=0) > 0.0

    def __call__(self, both: FloatArray) -> tuple[float, FloatArray]:
        """Return the value at θ and the numbers of a warp and its gradient; a large value where there is none."""
        parameters, numbers = both[: self._count], both[self._count :]
        try:
            score = block_evidence(
                parameters, self._objective.blocks, mean_precision=1.0, warp=self._sizes.warp(numbers)
            )
        except KernelBanditsError:
            return IMPOSSIBLE, np.zeros(len(both))
        penalty, slope = self._objective.penalty(parameters)
        # −log of a Cauchy density of scale τ is log(1 + ρ²/τ²), with the slope 2ρ/(τ² + ρ²)
        penalty += float(np.log1p((numbers / self._widths) ** 2).sum())
        slope = np.append(slope, 2.0 * numbers / (self._widths**2 + numbers**2))
        return penalty - score.value, slope - score.gradient

    def minimum(self, starts: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, Warp, float]:
        """Return the best θ and warp found from the best of some starts, and the value.

        Starts of another size are ignored.
        """
        prior, total = self._objective.prior, self._sizes.total
        reach = np.full(total, prior.reach)
        # a move of an action column that never varies would only be another kernel of the contexts
        reach[self._sizes.weights :].reshape(self._sizes.moves)[~self._varying] = 0.0
        low, high = np.append(self._objective.low, -reach), np.append(self._objective.high, reach)
        joined = [np.append(*start) for start in starts if len(start[1]) == total]
        count = self._objective.count
        found, value = descend(self, joined, low, high, prior.warp_iterations, count, prior.tolerance)
        return found[: self._count], self._sizes.warp(found[self._count :]), value


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
    plane, _ = objective.minimum([parameters], [blocks.ACTION_SMOOTH])
    earned = full - objective.evidence(plane).value
    # flat rewards are a plane without slopes, and such a one explains no more
    if earned > for_flat:
        return CURVED
    flat, _ = objective.minimum([parameters], [blocks.ACTION_LINEAR, blocks.ACTION_SMOOTH])
    if full - objective.evidence(flat).value <= for_flat and not _stands_out(objective.surprises(flat)):
        return FLAT
    return PLANE if earned <= for_plane and not _stands_out(objective.surprises(plane)) else CURVED


def _stands_out(surprises: FloatArray) -> bool:
    """Return whether the largest of some deviations is more than chance."""
    # the largest of n standard normals is below √(2 log n) on average, and rarely one above that
    usual = float(np.median(np.abs(surprises - np.median(surprises)))) / NORMAL_MEDIAN
    return float(surprises.max() - np.median(surprises)) > usual * (math.sqrt(2.0 * math.log(len(surprises))) + 1.0)


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
            contexts, actions, self._rewards, self._contexts, self._actions, may_return=not self._in_box
        )

    @cached_property
    def _blocks(self) -> list[Block]:
        """All observations, arms apart."""
        return self._observations.apart(len(self._rewards))

    @cached_property
    def _all_arms(self) -> Block:
        """Observations of all arms, as those of correlated arms."""
        return self._observations.together(self._prior.correlated_sample_size)

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
        if self._are_few:
            objective = self._objective(self._blocks)
            return self._model(objective, objective.medians)
        objective, parameters = self._columns_alike(before)
        shape = box_shape(objective, parameters) if self._in_box else CURVED
        model, value = self._warped(objective, parameters, before)
        if self._may_move:
            moving = self._objective([replace(block, same_action=None, movable=True) for block in self._blocks])
            # from the same parts, but for what actions have of their own
            start = np.clip(parameters, moving.low, moving.high)
            moved, moved_value = self._warped(moving, start, before)
            if moved_value < value - defaults.MOVES_PRICES * self._price:
                model = moved
        return replace(model, shape=shape)

    def _columns_alike(self, before: MixedModel | None) -> tuple[MixedObjective, FloatArray]:
        """Return an objective, and a θ of columns that all count alike from which to minimise it."""
        if not (self._arms and self._split and 2 <= self._observations.arm_count <= defaults.MOST_CORRELATED_ARMS):
            objective = self._objective(self._blocks)
            return objective, self._fitted(objective, before)[0]
        most = self._prior.correlated_sample_size
        parameters, is_clear = self._of_few_arms(before, min(defaults.ARM_SEARCH_SIZE, most))
        if not is_clear and min(len(self._rewards), most) > defaults.ARM_SEARCH_SIZE:
            parameters, _ = self._of_few_arms(before, most)
        if len(parameters) > blocks.CONTRAST:
            return self._objective([self._all_arms], self._observations.arm_count), parameters
        return self._objective(self._blocks), parameters

    def _of_few_arms(self, before: MixedModel | None, size: int) -> tuple[FloatArray, bool]:
        """Return the best θ for the first observations, arms apart or correlated, and whether more may be left out."""
        apart, is_clear = self._fitted(self._objective(self._observations.apart(size)), before)
        together = self._objective([self._observations.together(size)], self._observations.arm_count)
        opposite = together.high[blocks.CONTRAST]
        starts = [np.append(apart, contrast) for contrast in (opposite, 0.5 * opposite, -1.0)]
        if before is not None and len(before.parameters) == len(starts[0]):
            starts.append(before.parameters)
        correlated, value = together.minimum(starts)
        # arms that share nothing are κ = 1
        if value < together(np.append(apart, 0.0))[0]:
            return correlated, is_clear
        return apart, False

    def _objective(self, observations: list[Block], arms: int = 0) -> MixedObjective:
        prior = self._prior
        if self._arms and self._is_two_valued and not self._are_few:
            less = prior.two_valued_noise / max(self._observations.arm_count, 2)
            prior = replace(prior, signal=prior.signal - less)
        return MixedObjective(observations, prior, self._is_two_valued, arms)

    @property
    def _may_move(self) -> bool:
        """Whether contexts may move what described actions do."""
        return self._actions is not None and 0 < self._split * int(self._actions.varies.sum()) <= defaults.MOST_MOVES

    def _fitted(self, objective: MixedObjective, before: MixedModel | None) -> tuple[FloatArray, bool]:
        """Return the best θ of columns that are not warped, with as much noise as the evidence allows.

        And whether it is clear how much that is: more observations may tell another minimum with less noise from it.
        """
        starts = [objective.medians]
        if before is not None:
            starts.append(before.parameters[: len(objective.medians)])
        parameters, value = objective.minimum(starts)
        # A very short lengthscale fits noise as well as a noise term does: it has to earn the price of a parameter.
        mostly_noise = objective.medians.copy()
        signal = objective.prior.signal
        mostly_noise[: blocks.LENGTH] += math.log((1.0 - signal) / signal)
        mostly_noise[blocks.NOISE] = math.log(signal)
        noisy, noisy_value = objective.minimum([mostly_noise])
        is_noisier = noisy[blocks.NOISE] > parameters[blocks.NOISE] and noisy_value <= value + self._price
        if not is_noisier:
            return parameters, True
        return noisy, noisy[blocks.NOISE] <= parameters[blocks.NOISE] + defaults.SAME_LOG_NOISE

    def _warped(
        self, objective: MixedObjective, parameters: FloatArray, before: MixedModel | None
    ) -> tuple[MixedModel, float]:
        """Return the model of warped columns, found from one of columns that all count alike, and the objective."""
        total = objective.blocks[0].warp_sizes.total
        if not total:
            parameters, value = objective.minimum([parameters])
            return self._model(objective, parameters), value
        starts = [(parameters, np.zeros(total))]
        if before is not None and before.parameters.shape == parameters.shape:
            starts.append((before.parameters, before.warp.flat))
        parameters, warp, value = WarpObjective(objective).minimum(starts)
        return self._model(objective.warped(warp), parameters, warp), value

    @property
    def _price(self) -> float:
        """What a parameter has to earn, in nats."""
        return 0.5 * math.log(len(self._rewards))

    def evidence_gained(self, found: MixedModel, before: MixedModel) -> float:
        """Return the log evidence of a model of this sample less that of the one before, on the same observations."""
        with in_one_thread():
            if not (found.correlation or before.correlation):
                warped = [block.warped(before.warp) for block in self._blocks]
                return found.evidence - block_evidence(before.parameters, warped, mean_precision=1.0).value
            return self._evidence_of_all_arms(found) - self._evidence_of_all_arms(before)

    def _evidence_of_all_arms(self, model: MixedModel) -> float:
        """Return the log evidence of a model of correlated arms, or of others, on the observations of all arms."""
        parameters = model.parameters
        contrast = parameters[blocks.CONTRAST] if len(parameters) > blocks.CONTRAST else 0.0
        # two arms can be more opposite than three: the model before may not have known them all
        contrast = min(contrast, greatest_contrast(self._observations.arm_count))
        theta = np.append(parameters[: blocks.CONTRAST], contrast)
        return block_evidence(theta, [self._all_arms.warped(model.warp)], mean_precision=1.0).value

    def _model(self, objective: MixedObjective, parameters: FloatArray, warp: Warp = NO_WARP) -> MixedModel:
        evidence = objective.evidence(parameters)
        square = self._spread**2
        values = np.exp(parameters)
        bias, linear, decorrelated, smooth = (values[: blocks.LENGTH] * square).tolist()
        contexts = self._contexts.kernel(
            bias, linear, smooth, float(values[blocks.LENGTH]), decorrelated=decorrelated, relevance=warp.contexts
        )
        # as for the shares: without columns nothing is linear in them
        variance = contexts.variance if self._split else bias + smooth
        kernel: Kernel
        if self._actions is None:
            kernel = PerArm(contexts, self._split)
            if len(values) > blocks.CONTRAST:
                kernel = TensorProduct(contexts, self._arm_kernel(1.0 - float(values[blocks.CONTRAST])), self._split)
        else:
            straight, curved, own, length = values[blocks.ACTION_LINEAR :].tolist()
            own = own if own > PRESENT else 0.0
            unit = 1.0 if self._split else variance
            actions = self._actions.kernel(
                unit, unit * straight, unit * curved, length, own=unit * own, relevance=warp.actions
            )
            variance *= 1.0 + straight * self._actions.mean_square(warp.actions) + curved + own
            kernel = TensorProduct(contexts, actions, self._split, self._shear(warp)) if self._split else actions
        mean = self._centre + self._spread * evidence.mean
        return MixedModel(
            kernel,
            float(values[blocks.NOISE] * square),
            mean,
            parameters,
            self._bonus(mean, math.sqrt(variance)),
            self._contexts,
            self._actions,
            self._are_few,
            evidence.value,
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
