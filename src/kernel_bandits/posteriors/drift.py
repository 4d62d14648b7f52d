"""Notice that rewards have left their predictions, and forget what no longer holds.

Tests of residuals, the trust of a learned model in what it has learned, the rules by which observations are forgotten,
and the posterior that forgets by them.
"""

from __future__ import annotations

import copy
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import setitem
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.kernels.timed import Timed
from kernel_bandits.learning.defaults import (
    FALL_LIMIT,
    FALL_LIMIT_GROWTH,
    FALL_SUSPECT_SHARE,
    FIRST_TESTED_ROUND,
    LARGEST_RESIDUAL,
    RESIDUAL_COUNT,
    RESIDUAL_SHARE,
    TOLERATED_SHIFT,
)
from kernel_bandits.posteriors.base import Bound, Evaluation, Facts, Posterior


def residual(reward: float, mean: float, std: float, variance: float, unit: float) -> float:
    """Return z = (reward − mean)/√(std² + λ) with λ = variance·unit², within ±``LARGEST_RESIDUAL``."""
    # the square of a tiny unit is 0
    z = (reward - mean) / unit / math.sqrt((std / unit) ** 2 + variance)
    # written out, here and below, since every reward passes: max and min take several times as long
    return (
        z
        if -LARGEST_RESIDUAL <= z <= LARGEST_RESIDUAL
        else LARGEST_RESIDUAL
        if z > LARGEST_RESIDUAL
        else -LARGEST_RESIDUAL
    )


def residuals(rewards: FloatArray, means: FloatArray, stds: FloatArray, variance: float, unit: float) -> FloatArray:
    """Return the :func:`residual` of each of n rewards, shape (n,)."""
    z = (rewards - means) / unit / np.sqrt((stds / unit) ** 2 + variance)
    return np.where(z >= -LARGEST_RESIDUAL, np.minimum(z, LARGEST_RESIDUAL), -LARGEST_RESIDUAL)


def next_statistics(above: float, below: float, z: float, tolerated: float) -> tuple[float, float]:
    """Return the two statistics of a CUSUM test (Page 1954) after one more residual."""
    above, below = above + z - tolerated, below - z - tolerated
    return above if above > 0.0 else 0.0, below if below > 0.0 else 0.0


def next_mean_square(mean_square: float, count: int, z: float) -> float:
    """Return the running mean of z² after one more residual, given how many there were; it starts at 1."""
    return mean_square + (RESIDUAL_SHARE if count > RESIDUAL_COUNT else max(RESIDUAL_SHARE, 1.0 / (count + 2))) * (
        z * z - mean_square
    )


@dataclass(frozen=True)
class Cusum:
    """Two-sided CUSUM test of standardised residuals; frozen, so that a failed update changes nothing.

    It measures residuals in units of their own scale where that is above 1, and begins again when the kernel has
    changed: a kernel that was learned from few rewards is too sure of itself, which is no change of the process.

    Attributes:
        tolerated: shifts below this many standard deviations are no change.
        limit: of the statistics.
        above: the statistic of rewards above what was predicted.
        below: the same below.
        above_since: the round after which the statistic has been positive, where a change would have been.
        below_since: the same of the other.
        count: how many residuals there were.
        mean_square: the running mean of z².
        kernel_changes: how often the kernel had changed.
    """

    tolerated: float
    limit: float
    above: float = 0.0
    below: float = 0.0
    above_since: int = 0
    below_since: int = 0
    count: int = 0
    mean_square: float = 1.0
    kernel_changes: int = 0

    def after(self, z: float, time: int, kernel_changes: int = 0) -> Cusum:
        """Return the test with one more :func:`residual`.

        Args:
            z: the residual.
            time: of its decision, in rounds.
            kernel_changes: how often the kernel has changed.
        """
        mean_square = next_mean_square(self.mean_square, self.count, z)
        before = self if kernel_changes == self.kernel_changes else self.anew(time)
        scaled = z / math.sqrt(mean_square) if mean_square > 1.0 else z
        above, below = next_statistics(before.above, before.below, scaled, self.tolerated)
        return Cusum(
            self.tolerated,
            self.limit,
            above,
            below,
            before.above_since if above else time + 1,
            before.below_since if below else time + 1,
            self.count + 1,
            mean_square,
            kernel_changes,
        )

    @property
    def changed_at(self) -> int | None:
        """The round of the change; None if there was none."""
        if max(self.above, self.below) <= self.limit:
            return None
        return self.above_since if self.above > self.below else self.below_since

    def anew(self, time: int) -> Cusum:
        """Return a test that has seen no shift yet, of residuals of the same scale."""
        return replace(self, above=0.0, below=0.0, above_since=time, below_since=time)


# The weight of an observation that no longer counts. Not 0: the history divides by it. A million of them weigh as much
# as a thousandth of one that counts.
FORGOTTEN = 1e-9
# A test that has seen nothing yet.
_FRESH = Cusum(TOLERATED_SHIFT, FALL_LIMIT)


