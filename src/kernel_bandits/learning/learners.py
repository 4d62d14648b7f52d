"""What a learned posterior learns: the parameters of a stationary kernel, or those of the mixed kernel of a table."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.actions import Box, Choice, Range, Setting, are_arms
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import Kernel, KernelLike, TensorProduct
from kernel_bandits.kernels.base import with_defaults
from kernel_bandits.kernels.composite import PerArm
from kernel_bandits.kernels.mixed import Mixed
from kernel_bandits.learning.columns import Columns, ColumnUnits, RewardModel, Units, action_units
from kernel_bandits.learning.defaults import CATEGORY_ROWS as MOST_ROWS
from kernel_bandits.learning.defaults import (
    FEW_EXPERIMENTS,
    FEW_OBSERVATIONS,
    LEAVING_PROBABILITY,
    REFERENCE_POINTS,
    SAMPLE_SIZE,
)
from kernel_bandits.learning.defaults import FEW_EXPERIMENTS_GROWTH as BOX_GROWTH
from kernel_bandits.learning.defaults import FEW_OBSERVATIONS_GROWTH as GROWTH
from kernel_bandits.learning.defaults import WORTHWHILE_NATS as WORTHWHILE
from kernel_bandits.learning.fit import KernelLearning, Sample, log_marginal_likelihood
from kernel_bandits.learning.mixed import MixedModel, MixedSample
from kernel_bandits.learning.prior import ARM_PRIOR as PRIOR
from kernel_bandits.learning.prior import DESCRIBED_PRIOR, unknown_kernel
from kernel_bandits.posterior.arms import SplitPosterior, reseeded_factory
from kernel_bandits.posterior.base import CURVED, KernelChange, Posterior

# Builds the posterior of a kernel and λ, with coins of its own for each number.
PosteriorFactory: TypeAlias = Callable[[KernelLike, float, int], Posterior]
# Squares of larger numbers, such as the milliseconds of a date, leave little of λ in a sum with it.
FAR = 1e6
M = TypeVar("M")


@dataclass(frozen=True)
class Refit(Generic[M]):
    """A model that explains the observations better than the one before.

    Attributes:
        model: the model.
        kernel: of its posterior.
        regularization: λ of its posterior.
        mean: c.
        bonus: how many standard deviations an upper bound lies above the mean.
        evidence_gained: over the model before, in nats.
        relative_lengthscales: as of :class:`KernelChange`.
        sample: the points it was learned from, shape (n, d).
        shares: as of :class:`KernelChange`.
        arm_correlation: as of :class:`KernelChange`.
        shape: as of :class:`~kernel_bandits.posterior.base.Posterior`.
        is_provisional: as there.
    """

    model: M
    kernel: KernelLike
    regularization: float
    mean: float
    bonus: float
    evidence_gained: float
    relative_lengthscales: tuple[float, ...]
    sample: FloatArray
    shares: tuple[tuple[str, float], ...] = ()
    arm_correlation: float = 0.0
    shape: int = CURVED
    is_provisional: bool = False

    def change(self, within: Posterior) -> KernelChange:
        """Return the change to this model, given its posterior."""
        return KernelChange(
            within.round_index,
            within.kernel,
            within.regularization,
            self.mean,
            self.evidence_gained,
            self.relative_lengthscales,
            self.shares,
            self.arm_correlation,
        )


class Learner(ABC, Generic[M]):
    """Learns a model of the rewards, and builds its posterior."""

    @property
    @abstractmethod
    def start(self) -> M | None:
        """The model that the user chose to start from, or None where nothing is known of the rewards."""

    @property
    def context_columns(self) -> int:
        """How many of the leading columns are the context, as far as is known."""
        return 0

    @property
    def box(self) -> Box | None:
        """What actions are chosen from, as far as columns say."""
        return None

    @abstractmethod
    def build(self, kernel: KernelLike | None, regularization: float, number: int) -> Posterior:
        """Return the posterior of a kernel; of None before anything is known."""

    @abstractmethod
    def describe(self, context_columns: int, points: FloatArray, box: Box | None) -> None:
        """Take note of what the columns of joint points are, from the first on offer, shape (A, d), or their box."""

    @abstractmethod
    def check(self, points: FloatArray) -> None:
        """Raise if points of this width cannot be learned from."""

    @abstractmethod
    def refit(
        self, points: FloatArray, rewards: FloatArray, model: M | None, generator: np.random.Generator
    ) -> Refit[M] | None:
        """Return the model that explains a sample of a history (t, d), (t,) best.

        None to stay with the one there is.
        """

    def accepts(self, before: Posterior, after: Posterior, refit: Refit[M], generator: np.random.Generator) -> bool:
        """Return whether to leave a posterior for the one that was rebuilt."""
        del before, after, refit, generator  # a model that is averaged with its prior needs no second look
        return True

    def next_round(self, learning: KernelLearning, round_index: int) -> int:
        """The round of the next learning."""
        return learning.after(round_index)

    @abstractmethod
    def reseeded(self, entropy: int) -> Learner[M]:
        """Return the learner whose posteriors have fresh coins."""

    def within_box(self, box: Box) -> None:
        """Take note of a box that actions are chosen from."""
        del box  # a stationary kernel measures its columns

    def show(self, contexts: FloatArray) -> None:
        """Take note of contexts (n, d_x) without rewards."""
        del contexts  # a stationary kernel measures the columns of joint points

    def group_columns(self, labels: NDArray[np.intp]) -> None:
        """Take note of which columns encode one variable, shape (d,)."""
        del labels  # a stationary kernel has groups of its own


def drawn_rows(count: int, size: int, generator: np.random.Generator) -> FloatArray:
    """Rows of a sample of a history, in random order.

    A policy that has found what is good plays it again and again: drawn uniformly, a late sample would know of nothing
    else. Round t is drawn with weight 1/t instead, every doubling of time as often as any other.
    """
    keys = generator.exponential(size=count) * (1.0 + np.arange(count))
    return generator.permutation(np.argsort(keys)[:size])


def _require_labels(groups: tuple[int, ...] | None, points: FloatArray) -> None:
    if groups is not None and len(groups) != points.shape[1]:
        raise InputError(
            f"groups: {len(groups)} labels were given for points with {points.shape[1]} columns "
            "(context columns first, then action columns); give one per column."
        )


class StationaryLearner(Learner[RewardModel]):
    """Lengthscales, output variance, noise and mean of one stationary kernel over all columns.

    A kernel is left only for one that explains the rewards better, and by enough: no variance may fall by more than the
    Bayes factor of the change, exp(evidence gained). One that the user gave is left only by prequential evidence: a
    kernel fitted to the observations of the refit before must predict the later ones better, in log score, by
    log(k(k + 1)/α) nats at the k-th refit. On data that are chosen adaptively too, the likelihood ratio of predictions
    has mean 1 if the rewards are drawn from the given model, which is left with probability α at most then.

    Args:
        build: builds the posterior of a kernel.
        start: the model to start from.
        learning: from what.
    """

    saved: ClassVar[tuple[str, ...]] = ("_build", "_start", "_learning", "_units", "_refits", "_known")

    def __init__(self, build: PosteriorFactory, start: RewardModel, learning: KernelLearning) -> None:
        self._build, self._start, self._learning = build, start, learning
        self._units: Units | None = None
        # How many refits there were, and how many observations the last one knew.
        self._refits, self._known = 0, 0

    @property
    def start(self) -> RewardModel | None:
        return None if self._learning.from_scratch else self._start

    def reseeded(self, entropy: int) -> StationaryLearner:
        twin = copy.copy(self)
        twin._build = reseeded_factory(self._build, entropy)
        return twin

    def build(self, kernel: KernelLike | None, regularization: float, number: int) -> Posterior:
        if kernel is None:
            kernel = self._start.kernel if self._learning.from_scratch else self._start.covariance
        return self._build(kernel, regularization, number)

    def describe(self, context_columns: int, points: FloatArray, box: Box | None) -> None:
        """Nothing to note: all columns are alike."""

    def check(self, points: FloatArray) -> None:
        _require_labels(self._learning.groups, points)

    def refit(
        self, points: FloatArray, rewards: FloatArray, model: RewardModel | None, generator: np.random.Generator
    ) -> Refit[RewardModel] | None:
        drawn = drawn_rows(len(points), self._learning.sample_size, generator)
        known, self._known = self._known or len(points) // 2, len(points)
        self._refits += 1
        if not self._learning.from_scratch and not self._is_outpredicted(
            model, points[drawn], rewards[drawn], drawn < known
        ):
            return None
        sample = Sample(points[drawn], rewards[drawn], self._learning.groups, self._units)
        self._units = sample.units
        found, gain = sample.fit(self._start.kernel, model), math.inf
        if model is not None:
            before, after = sample.score(model), sample.score(found)
            gain = after.evidence - before.evidence
            # the prior may speak for a change, but not without the evidence, nor against it more loudly
            if not min(gain, after.objective - before.objective) >= WORTHWHILE:
                return None
        relative = tuple(sample.units.relative(found.kernel.lengthscale).tolist())
        return Refit(found, found.covariance, found.noise, found.mean, 1.0, gain, relative, points[drawn])

    def _is_outpredicted(
        self, model: RewardModel | None, points: FloatArray, rewards: FloatArray, early: NDArray[np.bool_]
    ) -> bool:
        """Return whether a model fitted to the early observations predicts the later ones better than the given one."""
        if model is None or early.sum() < 2 or early.all():
            return model is None
        rival = Sample(points[early], rewards[early], self._learning.groups, self._units).fit(self._start.kernel, model)
        scores = [
            # log p(late | early) = log p(all) − log p(early)
            log_marginal_likelihood(one.kernel, one.variance, one.noise, points, rewards - one.mean)
            - log_marginal_likelihood(one.kernel, one.variance, one.noise, points[early], rewards[early] - one.mean)
            for one in (rival, model)
        ]
        return scores[0] - scores[1] >= math.log(self._refits * (self._refits + 1) / LEAVING_PROBABILITY)

    def accepts(
        self,
        before: Posterior,
        after: Posterior,
        refit: Refit[RewardModel],
        generator: np.random.Generator,
    ) -> bool:
        near = refit.sample[:REFERENCE_POINTS]
        points = np.concatenate([near, generator.permuted(near, axis=0)])
        old, new = before.evaluate_finite(points).std, after.evaluate_finite(points).std
        # the largest log-factor by which a variance falls, in nats
        narrowing = 2.0 * float(np.log(old / np.maximum(new, np.finfo(float).tiny)).max())
        return not narrowing > refit.evidence_gained


class MixedLearner(Learner[MixedModel]):
    """Constant, linear and smooth parts, noise and mean of the kernel of a table.

    Actions that are unit vectors are arms, which share nothing unless the evidence says that they are correlated;
    others are described by their columns. Every fit rebuilds the posterior, whose anchors are then chosen from the
    whole history: a full dictionary is renewed too.

    Args:
        build: builds the posterior of a kernel of joint points.
        build_arm: builds the posterior of one arm on contexts.
        columns: what they are; the number of context columns is that of the first round.
    """

    saved: ClassVar[tuple[str, ...]] = ("_build", "_build_arm", "_columns", "_arms", "_far", "_offered", "_shown")

    def __init__(self, build: PosteriorFactory, build_arm: PosteriorFactory, columns: Columns | None = None) -> None:
        self._build, self._build_arm = build, build_arm
        self._columns = Columns() if columns is None else columns
        self._arms = False
        self._far: FloatArray | None = None
        # units of the described actions that were offered first
        self._offered: ColumnUnits | None = None
        # contexts without rewards
        self._shown: FloatArray | None = None

    @property
    def start(self) -> None:
        return None

    @property
    def context_columns(self) -> int:
        return self._columns.contexts

    @property
    def box(self) -> Box | None:
        return None if self._columns.box is None else _box_of_columns(*self._columns.box)

    def reseeded(self, entropy: int) -> MixedLearner:
        twin = copy.copy(self)
        twin._build, twin._build_arm = (reseeded_factory(build, entropy) for build in (self._build, self._build_arm))
        return twin

    def show(self, contexts: FloatArray) -> None:
        known = contexts if self._shown is None else np.concatenate([self._shown, contexts])
        self._shown = known[:: -(-len(known) // MOST_ROWS)].copy()

    def describe(self, context_columns: int, points: FloatArray, box: Box | None) -> None:
        if self._shown is not None and self._shown.shape[1] != context_columns:
            raise InputError(
                f"context: expected {self._shown.shape[1]} columns as in the contexts that describe was given, got "
                f"{context_columns}."
            )
        self._columns = replace(self._columns, contexts=context_columns)
        self._arms = box is None and are_arms(points[:, context_columns:])
        self._offered = None
        if box is not None:
            # nothing was played yet: a box that was offered before no longer counts
            self._columns = replace(self._columns, box=None)
            self.within_box(box)
        elif not self._arms and len(points) > 1 and context_columns < points.shape[1]:
            self._offered = action_units(points[:, context_columns:], self._columns, None)
        # what is common to the points; a box is described by its low corner
        mean = points.mean(axis=0)
        self._far = np.where(np.abs(mean) > FAR, mean, 0.0) if np.abs(mean).max() > FAR else None

    def next_round(self, learning: KernelLearning, round_index: int) -> int:
        few, growth = (FEW_OBSERVATIONS, GROWTH) if self._columns.box is None else (FEW_EXPERIMENTS, BOX_GROWTH)
        return learning.after(round_index, growth) if round_index < few else learning.after(round_index)

    def within_box(self, box: Box) -> None:
        labels, split = box.labels, self._columns.contexts
        if self._columns.variables is not None:
            labels = self._columns.of(slice(split, split + box.dimension), split + box.dimension)
        self._columns = self._columns.within(box.low, box.high, labels)
        self._arms = False

    def _within_rows(self, actions: FloatArray) -> None:
        """Widen the box to actions that were played (t, d_a): rows that stand for a box may show new levels."""
        if self._columns.box is not None:
            labels = np.array(self._columns.box[2], dtype=np.intp)
            self._columns = self._columns.within(actions.min(axis=0), actions.max(axis=0), labels)

    def group_columns(self, labels: NDArray[np.intp]) -> None:
        self._columns = replace(self._columns, variables=tuple(labels.tolist()))

    def check(self, points: FloatArray) -> None:
        _require_labels(self._columns.variables, points)

    def build(self, kernel: KernelLike | None, regularization: float, number: int) -> Posterior:
        if kernel is None:
            kernel = self._unknown()
        own = with_defaults(kernel)
        if own.of_each_arm() is not None:
            return SplitPosterior(own, regularization, _Numbered(self._build_arm, number))
        return self._build(kernel, regularization, number)

    def _unknown(self) -> Kernel:
        """Return the kernel before anything is known, with far columns about their first value, in units of it."""
        if self._columns.box is not None:
            # the units of settings are those of the box; of the sensors nothing is known, and one may be 1e9
            return unknown_kernel(self._columns)
        contexts = self._columns.contexts
        if self._shown is not None and contexts:
            known = self._columns.recognised_contexts(self._shown)
            units = ColumnUnits.of_contexts(self._shown, known, None, may_bend=self._arms)
            shares = PRIOR.bias, PRIOR.linear, PRIOR.smooth, PRIOR.lengthscale
            measured = units.kernel(*shares, decorrelated=PRIOR.decorrelated)
            if self._arms:
                return PerArm(measured, contexts)
            if self._offered is not None:
                return TensorProduct(measured, self._of_actions(), contexts)
        centre: FloatArray | float = 0.0
        scale: FloatArray | float = 1.0
        if self._far is not None:
            centre = self._far if self._offered is None and not self._arms else self._far[:contexts]
            scale = np.where(centre == 0.0, 1.0, np.abs(centre))
        linear = PRIOR.linear + PRIOR.decorrelated
        unknown = Mixed(PRIOR.bias, linear, PRIOR.smooth, PRIOR.lengthscale, centre=centre, scale=scale)
        if self._arms:
            return PerArm(unknown, contexts)
        if self._offered is None:
            return unknown
        return TensorProduct(unknown, self._of_actions(), contexts) if contexts else self._of_actions()

    def _of_actions(self) -> Kernel:
        """Return the kernel of described actions before anything is known."""
        assert self._offered is not None
        # far from what was played: with a linear part only the extremes would be looked at
        return self._offered.kernel(0.0, 0.0, 0.5, DESCRIBED_PRIOR.action_lengthscale, own=0.5)

    def refit(
        self, points: FloatArray, rewards: FloatArray, model: MixedModel | None, generator: np.random.Generator
    ) -> Refit[MixedModel] | None:
        if np.ptp(rewards) == 0.0:
            return None
        self._arms = self._arms and are_arms(points[:, self._columns.contexts :])
        self._within_rows(points[:, self._columns.contexts :])
        named = points.shape[1] - self._columns.contexts if self._arms else 1
        size = round(SAMPLE_SIZE * math.sqrt(named))
        drawn = drawn_rows(len(points), size, generator)
        if np.ptp(rewards[drawn]) == 0.0:
            return None
        # at most so many rows, spread over the history: one product of matrices
        some = points[:: -(-len(points) // MOST_ROWS)]
        columns = self._columns.recognised(some, self._shown)
        before = model if model is None or (model.actions is None) == self._arms else None
        if before is not None:
            before = before.with_variables(columns, points.shape[1])
        sample = MixedSample(points[drawn], rewards[drawn], columns, self._arms, before, shown=self._shown)
        found = sample.fit(before)
        gain = math.inf if before is None else sample.evidence_gained(found, before)
        relative = found.relative_lengthscales(points.shape[1])
        return Refit(
            found,
            found.kernel,
            found.noise,
            found.mean,
            found.bonus,
            gain,
            relative,
            points[drawn],
            found.shares,
            found.correlation,
            found.shape,
            found.is_provisional,
        )


@lru_cache(maxsize=8)
def _box_of_columns(low: tuple[float, ...], high: tuple[float, ...], labels: tuple[int, ...]) -> Box:
    """Return a box with these corners, where several columns of one label are the levels of a choice."""
    settings: dict[str, Setting] = {}
    for label in range(max(labels) + 1):
        columns = [column for column, own in enumerate(labels) if own == label]
        least = np.array(low)[columns]
        varying = np.flatnonzero(np.array(high)[columns] > least)
        if len(columns) == 1:
            settings[f"action {label}"] = Range(low[columns[0]], high[columns[0]])
            continue
        codes = [np.where(np.arange(len(columns)) == one, 1.0, least) for one in varying] or [least]
        settings[f"action {label}"] = Choice(range(len(codes)), codes=tuple(tuple(code.tolist()) for code in codes))
    return Box(settings)


@dataclass(frozen=True)
class _Numbered:
    """Builds the posteriors of arms with coins of their own for each refit and arm."""

    build: PosteriorFactory
    refit: int

    def __call__(self, kernel: KernelLike, regularization: float, number: int) -> Posterior:
        # Cantor's pairing of two counts
        both = self.refit + number
        return self.build(kernel, regularization, both * (both + 1) // 2 + number)

    def reseeded(self, entropy: int) -> _Numbered:
        """Return the same with coins of another seed."""
        return _Numbered(reseeded_factory(self.build, entropy), self.refit)
