"""A posterior that forgets: another one, rebuilt from what is left in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import setitem
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.kernels.timed import Timed
from kernel_bandits.learning.defaults import FIRST_TESTED_ROUND as FIRST_TESTED
from kernel_bandits.posteriors.base import Posterior
from kernel_bandits.posteriors.bounds import Bound
from kernel_bandits.posteriors.changes import Cusum, residual
from kernel_bandits.posteriors.facts import Evaluation
from kernel_bandits.posteriors.forgetting import Forgetting

# Builds a fresh posterior, with coins of its own for each number.
Builder: TypeAlias = Callable[[int, Posterior[Any] | None], Posterior[Any]]


@dataclass(frozen=True, slots=True)
class _Kept:
    """An observation in memory: its point (d,), reward, the weight it was given, and when it was played."""

    point: FloatArray
    reward: float
    weight: float
    time: int


@dataclass(slots=True)
class _ForgettingEvaluation(Evaluation):
    """Adds the evaluation of the posterior within."""

    within: Any


class ForgettingPosterior(Posterior[_ForgettingEvaluation]):
    """Another posterior, rebuilt from what is left in memory every few rounds.

    Args:
        build: builds a fresh posterior; with a kernel in time where the forgetting has one.
        forgetting: what is left.
    """

    def __init__(self, build: Builder, forgetting: Forgetting) -> None:
        within = build(0, None)
        super().__init__(within._facts, within._pending)
        self.forgetting = forgetting
        self._build, self._within = build, within
        self._renewals = 0
        # rounds played, pending ones included, and observed; the clock of the last renewal
        self._clock = self._observed = self._renewed = 0
        self._kept: list[_Kept] = []
        self._awaited_times: dict[int, int] = {}
        self._test = forgetting.detector()
        # the round of the last change; what was played before has left
        self._changed_at = 0
        self._share()

    def _share(self) -> None:
        """Show the facts of the posterior within, with the rounds of all time and the kernel of points."""
        facts = self._within._facts
        kernel = facts.kernel.kernel if isinstance(facts.kernel, Timed) else facts.kernel
        dimension = None if facts.dimension is None else facts.dimension - self._stamps
        if facts.failed_refits > self._facts.failed_refits:
            # within, only what is in memory counts as a round
            facts.failed_round = self._observed
        self._facts = replace(facts, kernel=kernel, round_index=self._observed, dimension=dimension)
        self._pending = self._within._pending

    @property
    def _stamps(self) -> int:
        """How many columns of time points have within."""
        return int(self.forgetting.time_half_life is not None)

    def _stamped(self, points: FloatArray, time: float | None = None) -> FloatArray:
        if not self._stamps:
            return points
        return np.hstack([points, np.full((len(points), 1), self._clock if time is None else time)])

    def _plain(self, points: FloatArray) -> FloatArray:
        return points[..., :-1] if self._stamps else points

    def describe(self, context_columns: int, points: FloatArray, box: Box | None = None) -> None:
        self._within.describe(context_columns, points, box)
        self._share()

    def within_box(self, low: FloatArray, high: FloatArray) -> None:
        self._within.within_box(low, high)

    def group_columns(self, labels: NDArray[np.intp]) -> None:
        self._within.group_columns(labels)

    @property
    def dictionary_points(self) -> FloatArray:
        return self._plain(self._within.dictionary_points)

    def awaited_point(self, key: int) -> FloatArray:
        return self._plain(self._within.awaited_point(key))

    @property
    def awaited_points(self) -> dict[int, FloatArray]:
        return {key: self._plain(point) for key, point in self._within.awaited_points.items()}

    def _observations(self) -> tuple[FloatArray, FloatArray]:
        return np.array([kept.point for kept in self._kept]), np.array([kept.reward for kept in self._kept])

    @property
    def observed_weights(self) -> FloatArray | None:
        """The weights of what is in memory, in the order in which rewards came, shape (n,)."""
        ages = np.maximum(self._renewed - np.array([kept.time for kept in self._kept], dtype=float), 0.0)
        fallen = self.forgetting.weights(ages)
        return self.given_weights * (1.0 if fallen is None else fallen)

    @property
    def given_weights(self) -> FloatArray:
        return np.array([kept.weight for kept in self._kept])

    def counted(self, rewards: FloatArray) -> FloatArray:
        return self._within.counted(rewards)

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        return super().bound_in(context, bonus) if self._stamps else self._within.bound_in(context, bonus)

    def evaluate(self, points: FloatArray) -> _ForgettingEvaluation:
        within = self._within.evaluate(self._stamped(points))
        return _ForgettingEvaluation(self._observed, within.mean, within.std, within)

    def gradient(
        self, points: FloatArray, evaluation: _ForgettingEvaluation, bonus: float, first: int = 0
    ) -> FloatArray:
        return self._plain(self._within.gradient(self._stamped(points), evaluation.within, bonus, first))

    def covariance(self, points: FloatArray, evaluation: _ForgettingEvaluation) -> FloatArray:
        return self._within.covariance(self._stamped(points), evaluation.within)

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        points, values, rewards = self._within.contributions(self._stamped(point[None, :])[0])
        return self._plain(points), values, rewards

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        with self._within.batch() as variance:
            yield lambda point: variance(self._stamped(point[None, :])[0])

    def observe_steps(self, point: FloatArray, reward: float, evaluation: _ForgettingEvaluation, row: int = 0) -> Steps:
        stamped = self._stamped(point[None, :])[0]
        return self._learn_steps(
            lambda within: within.observe_steps(stamped, reward, evaluation.within, row),
            _Kept(point, reward, 1.0, self._clock),
            self._clock + 1,
            (evaluation.mean.item(row), evaluation.std.item(row)),
        )

    def observe_weighted_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        stamped = self._stamped(point[None, :])[0]
        return self._learn_steps(
            lambda within: within.observe_weighted_steps(stamped, reward, weight),
            _Kept(point, reward, weight, self._clock),
            self._clock + 1,
        )

    def fulfil_steps(self, key: int, reward: float) -> Steps:
        return self._late_steps(key, reward, 1.0, lambda within: within.fulfil_steps(key, reward))

    def fulfil_weighted_steps(self, key: int, reward: float, weight: float) -> Steps:
        return self._late_steps(key, reward, weight, lambda within: within.fulfil_weighted_steps(key, reward, weight))

    def _late_steps(self, key: int, reward: float, weight: float, prepare: Callable[[Posterior[Any]], Steps]) -> Steps:
        """Return the steps that learn a late reward, which is as old as its decision; arguments as below."""
        kept = _Kept(self.awaited_point(key), reward, weight, self._awaited_times[key])
        if kept.time < self._changed_at:
            steps = [*self._within.abandon_steps([key]), (self._count, self._clock, self._observed + 1)]
        else:
            steps = self._learn_steps(prepare, kept, self._clock)
        return [*steps, (self._settle, key)]

    def _settle(self, key: int) -> None:
        """Forget when a decision was made, in the times of a posterior that may have been rebuilt; may be repeated."""
        self._awaited_times.pop(key, None)

    def _learn_steps(
        self,
        prepare: Callable[[Posterior[Any]], Steps],
        kept: _Kept,
        clock: int,
        predicted: tuple[float, float] | None = None,
    ) -> Steps:
        """Return the steps that learn an observation.

        The posterior is rebuilt from what is left if a step has passed, or if rewards have changed.

        Args:
            prepare: the steps of the posterior within.
            kept: the observation.
            clock: the time after it.
            predicted: mean and standard deviation of what was predicted of it, if they are known.
        """
        test = self._tested(kept, predicted)
        changed_at = None if test is None else test.changed_at
        if changed_at is None and clock - self._renewed < self.forgetting.step:
            tested: Steps = [] if test is None else [(setattr, self, "_test", test)]
            learned = [(self._kept.append, kept), (self._count, clock, self._observed + 1)]
            return [*prepare(self._within), *learned, *tested]
        # it is rebuilt apart, and takes over when it is complete
        twin = self.copy()
        carry_out(prepare(twin._within))
        twin._kept.append(kept)
        twin._count(clock, self._observed + 1)
        renewed = twin._renew(0 if changed_at is None else changed_at)
        if renewed and changed_at is not None and test is not None:
            twin._test, twin._changed_at = test.anew(clock), changed_at
        return [replace_state(self, twin)]

    def _tested(self, kept: _Kept, predicted: tuple[float, float] | None) -> Cusum | None:
        """Return the test of changes with one more observation; as it is while the model knows too little."""
        facts = self._within._facts
        if self._test is None or facts.round_index < FIRST_TESTED or facts.is_provisional:
            return self._test
        if predicted is None:
            evaluation = self._within.evaluate_finite(self._stamped(kept.point[None, :]))
            predicted = evaluation.mean.item(0), evaluation.std.item(0)
        mean, std = predicted
        variance = self._within.regularization / kept.weight
        z = residual(kept.reward, mean, std, variance, self._within.unit)
        return self._test.after(z, kept.time, len(facts.kernel_changes))

    def _count(self, clock: int, observed: int) -> None:
        """Write the time; may be repeated."""
        self._clock, self._observed = clock, observed
        self._share()

    def anticipate_steps(self, key: int, point: FloatArray, evaluation: _ForgettingEvaluation, row: int = 0) -> Steps:
        return [
            *self._within.anticipate_steps(key, self._stamped(point[None, :])[0], evaluation.within, row),
            (setitem, self._awaited_times, key, self._clock),
            (self._count, self._clock + 1, self._observed),
        ]

    def abandon_steps(self, keys: Collection[int]) -> Steps:
        forgotten = [(self._awaited_times.pop, key, None) for key in keys]
        return [*self._within.abandon_steps(keys), *forgotten, (self._count, self._clock, self._observed)]

    def weight_of(self, noise_variance: float) -> float:
        return self._within.weight_of(noise_variance)

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._within, twin._kept, twin._awaited_times = self._within.copy(), list(self._kept), dict(self._awaited_times)
        twin._share()
        return twin

    def _renew(self, since: int) -> bool:
        """Rebuild the posterior from what is left in memory since a time, in a copy that nobody else holds.

        Return False if it cannot be rebuilt now; then it is tried again: a step later, or with the next reward if a
        change was seen, since the test is as it was.
        """
        self._renewed = self._clock
        first = max(since, self._clock - self.forgetting.memory)
        left = [kept for kept in self._kept if kept.time >= first]
        times = np.array([kept.time for kept in left], dtype=float)
        fallen = self.forgetting.weights(self._clock - times)
        if not left or (fallen is None and len(left) == len(self._kept)):
            return True
        points, rewards = np.array([kept.point for kept in left]), np.array([kept.reward for kept in left])
        weights = np.array([kept.weight for kept in left]) * (1.0 if fallen is None else fallen)
        stamped = np.hstack([points, times[:, None]]) if self._stamps else points
        within = self._build(self._renewals + 1, self._within)
        within._facts.take_failures(self._within._facts)
        try:
            within.learn_history(stamped, rewards, stamped, None if (weights == 1.0).all() else weights)
            awaited = self._within.awaited_points
            if awaited:
                within.anticipate_all(awaited)
        except KernelBanditsError:
            return False
        self._kept, self._within = left, within
        self._renewals += 1
        self._share()
        return True

    def __repr__(self) -> str:
        return f"ForgettingPosterior({self._within!r}, {self.forgetting!r})"
