"""A posterior that learns its kernel as it goes: lengthscales, output variance, noise and mean from the rewards."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.learning.columns import Rewards, RewardUnits
from kernel_bandits.learning.defaults import UNKNOWN_NOISE
from kernel_bandits.learning.fit import KernelLearning
from kernel_bandits.posteriors.base import Bound, Evaluation, KernelChange, Posterior
from kernel_bandits.posteriors.drift import Trust
from kernel_bandits.posteriors.history import History, rewards_at
from kernel_bandits.posteriors.learners import Learner, Refit


@dataclass(slots=True)
class _LearnedEvaluation(Evaluation):
    """Adds the evaluation of the posterior within, whose mean is less the prior mean."""

    within: Any


class LearnedPosterior(Posterior[_LearnedEvaluation]):
    """Another posterior, whose kernel, λ and prior mean are learned by maximum evidence at doubling times.

    A change rebuilds dictionary and posterior from the whole history in one pass. All numbers are in the units of the
    data. Where nothing was known of the rewards, what is learned of them is bounded as :class:`RewardUnits` says; they
    are kept as they were, and bounded anew at each change.

    Where nothing was known it also notices that rewards stay below what was predicted of them. It then falls back to
    its prior and to what came after the fall (:mod:`~kernel_bandits.posteriors.drift`). A log that is learned in
    bulk is not watched, nor are weighted observations.

    Args:
        learner: what is learned.
        learning: when.
        seed: of the samples.
    """

    learns_kernel = True
    falls_back = property(attrgetter("_trust.is_watched"))

    def __init__(self, learner: Learner[Any], learning: KernelLearning, seed: np.random.SeedSequence) -> None:
        start = learner.start
        within = learner.build(None, UNKNOWN_NOISE if start is None else start.noise, 0)
        super().__init__(within._facts, within._pending)
        self._within = within
        self._facts.prior_mean = 0.0 if start is None else start.mean
        self.learning = learning
        self._learner, self._seed = learner, seed
        self._model = start
        self._next: int | None = learning.first_round
        self._units = RewardUnits()
        # Rewards as they came, where the history is kept: those that the posterior within learns are bounded and
        # rounded, and equal ones would differ after some changes of the prior mean.
        self._rewards = array("d")
        # A history-free stream until the kernel is frozen.
        self._kept = History() if self._is_history_free else None
        self._trust = Trust(learning.fall_back and start is None and self._kept is None)

    @property
    def learner(self) -> Learner[Any]:
        """What is learned."""
        return self._learner

    def within_box(self, low: FloatArray, high: FloatArray) -> None:
        self._learner.within_box(low, high)

    def describe(self, context_columns: int, points: FloatArray, box: Box | None = None) -> None:
        if self.round_index or self._pending.awaited:
            return
        twin = copy.copy(self)
        twin._learner = copy.copy(self._learner)
        twin._learner.describe(context_columns, points, box)
        if self._model is None:
            twin._within = twin._learner.build(None, UNKNOWN_NOISE, 0)
            twin._facts, twin._pending = twin._within._facts, twin._within._pending
        carry_out([replace_state(self, twin)])

    def group_columns(self, labels: NDArray[np.intp]) -> None:
        if not self.round_index:
            self._learner.group_columns(labels)

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._within, twin._learner = self._within.copy(), copy.copy(self._learner)
        twin._facts, twin._pending = twin._within._facts, twin._within._pending
        twin._rewards, twin._kept = self._rewards[:], None if self._kept is None else self._kept.copy()
        return twin

    def _observations(self) -> tuple[FloatArray, FloatArray]:
        return self._within._observations()[0], np.array(self._rewards)

    @property
    def _is_history_free(self) -> bool:
        return self.approximation == "history-free"

    @property
    def dictionary_points(self) -> FloatArray:
        return self._within.dictionary_points

    def _in_data_units(self, means: FloatArray) -> FloatArray:
        return means + self.prior_mean if self.unit == 1.0 else self.unit * means + self.prior_mean

    def _shifted(self, evaluation: Evaluation) -> _LearnedEvaluation:
        std = evaluation.std if self.unit == 1.0 else self.unit * evaluation.std
        return _LearnedEvaluation(evaluation.round_index, self._in_data_units(evaluation.mean), std, evaluation)

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        if not self.round_index:
            # the columns are still to be checked
            return super().bound_in(context, bonus)
        return self._within.bound_in(context, bonus)

    def evaluate(self, points: FloatArray) -> _LearnedEvaluation:
        if not self.round_index:
            self._learner.check(points)
        return self._shifted(self._within.evaluate(points))

    def means(self, points: FloatArray) -> FloatArray:
        if not self.round_index:
            self._learner.check(points)
        return self._in_data_units(self._within.means(points))

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, _LearnedEvaluation]:
        if not self.round_index:
            self._learner.check(points)
        chosen, evaluation = self._within.contenders(points, bonus)
        return chosen, self._shifted(evaluation)

    def gradient(self, points: FloatArray, evaluation: _LearnedEvaluation, bonus: float, first: int = 0) -> FloatArray:
        return self.unit * self._within.gradient(points, evaluation.within, bonus, first)

    def covariance(self, points: FloatArray, evaluation: _LearnedEvaluation) -> FloatArray:
        return self._within.covariance(points, evaluation.within)

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        points, values, rewards = self._within.contributions(point)
        is_kept = rewards is not None and not self._is_history_free
        # as they came, where the posterior within learned them centred and bounded
        return points, self.unit * values, rewards_at(points, *self._observations()) if is_kept else None

    def batch(self) -> AbstractContextManager[Callable[[FloatArray], float]]:
        return self._within.batch()

    def predict_awaited(self, key: int) -> tuple[float, float]:
        mean, std = self._within.predict_awaited(key)
        return self.unit * mean + self.prior_mean, self.unit * std

    def anticipate_steps(self, key: int, point: FloatArray, evaluation: _LearnedEvaluation, row: int = 0) -> Steps:
        return self._within.anticipate_steps(key, point, evaluation.within, row)

    def anticipate_many_steps(self, keys: Sequence[int], points: FloatArray) -> tuple[int, Steps]:
        return self._within.anticipate_many_steps(keys, points)

    def abandon_steps(self, keys: Collection[int]) -> Steps:
        return self._within.abandon_steps(keys)

    def abandon_many_steps(self, keys: Sequence[int]) -> Iterator[tuple[int, Steps]]:
        return self._within.abandon_many_steps(keys)

    def observe_steps(self, point: FloatArray, reward: float, evaluation: _LearnedEvaluation, row: int = 0) -> Steps:
        centred = self._centred(reward)
        return self._learn_steps(
            point,
            reward,
            lambda within: within.observe_steps(point, centred, evaluation.within, row),
            trust=self._trust.after(reward, evaluation.mean.item(row), evaluation.std.item(row), self._facts),
        )

    def observe_weighted_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        centred = self._centred(reward)
        return self._learn_steps(
            point, reward, lambda within: within.observe_weighted_steps(point, centred, weight), weight
        )

    def weight_of(self, noise_variance: float) -> float:
        raise InputError(
            f"noise_variance: λ is learned here, so there is nothing to compare {noise_variance!r} with; give "
            "weight=, 2 for an observation as good as the mean of two."
        )

    @property
    def observed_weights(self) -> FloatArray | None:
        return self._within.observed_weights if self._kept is None else self._kept.weights

    def learn_history(
        self, points: FloatArray, rewards: FloatArray, candidates: FloatArray, weights: FloatArray | None = None
    ) -> None:
        # the kernel first, from the whole history, and then the history by that kernel
        self._learner.check(points)
        units, refit = self._units, None
        if len(points) >= self.learning.first_round:
            try:
                units, refit = self._refitted(points, rewards, _sampler(self._seed, len(points)))
            except KernelBanditsError as reason:
                self._facts.count_failure(len(points), reason)
        if refit is None:
            super().learn_history(points, rewards, candidates, weights)
            return
        within = self._learner.build(refit.kernel, refit.regularization, 1)
        within.learn_history(points, units.bounded(rewards) / units.unit - refit.mean, refit.sample, weights)
        self._adopt(refit, within, units)
        self._keep(points, rewards, weights)
        self._next = self._learner.next_round(self.learning, self.round_index)

    def fulfil_steps(self, key: int, reward: float) -> Steps:
        point, centred = self._pending.awaited[key].point, self._centred(reward)
        trust = self._trust
        if trust.is_watched:
            trust = trust.after(reward, *self.predict_awaited(key), self._facts)
        return self._learn_steps(point, reward, lambda within: within.fulfil_steps(key, centred), trust=trust)

    def _learn_steps(
        self,
        point: FloatArray,
        reward: float,
        prepare: Callable[[Posterior[Any]], Steps],
        weight: float = 1.0,
        trust: Trust | None = None,
    ) -> Steps:
        """Return the steps that learn an observation, and the kernel if it is time to or the model no longer holds."""
        trust = self._trust if trust is None else trust
        is_due = self._next is not None and self.round_index + 1 >= self._next
        if not is_due and trust.lost_at is None:
            steps = prepare(self._within)
            if self._kept is not None:
                return steps + self._kept.append_steps(point, reward, weight)
            if not self._is_history_free:
                steps += [(self._rewards.append, reward), (setattr, self, "_trust", trust)]
            return steps
        # a kernel is learned apart, with the observation, and takes over when it is complete
        twin = self.copy()
        carry_out(prepare(twin._within))
        twin._keep(point[None, :], np.array([reward]), None if weight == 1.0 else np.array([weight]))
        twin._trust = trust
        if trust.lost_at is None:
            twin._learn_if_due()
        else:
            twin._fall_back()
        return [replace_state(self, twin)]

    def observe_many_steps(self, points: FloatArray, rewards: FloatArray) -> Iterator[tuple[int, Steps]]:
        self._learner.check(points)
        start = 0
        while start < len(points):
            stop = len(points) if self._next is None else min(start + self._next - self.round_index, len(points))
            twin, first = self.copy(), start
            try:
                for count, steps in twin._within.observe_many_steps(
                    points[first:stop], self._centred(rewards[first:stop])
                ):
                    carry_out(steps)
                    twin._keep(points[start : start + count], rewards[start : start + count])
                    start += count
            except Exception:
                # the observations before a failure stay learned
                if start > first:
                    yield start - first, [replace_state(self, twin)]
                raise
            twin._learn_if_due()
            yield start - first, [replace_state(self, twin)]

    def _keep(self, points: FloatArray, rewards: FloatArray, weights: FloatArray | None = None) -> None:
        """Keep observations as they came, in a copy that nobody else holds."""
        if self._kept is not None:
            self._kept.extend(points, rewards, weights)
        elif not self._is_history_free:
            self._rewards.extend(rewards.tolist())

    def counted(self, rewards: FloatArray) -> FloatArray:
        return self._units.bounded(rewards)

    def _centred(self, rewards: Rewards) -> Rewards:
        """Return what the posterior within learns of rewards.

        Nothing, as long as their level and spread are unknown: a first reward of 50 would look like a wonder and be
        played until the kernel is learned, one of −50 like a disaster. Decisions go by standard deviations until then.
        """
        if self._model is None:
            return 0.0 * rewards
        return (self._units.bounded(rewards) - self.prior_mean) / self.unit

    def _learn_if_due(self) -> None:
        """Learn the kernel if it is time to."""
        if self._next is None or self.round_index < self._next:
            return
        # a kernel that cannot be computed on these data explains nothing: the one that can be stays
        try:
            self._learn_kernel()
        except KernelBanditsError as reason:
            self._facts.count_failure(self.round_index, reason)
        self._next = self._round_of_next_fit()
        if self._is_history_free and self._next > self.learning.warm_up:
            self._next = self._kept = None

    def _round_of_next_fit(self) -> int:
        since = self._trust.since
        return since + self._learner.next_round(self.learning, self.round_index - since)

    def _learn_kernel(self) -> None:
        """Change to the kernel that explains a sample best, if it is better by enough."""
        kept = self._kept
        points, rewards = self._observations() if kept is None else (kept.points, kept.rewards)
        generator = _sampler(self._seed, self.round_index)
        since = self._trust.since
        units, refit = self._refitted(points[since:], rewards[since:], generator)
        if refit is None:
            if self._model is None:
                # rewards that are all equal say nothing but their level, which is then what to expect
                self._facts.prior_mean = float(rewards[since:].mean())
            return
        within = self._rebuilt(refit, points, units.bounded(rewards) / units.unit - refit.mean, self.dictionary_points)
        if not self._learner.accepts(self._within, within, refit, generator):
            return
        self._adopt(refit, within, units)

    def _fall_back(self) -> None:
        """Begin again with what came since rewards fell, in a copy that nobody else holds.

        If that cannot be computed the model stays, and its test begins again.
        """
        twin = self.copy()
        try:
            twin._begin_again()
        except KernelBanditsError as reason:
            self._facts.count_failure(self.round_index, reason)
            self._trust = replace(self._trust, test=self._trust.test.anew(self.round_index))
            return
        carry_out([replace_state(self, twin)])

    def _begin_again(self) -> None:
        """Learn a model anew from what is still trusted; before there is enough of it, know the level alone."""
        self._trust, self._model, self._units = self._trust.again(), None, RewardUnits()
        points, rewards = self._observations()
        kept, earned = points[self._trust.since :], rewards[self._trust.since :]
        self._learner.look_again(kept)
        units, refit = self._units, None
        if len(kept) >= self.learning.first_round:
            units, refit = self._refitted(kept, earned, _sampler(self._seed, self.round_index))
        mean = float(earned.mean()) if refit is None else refit.mean
        centred = np.zeros(len(points)) if refit is None else units.bounded(rewards) / units.unit - mean
        # what the old anchors stand for no longer counts
        within = self._rebuilt(refit, points, centred, kept)
        if refit is not None:
            self._adopt(refit, within, units)
        else:
            within._facts.prior_mean, within._facts.is_provisional = mean, True
            self._take(within, self.kernel_changes)
        self._next = self._round_of_next_fit()

    # What overflows on the way is refused by name, or another model is found.
    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def _refitted(
        self, points: FloatArray, rewards: FloatArray, generator: np.random.Generator
    ) -> tuple[RewardUnits, Refit[Any] | None]:
        """Return the units of all rewards so far, and the model that explains them in these units."""
        if self._learner.start is not None:
            return self._units, self._learner.refit(points, rewards, self._model, generator)
        units = RewardUnits.of(rewards, self.unit)
        model = self._model if units.unit == self.unit else None
        return units, self._learner.refit(points, units.bounded(rewards) / units.unit, model, generator)

    def _adopt(self, refit: Refit[Any], within: Posterior[Any], units: RewardUnits) -> None:
        """Go on with a model, its posterior and the units of all rewards so far, in a copy that nobody else holds."""
        facts = within._facts
        facts.prior_mean, facts.unit = units.unit * refit.mean, units.unit
        facts.bonus, facts.shape, facts.is_provisional = refit.bonus, refit.shape, refit.is_provisional
        self._model, self._units = refit.model, units
        self._take(within, (*self.kernel_changes, refit.change(facts)))

    def _take(self, within: Posterior[Any], kernel_changes: tuple[KernelChange, ...]) -> None:
        """Go on with another posterior within."""
        facts = within._facts
        facts.take_failures(self._facts)
        facts.kernel_changes, facts.trusted_since = kernel_changes, self._trust.since
        self._within, self._facts, self._pending = within, facts, within._pending

    def _rebuilt(
        self, refit: Refit[Any] | None, points: FloatArray, centred: FloatArray, anchors: FloatArray
    ) -> Posterior[Any]:
        """Return the posterior of a model, or of nothing known, with all observations and what is awaited.

        Args:
            refit: the model; None where nothing is known.
            points: all that were observed, shape (t, d).
            centred: their rewards in units of the model, less its mean, shape (t,).
            anchors: points to choose anchors from besides the sample, such as those before, shape (m, d).
        """
        kernel, regularization = (None, UNKNOWN_NOISE) if refit is None else (refit.kernel, refit.regularization)
        within = self._learner.build(kernel, regularization, len(self.kernel_changes) + 1)
        # The kernel was learned without them: they change what is known of f, not how rough it is.
        weights = self._trust.weights(self.observed_weights, len(points))
        awaited = self.awaited_points
        candidates = anchors if refit is None else refit.sample
        if len(candidates) < len(points) or awaited:
            # what anchors stand for is to be explained too, whether or not it was sampled
            candidates = _candidates(candidates, anchors.reshape(-1, points.shape[1]), list(awaited.values()))
        within.learn_history(points, centred, candidates, weights)
        if awaited:
            within.anticipate_all(awaited)
        return within

    def __repr__(self) -> str:
        return f"LearnedPosterior({self._within!r}, prior_mean={self.prior_mean:g}, changes={len(self.kernel_changes)})"


def _sampler(seed: np.random.SeedSequence, number: int) -> np.random.Generator:
    """Return what draws the sample of a fit after this number of observations."""
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number)))


def _candidates(sample: FloatArray, anchors: FloatArray, awaited: list[FloatArray]) -> FloatArray:
    """Return what anchors are chosen from; of the points whose reward is to come, as many at most as were sampled."""
    some = awaited[:: -(-len(awaited) // len(sample)) or 1]
    return np.unique(np.concatenate([sample, anchors, np.reshape(some, (-1, sample.shape[1]))]), axis=0)
