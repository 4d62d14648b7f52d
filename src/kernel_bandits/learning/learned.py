"""A posterior that learns its kernel as it goes: lengthscales, output variance, noise and mean from the rewards."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.learning.columns import Rewards, RewardUnits, return_to_their_places
from kernel_bandits.learning.defaults import SURPRISED_GROWTH, UNKNOWN_NOISE
from kernel_bandits.learning.fit import KernelLearning
from kernel_bandits.learning.learners import Learner, Refit
from kernel_bandits.learning.mixed import MixedModel
from kernel_bandits.learning.places import Places
from kernel_bandits.posterior.base import (
    Bound,
    Evaluated,
    Evaluation,
    Failures,
    KernelChange,
    Posterior,
    PosteriorAround,
    Prediction,
)
from kernel_bandits.posterior.history import History, rewards_at
from kernel_bandits.values import Rows, evolve, fact


@dataclass(slots=True)
class _LearnedEvaluation(Evaluation):
    """Adds the evaluation of the posterior within, whose mean is less the prior mean."""

    within: Any


class LearnedPosterior(PosteriorAround):
    """Another posterior, whose kernel, λ and prior mean are learned by maximum evidence at doubling times.

    A change rebuilds dictionary and posterior from the whole history in one pass. All numbers are in the units of the
    data. Where nothing was known of the rewards, what is learned of them is bounded as :class:`RewardUnits` says; they
    are kept as they were, and bounded anew at each change.

    Args:
        learner: what is learned.
        learning: when.
        seed: of the samples.

    Attributes:
        within: the posterior of the model, on rewards less the prior mean.
        learner: the one given, with what it has noted of the columns.
        model: what was learned last; None before that, where nothing was given.
        units: of the rewards.
        places: what was played where; None in a box, of a stationary kernel, or where one was given.
    """

    __slots__ = (
        "_kept",
        "_next",
        "_rewards",
        "_seed",
        "bonus",
        "failures",
        "is_provisional",
        "kernel_changes",
        "learner",
        "learning",
        "model",
        "places",
        "prior_mean",
        "shape",
        "units",
        "within",
    )

    learns_kernel = True
    may_be_due = True
    learns_in_order = True

    def __init__(self, learner: Learner[Any], learning: KernelLearning, seed: np.random.SeedSequence) -> None:
        start = learner.start
        self.within: Posterior = learner.build(None, UNKNOWN_NOISE if start is None else start.noise, 0)
        self.prior_mean: float = 0.0 if start is None else start.mean
        self.bonus: float = Posterior.bonus
        self.shape: int = Posterior.shape
        self.is_provisional: bool = False
        self.kernel_changes: tuple[KernelChange, ...] = ()
        self.failures: Failures = Failures()
        self.learner: Learner[Any] = learner
        self.learning: KernelLearning = learning
        self._seed = seed
        self.model: Any = start
        self._next: int | None = learning.first_round
        self.units: RewardUnits = RewardUnits()
        # Rewards as they came, where the history is kept: those that the posterior within learns are bounded and
        # rounded, and equal ones would differ after some changes of the prior mean.
        self._rewards = Rows()
        self.places: Places | None = Places(learner.context_columns) if start is None else None
        # A history-free stream until the kernel is frozen.
        self._kept = History() if self._is_history_free else None

    kernel: KernelLike = fact("within.kernel")
    dimension: int | None = fact("within.dimension")
    round_index: int = fact("within.round_index")
    dictionary_points: FloatArray = fact("within.dictionary_points")
    awaited_points: dict[int, FloatArray] = fact("within.awaited_points")
    box: Box | None = fact("learner.box")

    @property
    def observations(self) -> tuple[FloatArray, FloatArray]:
        return self.within.observed_points, self._rewards.array

    @property
    def observed_weights(self) -> FloatArray | None:
        return self.within.observed_weights if self._kept is None else self._kept.weights

    @property
    def _is_history_free(self) -> bool:
        return self.approximation == "history-free"

    def described(self, context_columns: int, points: FloatArray, box: Box | None = None) -> Self:
        if self.round_index or self.awaited_count:
            return self
        learner, within = copy.copy(self.learner), self.within
        learner.describe(context_columns, points, box)
        if self.model is None:
            within = learner.build(None, UNKNOWN_NOISE, 0)
        # a box has a design of its own
        places = None if self.places is None or box is not None else Places(context_columns)
        return evolve(self, learner=learner, within=within, places=places)

    def in_box(self, box: Box) -> Self:
        learner = copy.copy(self.learner)
        learner.within_box(box)
        # a box has a design of its own
        return evolve(self, learner=learner, places=None)

    def shown(self, contexts: FloatArray) -> Self:
        learner, within = copy.copy(self.learner), self.within
        learner.show(contexts)
        if self.model is None and not self.round_index and not self.awaited_count:
            within = learner.build(None, UNKNOWN_NOISE, 0)
        return evolve(self, learner=learner, within=within)

    def grouped(self, labels: NDArray[np.intp]) -> Self:
        if self.round_index:
            return self
        learner = copy.copy(self.learner)
        learner.group_columns(labels)
        return evolve(self, learner=learner)

    def _shifted(self, evaluation: Evaluation) -> _LearnedEvaluation:
        return _LearnedEvaluation(evaluation.mean + self.prior_mean, evaluation.std, evaluation)

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        if not self.round_index:
            # the columns are still to be checked
            return super().bound_in(context, bonus)
        return self.within.bound_in(context, bonus)

    def evaluate(self, points: FloatArray) -> _LearnedEvaluation:
        if not self.round_index:
            self.learner.check(points)
        return self._shifted(self.within.evaluate(points))

    def means(self, points: FloatArray) -> FloatArray:
        if not self.round_index:
            self.learner.check(points)
        return self.within.means(points) + self.prior_mean

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, _LearnedEvaluation]:
        if not self.round_index:
            self.learner.check(points)
        chosen, evaluation = self.within.contenders(points, bonus)
        return chosen, self._shifted(evaluation)

    def gradient(self, points: FloatArray, evaluation: _LearnedEvaluation, bonus: float, first: int = 0) -> FloatArray:
        return self.within.gradient(points, evaluation.within, bonus, first)

    def covariance(self, points: FloatArray, evaluation: _LearnedEvaluation) -> FloatArray:
        return self.within.covariance(points, evaluation.within)

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        points, values, rewards = self.within.contributions(point)
        is_kept = rewards is not None and not self._is_history_free
        # as they came, where the posterior within learned them centred and bounded
        return points, values, rewards_at(points, *self.observations) if is_kept else None

    def evaluate_awaited(self, keys: Sequence[int], points: FloatArray) -> Prediction:
        found = self.within.evaluate_awaited(keys, points)
        return Prediction(found.mean + self.prior_mean, found.std)

    def weight_of(self, noise_variance: float) -> float:
        raise InputError(
            f"noise_variance: λ is learned here, so there is nothing to compare {noise_variance!r} with; give "
            "weight=, 2 for an observation as good as the mean of two."
        )

    def counted(self, rewards: FloatArray) -> FloatArray:
        return self.units.bounded(rewards)

    def _centred(self, rewards: Rewards) -> Rewards:
        """Return what the posterior within learns of rewards.

        Nothing, as long as their level and spread are unknown: a first reward of 50 would look like a wonder and be
        played until the kernel is learned, one of −50 like a disaster. Decisions go by standard deviations until then.
        """
        if self.model is None:
            return 0.0 * rewards
        return self.units.bounded(rewards) - self.prior_mean

    def due(self, points: FloatArray, means: FloatArray, stds: FloatArray) -> int | None:
        return None if self.places is None else self.places.due(points, means, stds)

    def _played(self, points: FloatArray, evaluated: Evaluated | None = None) -> Places | None:
        return None if self.places is None else self.places.played(points, evaluated)

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Evaluated | None = None) -> Self:
        within = self.within.awaiting(keys, points, _known(evaluated))
        return evolve(self, within=within, places=self._played(points, evaluated))

    def counting(self, points: Mapping[int, FloatArray]) -> Self:
        played = self.places if not points else self._played(np.array(list(points.values())))
        return evolve(self, within=self.within.counting(points), places=played)

    def abandoned(self, keys: Collection[int]) -> Self:
        return evolve(self, within=self.within.abandoned(keys))

    def learned(
        self,
        points: FloatArray,
        rewards: FloatArray,
        weights: FloatArray | None = None,
        evaluated: Evaluated | None = None,
    ) -> Self:
        if len(points) == 1 and weights is None:
            evaluation, row = (self.evaluate_finite(points), 0) if evaluated is None else evaluated
            within = self.within.learned(points, self._centred(rewards), None, (evaluation.within, row))
            kept = self._keeping(within, points, rewards, None)
            return evolve(kept, places=kept._played(points, evaluated))._refitted_if_due()
        self.learner.check(points)
        posterior, start = self, 0
        while start < len(points):
            left = len(points) - start
            count = left if posterior._next is None else min(posterior._next - posterior.round_index, left)
            some = slice(start, start + count)
            own = None if weights is None else weights[some]
            within = posterior.within.learned(points[some], posterior._centred(rewards[some]), own)
            kept = posterior._keeping(within, points[some], rewards[some], own)
            kept = evolve(kept, places=kept._played(points[some]))
            posterior, start = kept._refitted_if_due(), start + count
        return posterior

    def settled(
        self, keys: Sequence[int], points: FloatArray, rewards: FloatArray, weights: FloatArray | None = None
    ) -> Self:
        posterior = self
        for row, key in enumerate(keys):
            one, own = slice(row, row + 1), None if weights is None else weights[row : row + 1]
            within = posterior.within.settled([key], points[one], posterior._centred(rewards[one]), own)
            posterior = posterior._keeping(within, points[one], rewards[one], own)._refitted_if_due()
        return posterior

    def _keeping(
        self,
        within: Posterior,
        points: FloatArray,
        rewards: FloatArray,
        weights: FloatArray | None,
    ) -> Self:
        """Return it with observations as they came, which the posterior within has learned.

        One beyond what counts may be the first of a kind: it is not left for the next fit.
        """
        following, changes, places, high = self._next, self.kernel_changes, self.places, self.units.high
        if self.model is not None and rewards.max() > high:
            if places is not None:
                places = places.found(points[rewards > high], rewards[rewards > high], high)
            if following is not None and changes:
                soon = math.ceil(SURPRISED_GROWTH * changes[-1].round_index)
                following = min(following, max(within.round_index, soon))
        if self._kept is not None:
            kept = self._kept.extended(points, rewards, weights)
            return evolve(self, within=within, places=places, _next=following, _kept=kept)
        if self._is_history_free:
            return evolve(self, within=within, places=places)
        rows = self._rewards.extended(rewards)
        return evolve(self, within=within, places=places, _next=following, _rewards=rows)

    def of_history(
        self, points: FloatArray, rewards: FloatArray, candidates: FloatArray, weights: FloatArray | None = None
    ) -> Self:
        # the kernel first, from the whole history, and then the history by that kernel
        posterior = evolve(self, learner=copy.copy(self.learner))
        posterior.learner.check(points)
        units, refit = self.units, None
        if len(points) >= self.learning.first_round:
            try:
                units, refit = posterior._refitted(points, rewards, _sampler(self._seed, len(points)))
            except KernelBanditsError as reason:
                posterior = evolve(posterior, failures=self.failures.after(len(points), reason))
        if refit is None:
            return super(LearnedPosterior, posterior).of_history(points, rewards, candidates, weights)
        within = posterior.learner.build(refit.kernel, refit.regularization, 1)
        within = within.of_history(points, units.bounded(rewards) - refit.mean, refit.sample, weights)
        adopted = posterior._adopting(refit, within, units, points, rewards)
        kept = evolve(adopted._keeping(within, points, rewards, weights), places=adopted._played(points))
        return evolve(kept, _next=kept.learner.next_round(self.learning, kept.round_index))

    def _refitted_if_due(self) -> Self:
        """Return it with the kernel learned if it is time to."""
        if self._next is None or self.round_index < self._next:
            return self
        posterior = evolve(self, learner=copy.copy(self.learner))
        # a kernel that cannot be computed on these data explains nothing: the one that can be stays
        try:
            posterior = posterior._relearned()
        except KernelBanditsError as reason:
            posterior = evolve(posterior, failures=self.failures.after(self.round_index, reason))
        following = posterior.learner.next_round(self.learning, self.round_index)
        if self._is_history_free and following > self.learning.warm_up:
            return evolve(posterior, _next=None, _kept=None)
        return evolve(posterior, _next=following)

    def _relearned(self) -> Self:
        """Return it with the kernel that explains a sample best, if it is better by enough."""
        kept = self._kept
        points, rewards = self.observations if kept is None else (kept.points, kept.rewards)
        generator = _sampler(self._seed, self.round_index)
        units, refit = self._refitted(points, rewards, generator)
        if refit is None:
            if self.model is None:
                # rewards that are all equal say nothing but their level, which is then what to expect
                return evolve(self, prior_mean=float(rewards.mean()))
            return self
        within = self._rebuilt(refit, points, units.bounded(rewards) - refit.mean, self.dictionary_points)
        if not self.learner.accepts(self.within, within, refit, generator):
            return self
        return self._adopting(refit, within, units, points, rewards)

    # What overflows on the way is refused by name, or another model is found.
    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def _refitted(
        self, points: FloatArray, rewards: FloatArray, generator: np.random.Generator
    ) -> tuple[RewardUnits, Refit[Any] | None]:
        """Return the bounds of all rewards so far, and the model that explains what counts of them."""
        if self.learner.start is not None:
            return self.units, self.learner.refit(points, rewards, self.model, generator)
        units = RewardUnits.of(rewards)
        if units.cuts(rewards) and return_to_their_places(points, rewards, units):
            units = RewardUnits.of(rewards, may_be_cut=False)
        return units, self.learner.refit(points, units.bounded(rewards), self.model, generator)

    def _adopting(
        self, refit: Refit[Any], within: Posterior, units: RewardUnits, points: FloatArray, rewards: FloatArray
    ) -> Self:
        """Return it with a model, its posterior, and the units of the rewards (t,) at points (t, d) so far."""
        model = refit.model
        places = self.places if isinstance(model, MixedModel) else None
        if places is not None:
            are_arms, is_beyond = model.actions is None, rewards > units.high
            best = float(rewards.max())
            once = (np.unique(rewards, return_counts=True)[1] == 1).sum()
            u = float(once) / len(rewards) if are_arms else math.sqrt(dict(refit.shares)["noise"])
            places = places.measured(model.contexts, are_arms, u, best, points[is_beyond])
            if self.model is None and is_beyond.any():
                places = places.found(points[:0], rewards[is_beyond], units.high)
        return evolve(
            self,
            within=within,
            places=places,
            prior_mean=refit.mean,
            bonus=refit.bonus,
            shape=refit.shape,
            is_provisional=refit.is_provisional,
            model=refit.model,
            units=units,
            kernel_changes=(*self.kernel_changes, refit.change(within)),
        )

    def _rebuilt(self, refit: Refit[Any], points: FloatArray, centred: FloatArray, anchors: FloatArray) -> Posterior:
        """Return the posterior of a model with all observations and what is awaited.

        Args:
            refit: the model.
            points: all that were observed, shape (t, d).
            centred: what counts of their rewards, less the mean of the model, shape (t,).
            anchors: points to choose anchors from besides the sample, such as those before, shape (m, d).
        """
        within = self.learner.build(refit.kernel, refit.regularization, len(self.kernel_changes) + 1)
        # The kernel was learned without them: they change what is known of f, not how rough it is.
        weights, awaited, candidates = self.observed_weights, self.awaited_points, refit.sample
        if len(candidates) < len(points) or awaited:
            # what anchors stand for is to be explained too, whether or not it was sampled
            candidates = _candidates(candidates, anchors.reshape(-1, points.shape[1]), list(awaited.values()))
        within = within.of_history(points, centred, candidates, weights)
        return within.counting(awaited) if awaited else within

    def reseeded(self, entropy: int) -> Self:
        seed = np.random.SeedSequence(entropy, spawn_key=self._seed.spawn_key)
        learner, within = self.learner.reseeded(entropy), self.within.reseeded(entropy)
        return evolve(self, within=within, learner=learner, _seed=seed)

    def __repr__(self) -> str:
        return f"LearnedPosterior({self.within!r}, prior_mean={self.prior_mean:g}, changes={len(self.kernel_changes)})"


def _known(evaluated: Evaluated | None) -> Evaluated | None:
    """Return a point as the posterior within has evaluated it."""
    return None if evaluated is None else (evaluated[0].within, evaluated[1])


def _sampler(seed: np.random.SeedSequence, number: int) -> np.random.Generator:
    """Return what draws the sample of a fit after this number of observations."""
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number)))


def _candidates(sample: FloatArray, anchors: FloatArray, awaited: list[FloatArray]) -> FloatArray:
    """Return what anchors are chosen from; of the points whose reward is to come, as many at most as were sampled."""
    some = awaited[:: -(-len(awaited) // len(sample)) or 1]
    return np.unique(np.concatenate([sample, anchors, np.reshape(some, (-1, sample.shape[1]))]), axis=0)