@dataclass(frozen=True)
class Trust:
    """Which observations a learned model rests on; frozen, so that a failed update changes nothing.

    Attributes:
        is_watched: whether rewards are tested at all.
        since: observations before this one count for nothing.
        test: of the rewards that came after it.
    """

    is_watched: bool = True
    since: int = 0
    test: Cusum = _FRESH

    def after(self, reward: float, mean: float, std: float, facts: Facts) -> Trust:
        """Return it with one more reward, and what a posterior with such facts predicted of it."""
        if not self.is_watched or facts.is_provisional or facts.round_index - self.since < FIRST_TESTED_ROUND:
            return self
        z = residual(reward, mean, std, facts.regularization, facts.unit)
        # A fit begins the test again, unless it is close to an alarm: the fit then learns from both sides of a change.
        is_suspect = self.test.below > FALL_SUSPECT_SHARE * FALL_LIMIT
        changes = self.test.kernel_changes if is_suspect else len(facts.kernel_changes)
        test = self.test.after(z, facts.round_index, changes)
        return Trust(self.is_watched, self.since, test)

    @property
    def lost_at(self) -> int | None:
        """The observation from which on rewards fell short for too long to be chance; None if they did not."""
        limit = max(self.test.limit, FALL_LIMIT_GROWTH * math.log(max(self.test.count, 1)))
        return self.test.below_since if self.test.below > limit else None

    def again(self) -> Trust:
        """Return the trust in what came from there on alone."""
        since = self.lost_at
        return self if since is None else Trust(self.is_watched, since, self.test.anew(since))

    def weights(self, given: FloatArray | None, count: int) -> FloatArray | None:
        """Return the weights of all observations so far, shape (count,), of those they were given; None for 1 each."""
        if not self.since:
            return given
        weights = np.ones(count) if given is None else given.copy()
        weights[: self.since] = np.minimum(weights[: self.since], FORGOTTEN)
        return weights


# An observation leaves after this many half-lives, when its weight has fallen below 1 %.
HALF_LIVES = 7
# Weights are brought up to date this many times in a half-life or a window.
RENEWALS = 8


class Forgetting(ABC):
    """How observations lose their weight as they age, in rounds.

    Weights fall in steps: every ``step`` rounds the posterior is rebuilt from what is left, in one pass of matrix
    products, O(n·m²) for n observations in memory. That is O(m²) a round, since n is a fixed multiple of the step. The
    anchors are then chosen anew from what is left, so that those whose mass has faded leave.
    """

    @property
    @abstractmethod
    def memory(self) -> int:
        """The age at which an observation leaves."""

    @property
    @abstractmethod
    def step(self) -> int:
        """After how many rounds weights are brought up to date."""

    @abstractmethod
    def weights(self, ages: FloatArray) -> FloatArray | None:
        """The weights of observations of these ages, shape (n,); None for 1 each."""

    @property
    def time_half_life(self) -> float | None:
        """Of the kernel in time, if there is one."""
        return None

    def detector(self) -> Cusum | None:
        """Return a test that has seen nothing yet, where observations leave once rewards have changed."""
        return None


@dataclass(frozen=True)
class _ByHalfLife(Forgetting):
    """What rules with a half-life share.

    Attributes:
        half_life: in rounds.
    """

    half_life: float

    def __post_init__(self) -> None:
        as_positive("half_life", self.half_life)

    @property
    def memory(self) -> int:
        return max(2, round(HALF_LIVES * self.half_life))

    @property
    def step(self) -> int:
        return max(1, round(self.half_life / RENEWALS))


@dataclass(frozen=True)
class Discount(_ByHalfLife):
    """Weights that fall by half every ``half_life`` rounds, as in the weighted GP-UCB of Deng et al. (2022).

    Args:
        half_life: in rounds.
    """

    def weights(self, ages: FloatArray) -> FloatArray:
        return np.exp2(-ages / self.half_life)


@dataclass(frozen=True)
class Window(Forgetting):
    """Only the last rounds count: at least ``size`` of them, and at most an eighth more.

    Args:
        size: in rounds.
    """

    size: int

    def __post_init__(self) -> None:
        as_count("size", self.size)

    @property
    def memory(self) -> int:
        return self.size

    @property
    def step(self) -> int:
        return max(1, self.size // RENEWALS)

    def weights(self, ages: FloatArray) -> None:
        del ages


@dataclass(frozen=True)
class Wander(_ByHalfLife):
    """A kernel in time: the expected rewards wander, and keep half of their correlation over ``half_life`` rounds.

    Unlike weights it widens the bounds of what was not played for long, so that old actions are tried again.

    Args:
        half_life: in rounds.
    """

    def weights(self, ages: FloatArray) -> None:
        del ages

    @property
    def time_half_life(self) -> float:
        return self.half_life


@dataclass(frozen=True)
class Restart(Forgetting):
    """Everything counts until rewards leave their predictions; then everything before the change is forgotten.

    While nothing changes nothing is lost. The test is a CUSUM test of the standardised residuals. It sees a shift of
    one standard deviation after about 2·``limit`` rounds.

    Args:
        limit: of the test. Rewards of a model that holds pass 12 once in about 700,000 rounds, 8 once in about 10,000.
        tolerated: shifts below this many standard deviations are no change.
    """

    limit: float = 12.0
    tolerated: float = TOLERATED_SHIFT

    def __post_init__(self) -> None:
        as_positive("limit", self.limit)
        as_positive("tolerated", self.tolerated)

    @property
    def memory(self) -> int:
        return sys.maxsize

    @property
    def step(self) -> int:
        return sys.maxsize

    def weights(self, ages: FloatArray) -> None:
        del ages

    def detector(self) -> Cusum:
        return Cusum(self.tolerated, self.limit)


def require_forgetting(value: object) -> Forgetting:
    """Return what a ``forgetting=`` argument asks for, or raise."""
    if not isinstance(value, Forgetting):
        raise InputError(
            f"forgetting: expected Discount(half_life), Window(size), Wander(half_life) or Restart(), got {value!r}; "
            "for instance forgetting=kernel_bandits.Discount(half_life=500)."
        )
    return value


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
        if self._test is None or facts.round_index < FIRST_TESTED_ROUND or facts.is_provisional:
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
