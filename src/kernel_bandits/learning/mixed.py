"""Learning the mixed kernel of a table: how much of the reward is noise, constant, linear and smooth.

The evidence moves the parameters away from their prior where the data ask for it. Everything is in units of the spread
of the columns and of the rewards. ``BONUS`` was chosen on Chessboard and Step Diagonal.

Named arms share nothing unless the evidence says that they are correlated. Often they are: where one of two offers is
right for a visitor the other is not, so what one earned says as much of the other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import Kernel, Shear, TensorProduct
from kernel_bandits.kernels.mixed import Mixed, PerArm
from kernel_bandits.learning import blocks, box
from kernel_bandits.learning.blocks import Block, block_evidence
from kernel_bandits.learning.columns import Columns, ColumnUnits, action_units
from kernel_bandits.learning.left_out import balanced_score
from kernel_bandits.learning.mixed_model import PRESENT, MixedModel
from kernel_bandits.learning.mixed_objective import MixedObjective, greatest_contrast
from kernel_bandits.learning.mixed_prior import BOX_PRIOR, DESCRIBED_PRIOR, PRIOR, MixedPrior
from kernel_bandits.learning.observations import Observations
from kernel_bandits.learning.warp import NO_WARP, Warp
from kernel_bandits.learning.warp_objective import WarpObjective
from kernel_bandits.numerics.blas_threads import in_one_thread
from kernel_bandits.numerics.memory import keep_freed_arrays

# Standard deviations of the exploration bonus: for rewards of any values, half of one more than is right for a known
# kernel, since this one is uncertain too.
BONUS = 1.5
# The least bonus of two-valued rewards, and the least where the bound would otherwise exceed the upper value. With half
# a deviation for both, policies with a faint signal stay with an offer that is worse than most.
TWO_VALUED_BONUS, LEAST_BONUS = 1.0, 0.5
# Rewards are takings, nothing or a price, if the least of them is earned in more than this share of the rounds, and
# more often than so many times.
OFTEN, FEWEST_LEAST = 0.1, 2
# The bonus in a box: on the slope of a peak the variance is as small as what was seen of it, and a small bonus climbs
# step by step. Chosen among 1.5, 2, 2.7 and 3.6 on twelve plants of benchmarks/process_random.py.
BOX_BONUS = 3.0
# Of K arms that are correlated as negatively as they can be, an observation of one is worth 1/(K − 1)² of one of each
# other: all in all 1 + 1/(K − 1), which beyond this many arms is not worth a posterior over all of them.
MOST_CORRELATED_ARMS = 5
# Of contexts and described actions with more pairs of columns than this it is not learned how the ones move the others.
MOST_MOVES = 64
# Moves of described actions take the place of what each action has of its own, for this many times the price of a
# parameter: there are several of them.
MOVES_PRICES = 3.0
# Where arms may be correlated, this many observations are searched for a place from which the descent on all goes on,
# unless they have two minima whose logarithms of λ differ by more than this.
SEARCH_SIZE, SAME_NOISE = 256, 0.1


class MixedSample:
    """Observations on which a mixed kernel is fitted.

    Args:
        points: joint points, shape (n, d).
        rewards: shape (n,), not all equal.
        columns: what they are.
        arms: whether actions name arms.
        before: the model before, if there was one.
        prior: of the parameters; by default ``PRIOR`` for arms, ``BOX_PRIOR`` in a box, ``DESCRIBED_PRIOR`` elsewhere.
    """

    def __init__(
        self,
        points: FloatArray,
        rewards: FloatArray,
        columns: Columns,
        arms: bool,
        before: MixedModel | None,
        prior: MixedPrior | None = None,
    ) -> None:
        if prior is None:
            prior = PRIOR if arms else DESCRIBED_PRIOR if columns.box is None else BOX_PRIOR
        split, dimension = columns.contexts, points.shape[1]
        self._split, self._arms, self._prior = split, arms, prior
        self._in_box = columns.box is not None
        contexts, actions = points[:, :split], points[:, split:]
        # what moves described actions is linear in the contexts as they are
        self._contexts = ColumnUnits.of_contexts(
            contexts, columns.of(slice(0, split), dimension), None if before is None else before.contexts, may_bend=arms
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

    @cached_property
    def _power(self) -> float:
        """How much the evidence counts.

        The variance of a sample variance is (κ − 1)/2 times what it is for Gaussian rewards, κ their kurtosis: rare
        rewards and outliers tell as much less of variances.
        """
        if len(self._rewards) < self._prior.observations * self._observations.arm_count:
            return 0.0
        kurtosis = float((self._rewards**4).mean())
        power = min(1.0, 2.0 / max(kurtosis - 1.0, 1e-9))
        return power * (self._prior.two_valued_power if self._is_two_valued else 1.0)

    @cached_property
    def _is_two_valued(self) -> bool:
        """Whether rewards have two values, and not because the higher one is the price of a single action."""
        if len(self._values) != 2:
            return False
        return self._arms or len(np.unique(self._observations.actions[self._rewards > 0.0], axis=0)) > 1

    def fit(self, before: MixedModel | None) -> MixedModel:
        """Return the model with the best score and prior together, near the prior where the evidence is thin."""
        keep_freed_arrays()
        with in_one_thread():
            return self._fit(before)

    def _fit(self, before: MixedModel | None) -> MixedModel:
        if self._power == 0.0:
            objective = self._objective(self._blocks)
            return self._model(objective, objective.medians)
        objective, parameters = self._columns_alike(before)
        shape = box.shape(objective, parameters) if self._in_box else box.CURVED
        model, value = self._warped(objective, parameters, before)
        if self._may_move:
            moving = self._objective([replace(block, same_action=None, movable=True) for block in self._blocks])
            # from the same parts, but for what actions have of their own
            start = np.clip(parameters, moving.low, moving.high)
            moved, moved_value = self._warped(moving, start, before)
            if moved_value < value - MOVES_PRICES * self._price:
                model = moved
        return replace(model, shape=shape)

    def _columns_alike(self, before: MixedModel | None) -> tuple[MixedObjective, FloatArray]:
        """Return an objective, and a θ of columns that all count alike from which to minimise it."""
        if not (self._arms and self._split and 2 <= self._observations.arm_count <= MOST_CORRELATED_ARMS):
            objective = self._objective(self._blocks)
            return objective, self._fitted(objective, before)[0]
        most = self._prior.correlated_sample_size
        parameters, is_clear = self._of_few_arms(before, min(SEARCH_SIZE, most))
        if not is_clear and min(len(self._rewards), most) > SEARCH_SIZE:
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
        score, prior = block_evidence, self._prior
        if self._arms and self._is_two_valued:
            score = balanced_score
            if self._power:
                less = prior.two_valued_noise / max(self._observations.arm_count, 2)
                prior = replace(prior, signal=prior.signal - less)
        return MixedObjective(observations, prior, self._is_two_valued, self._power, arms, score)

    @property
    def _may_move(self) -> bool:
        """Whether contexts may move what described actions do."""
        return self._actions is not None and 0 < self._split * int(self._actions.varies.sum()) <= MOST_MOVES

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
        return noisy, noisy[blocks.NOISE] <= parameters[blocks.NOISE] + SAME_NOISE

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
            objective.power,
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

        Takings are nothing or a price: rewards of which many are the least one. What an arm pays when it pays is then
        unknown until it does, and the best of K unknown arms is expected √(2·log K) deviations above the mean.
        """
        if not self._is_two_valued:
            if self._in_box:
                return BOX_BONUS
            least = int((self._rewards == self._rewards.min()).sum())
            is_taking = self._arms and least > max(FEWEST_LEAST, OFTEN * len(self._rewards))
            return max(BONUS, math.sqrt(2.0 * math.log(self._observations.arm_count))) if is_taking else BONUS
        lower, upper = self._values.tolist()
        hoped = max(TWO_VALUED_BONUS, deviation / max(mean - lower, 1e-3 * (upper - lower)))
        return max(LEAST_BONUS, min(hoped, (upper - mean) / deviation))
