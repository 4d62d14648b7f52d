"""Notice that rewards have left their predictions, and forget what no longer holds.

The test of residuals, the rules by which observations are forgotten, and the posterior that forgets by them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.kernels.composite import Timed
from kernel_bandits.learning.defaults import (
    CHANGE_LIMIT,
    FIRST_TESTED_ROUND,
    LARGEST_RESIDUAL,
    RESIDUAL_COUNT,
    RESIDUAL_SHARE,
    SUSPECT_SHARE,
    TOLERATED_SHIFT,
)
from kernel_bandits.learning.noise import NoiseModel, UnequalNoise
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
from kernel_bandits.values import Pending, Rows, evolve, fact


def residual(reward: float, mean: float, std: float, variance: float) -> float:
    """Return z = (reward − mean)/√(std² + λ), within ±``LARGEST_RESIDUAL``."""
    z = (reward - mean) / math.sqrt(std**2 + variance)
    # written out, here and below, since every reward passes: max and min take several times as long
    return (
        z
        if -LARGEST_RESIDUAL <= z <= LARGEST_RESIDUAL
        else LARGEST_RESIDUAL
        if z > LARGEST_RESIDUAL
        else -LARGEST_RESIDUAL
    )


class Cusum(NamedTuple):
    """Two-sided CUSUM test of standardised residuals.

    It measures residuals in units of their own scale where that is above 1, and begins again when the kernel has
    changed: a kernel that was learned from few rewards is too sure of itself, which is no change of the process. It
    goes on if it is close to an alarm: the fit then learned from both sides of a change.

    Attributes:
        tolerated: shifts below this many standard deviations are no change.
        limit: of the statistics.
        above: the statistic of rewards above what was predicted.
        below: the same below.
        above_since: the round after which the statistic has been positive, where a change would have been.
        below_since: since when the other statistic has been positive.
        number: how many residuals there were.
        mean_square: the running mean of z².
        kernel_changes: how often the kernel had changed.
    """

    tolerated: float
    limit: float
    above: float = 0.0
    below: float = 0.0
    above_since: int = 0
    below_since: int = 0
    number: int = 0
    mean_square: float = 1.0
    kernel_changes: int = 0

    def after(self, z: float, time: int, kernel_changes: int = 0) -> Cusum:
        """Return the test with one more :func:`residual`.

        Args:
            z: the residual.
            time: of its decision, in rounds.
            kernel_changes: how often the kernel has changed.
        """
        number = self.number
        # the running mean of z² starts at 1
        share = RESIDUAL_SHARE if number > RESIDUAL_COUNT else max(RESIDUAL_SHARE, 1.0 / (number + 2))
        mean_square = self.mean_square + share * (z * z - self.mean_square)
        is_suspect = max(self.above, self.below) > SUSPECT_SHARE * self.limit
        before = self if kernel_changes == self.kernel_changes or is_suspect else self.anew(time)
        scaled = z / math.sqrt(mean_square) if mean_square > 1.0 else z
        above = max(before.above + scaled - self.tolerated, 0.0)
        below = max(before.below - scaled - self.tolerated, 0.0)
        return Cusum(
            self.tolerated,
            self.limit,
            above,
            below,
            before.above_since if above else time + 1,
            before.below_since if below else time + 1,
            number + 1,
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
        return self._replace(above=0.0, below=0.0, above_since=time, below_since=time)


# An observation leaves after this many half-lives, when its weight has fallen below 1 %.
HALF_LIVES = 7
# Weights are brought up to date this many times in a half-life or a window.
RENEWALS = 8


@dataclass(frozen=True)
class Forgetting:
    """How observations lose their weight as they age, in rounds: not at all.

    Weights fall in steps: every ``step`` rounds the posterior is rebuilt from what is left, in one pass of matrix
    products, O(n·m²) for n observations in memory. That is O(m²) a round, since n is a fixed multiple of the step. The
    anchors are then chosen anew from what is left, so that those whose mass has faded leave.
    """

    @property
    def memory(self) -> int:
        """The age at which an observation leaves; none does by default."""
        return sys.maxsize

    @property
    def step(self) -> int:
        """After how many rounds weights are brought up to date."""
        return sys.maxsize

    def weights(self, ages: FloatArray) -> FloatArray | None:
        """The weights of observations of these ages, shape (n,); None for 1 each."""
        del ages
        return None

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


@dataclass(frozen=True)
class Wander(_ByHalfLife):
    """A kernel in time: the expected rewards wander, and keep half of their correlation over ``half_life`` rounds.

    Unlike weights it widens the bounds of what was not played for long, so that old actions are tried again.

    Args:
        half_life: in rounds.
    """

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

    limit: float = CHANGE_LIMIT
    tolerated: float = TOLERATED_SHIFT

    def __post_init__(self) -> None:
        as_positive("limit", self.limit)
        as_positive("tolerated", self.tolerated)

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


class Builder(Protocol):
    """Builds the posteriors that follow each other as observations are forgotten."""

    def __call__(self, number: int, before: Posterior | None) -> Posterior:
        """Return a fresh posterior, with coins of its own for each number."""

    def reseeded(self, entropy: int) -> Builder:
        """Return the same with coins of another seed."""


@dataclass(slots=True)
class _ForgettingEvaluation(Evaluation):
    """Adds the evaluation of the posterior within."""

    within: Any


class ForgettingPosterior(PosteriorAround):
    """Another posterior, rebuilt every few rounds from what is left in memory, with its weights.

    Args:
        build: builds a fresh posterior; with a kernel in time where the forgetting has one.
        forgetting: what is left.
        unequal: how the noise of each observation is learned; None for one λ.

    Attributes:
        within: the posterior of what is left.
        forgetting: the rule.
        noise: what was learned of the noise; None before that.
        round_index: t, the observations of all time.
    """

    __slots__ = (
        "_awaited_times",
        "_build",
        "_changed_at",
        "_clock",
        "_points",
        "_renewals",
        "_renewed",
        "_rewards",
        "_test",
        "_times",
        "_unequal",
        "_unequal_next",
        "_weights",
        "failures",
        "forgetting",
        "noise",
        "round_index",
        "within",
    )

    forgets = True

    def __init__(self, build: Builder, forgetting: Forgetting, unequal: UnequalNoise | None = None) -> None:
        self.within: Posterior = build(0, None)
        self._unequal = unequal
        self.noise: NoiseModel | None = None if unequal is None else NoiseModel.equal()
        self._unequal_next = sys.maxsize if unequal is None else unequal.first
        self.forgetting: Forgetting = forgetting
        self._build = build
        self._renewals = 0
        self.round_index: int = 0
        # rounds played, pending ones included, and those of the last renewal
        self._clock = self._renewed = 0
        # what is in memory: points (n, d), rewards, the weights they were given, and when they were played
        self._points = self._rewards = self._weights = self._times = Rows()
        self._awaited_times = Pending[int]()
        self._test = forgetting.detector()
        # the round of the last change; what was played before has left
        self._changed_at = 0
        self.failures: Failures = self.within.failures

    prior_mean: float = fact("within.prior_mean")
    bonus: float = fact("within.bonus")
    shape: int = fact("within.shape")
    box: Box | None = fact("within.box")
    is_provisional: bool = fact("within.is_provisional")
    kernel_changes: tuple[KernelChange, ...] = fact("within.kernel_changes")
    learns_kernel: bool = fact("within.learns_kernel")
    may_be_due: bool = fact("within.may_be_due")

    @property
    def learns_in_order(self) -> bool:  # type: ignore[override] # computed here, kept elsewhere
        # successes that come before their silences look like a change
        return self._test is not None or self.within.learns_in_order

    @property
    def kernel(self) -> Any:  # type: ignore[override] # computed here, kept elsewhere
        within = self.within.kernel
        return within.kernel if isinstance(within, Timed) else within

    @property
    def dimension(self) -> int | None:  # type: ignore[override] # computed here, kept elsewhere
        return None if self.within.dimension is None else self.within.dimension - self._stamps

    @property
    def dictionary_points(self) -> FloatArray:
        return self._plain(self.within.dictionary_points)

    @property
    def awaited_points(self) -> dict[int, FloatArray]:
        return {key: self._plain(point) for key, point in self.within.awaited_points.items()}

    @property
    def observations(self) -> tuple[FloatArray, FloatArray]:
        return self._points.array, self._rewards.array

    @property
    def observed_weights(self) -> FloatArray | None:
        """The weights of what is in memory, in the order in which rewards came, shape (n,)."""
        fallen = self.forgetting.weights(np.maximum(self._renewed - self._times.array.astype(float), 0.0))
        return self._by_noise(self._points.array, self.given_weights) * (1.0 if fallen is None else fallen)

    @property
    def given_weights(self) -> FloatArray:
        return self._weights.array

    def _by_noise(self, points: FloatArray, given: FloatArray) -> FloatArray:
        """Return weights (n,) of observations: those given, or λ over the variance of the noise at points (n, d)."""
        if self.noise is None or self.noise.posterior is None:
            return given
        own = self.regularization / self.noise.variances(points)
        return np.where(given == 1.0, own, given)

    def _weighed(self, point: FloatArray, weight: FloatArray | None) -> FloatArray | None:
        """Return the weight (1,) that an observation is learned with, None for 1."""
        if self.noise is None or self.noise.posterior is None:
            return weight
        return self._by_noise(point, np.ones(1) if weight is None else weight)

    @property
    def _stamps(self) -> int:
        """How many columns of time points have within."""
        return int(self.forgetting.time_half_life is not None)

    def _stamped(self, points: FloatArray) -> FloatArray:
        if not self._stamps:
            return points
        return np.hstack([points, np.full((len(points), 1), self._clock)])

    def _plain(self, points: FloatArray) -> FloatArray:
        return points[..., :-1] if self._stamps else points

    def _with(self, within: Posterior, **changes: Any) -> Self:
        """Return it with another posterior within."""
        observed = changes.get("round_index", self.round_index)
        failures = within.failures
        if failures.count > self.failures.count:
            # within, only what is in memory counts as a round
            failures = replace(failures, round_index=observed)
        elif failures.count == self.failures.count:
            failures = self.failures
        return evolve(self, within=within, failures=failures, **changes)

    def described(self, context_columns: int, points: FloatArray, box: Box | None = None) -> Self:
        return self._with(self.within.described(context_columns, points, box))

    def in_box(self, box: Box) -> Self:
        return self._with(self.within.in_box(box))

    def shown(self, contexts: FloatArray) -> Self:
        return self._with(self.within.shown(contexts))

    def grouped(self, labels: NDArray[np.intp]) -> Self:
        return self._with(self.within.grouped(labels))

    def counted(self, rewards: FloatArray) -> FloatArray:
        return self.within.counted(rewards)

    def due(self, points: FloatArray, means: FloatArray, stds: FloatArray) -> int | None:
        return self.within.due(points, means, stds)

    def weight_of(self, noise_variance: float) -> float:
        return self.within.weight_of(noise_variance)

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        return super().bound_in(context, bonus) if self._stamps else self.within.bound_in(context, bonus)

    def evaluate(self, points: FloatArray) -> _ForgettingEvaluation:
        within = self.within.evaluate(self._stamped(points))
        return _ForgettingEvaluation(within.mean, within.std, within)

    def evaluate_awaited(self, keys: Sequence[int], points: FloatArray) -> Prediction:
        del keys  # as the model sees them now
        evaluation = self.evaluate_finite(points)
        return Prediction(evaluation.mean, evaluation.std)

    def gradient(
        self, points: FloatArray, evaluation: _ForgettingEvaluation, bonus: float, first: int = 0
    ) -> FloatArray:
        return self._plain(self.within.gradient(self._stamped(points), evaluation.within, bonus, first))

    def covariance(self, points: FloatArray, evaluation: _ForgettingEvaluation) -> FloatArray:
        return self.within.covariance(self._stamped(points), evaluation.within)

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        points, values, rewards = self.within.contributions(self._stamped(point[None, :])[0])
        return self._plain(points), values, rewards

    def learned(
        self,
        points: FloatArray,
        rewards: FloatArray,
        weights: FloatArray | None = None,
        evaluated: Evaluated | None = None,
    ) -> Self:
        posterior = self
        for row in range(len(points)):
            known = evaluated if row == 0 else None
            one, weight = slice(row, row + 1), None if weights is None else weights[row : row + 1]
            posterior = posterior._learned_one(points[one], rewards[one], weight, known)
        return posterior

    def _learned_one(
        self, point: FloatArray, reward: FloatArray, weight: FloatArray | None, evaluated: Evaluated | None
    ) -> Self:
        predicted = within = None
        if weight is None:
            evaluation, row = (self.evaluate_finite(point), 0) if evaluated is None else evaluated
            predicted, within = (evaluation.mean.item(row), evaluation.std.item(row)), (evaluation.within, row)
        learned = self.within.learned(self._stamped(point), reward, self._weighed(point, weight), within)
        return self._after(learned, point, reward, weight, self._clock, self._clock + 1, predicted)

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Evaluated | None = None) -> Self:
        posterior = self
        for row, key in enumerate(keys):
            known = None if evaluated is None or row else (evaluated[0].within, evaluated[1])
            within = posterior.within.awaiting([key], posterior._stamped(points[row : row + 1]), known)
            times = posterior._awaited_times.with_items({key: posterior._clock})
            posterior = posterior._with(within, _awaited_times=times, _clock=posterior._clock + 1)
        return posterior

    def settled(
        self, keys: Sequence[int], points: FloatArray, rewards: FloatArray, weights: FloatArray | None = None
    ) -> Self:
        posterior, stamped = self, self.within.awaited_points
        for row, key in enumerate(keys):
            one, weight = slice(row, row + 1), None if weights is None else weights[row : row + 1]
            # a late reward is as old as its decision
            time = posterior._awaited_times[key]
            known = evolve(posterior, _awaited_times=posterior._awaited_times.without([key]))
            if time < posterior._changed_at:
                within = posterior.within.abandoned([key])
                posterior = known._with(within, round_index=posterior.round_index + 1)
            else:
                own = posterior._weighed(points[one], weight)
                within = posterior.within.settled([key], stamped[key][None, :], rewards[one], own)
                posterior = known._after(within, points[one], rewards[one], weight, time, posterior._clock, None)
        return posterior

    def abandoned(self, keys: Collection[int]) -> Self:
        return self._with(self.within.abandoned(keys), _awaited_times=self._awaited_times.without(keys))

    def _after(
        self,
        within: Posterior,
        point: FloatArray,
        reward: FloatArray,
        weight: FloatArray | None,
        time: int,
        clock: int,
        predicted: tuple[float, float] | None,
    ) -> Self:
        """Return it with an observation in memory, rebuilt if a step has passed or rewards have changed.

        Args:
            within: the posterior within that has learned it.
            point: shape (1, d).
            reward: shape (1,).
            weight: shape (1,), or None for 1.
            time: when it was played.
            clock: the time after it.
            predicted: mean and standard deviation of what was predicted of it, if they are known.
        """
        number = 1.0 if weight is None else weight.item(0)
        effective = self._weighed(point, weight)
        known = 1.0 if effective is None else effective.item(0)
        test = self._tested(point, reward.item(0), known, time, predicted)
        changed_at = None if test is None else test.changed_at
        after = self._with(
            within,
            _points=self._points.extended(point),
            _rewards=self._rewards.extended(reward),
            _weights=self._weights.appended(number),
            _times=self._times.appended(time),
            _clock=clock,
            round_index=self.round_index + 1,
            # where rewards have changed but nothing can be rebuilt, the next reward shows it again
            _test=test if changed_at is None else self._test,
        )
        if self._unequal is not None and after.round_index >= self._unequal_next:
            after = evolve(after._with_noise(self._unequal), _unequal_next=self._unequal.after(after.round_index))
        is_reweighed = after.noise is not self.noise and any(one and one.posterior for one in (self.noise, after.noise))
        if changed_at is None and clock - self._renewed < self.forgetting.step and not is_reweighed:
            return after
        renewed = after._renewed_since(changed_at or 0)
        if renewed is None:
            return after._late()
        if test is None or changed_at is None:
            return renewed
        return evolve(renewed, _test=test.anew(clock), _changed_at=changed_at)

    def _with_noise(self, unequal: UnequalNoise) -> Self:
        """Return it with the noise that its residuals speak for, as far as they can be computed."""
        points, rewards = self._points.array, self.within.counted(self._rewards.array)
        weights = self._by_noise(points, self.given_weights)
        try:
            noise = NoiseModel.of(self, points, rewards, weights, unequal.most)
        except KernelBanditsError:
            return self
        return evolve(self, noise=noise)

    def _late(self) -> Self:
        """Return it unchanged, to be rebuilt a step later."""
        return evolve(self, _renewed=self._clock)

    def _tested(
        self, point: FloatArray, reward: float, weight: float, time: int, predicted: tuple[float, float] | None
    ) -> Cusum | None:
        """Return the test of changes with one more observation; the same while the model knows too little."""
        within = self.within
        if self._test is None or within.round_index < FIRST_TESTED_ROUND or within.is_provisional:
            return self._test
        if predicted is None:
            evaluation = within.evaluate_finite(self._stamped(point))
            predicted = evaluation.mean.item(0), evaluation.std.item(0)
        z = residual(reward, *predicted, within.regularization / weight)
        return self._test.after(z, time, len(within.kernel_changes))

    def _renewed_since(self, since: int) -> Self | None:
        """Return it rebuilt from what is left in memory since a time; None if it cannot be rebuilt now."""
        all_times = self._times.array
        left = np.flatnonzero(all_times >= max(since, self._clock - self.forgetting.memory))
        times = all_times[left].astype(float)
        fallen = self.forgetting.weights(self._clock - times)
        if not len(left) or (self.noise is None and fallen is None and len(left) == len(all_times)):
            return self._late()
        points, rewards, given = self._points.array[left], self._rewards.array[left], self._weights.array[left]
        weights = self._by_noise(points, given) * (1.0 if fallen is None else fallen)
        stamped = np.hstack([points, times[:, None]]) if self._stamps else points
        try:
            within = self._build(self._renewals + 1, self.within)
            within = within.of_history(stamped, rewards, stamped, None if (weights == 1.0).all() else weights)
            awaited = self.within.awaited_points
            within = within.counting(awaited) if awaited else within
        except KernelBanditsError:
            return None
        return self._with(
            within,
            _points=Rows.of(points),
            _rewards=Rows.of(rewards),
            _weights=Rows.of(given),
            _times=Rows.of(all_times[left]),
            _renewals=self._renewals + 1,
            _renewed=self._clock,
        )

    def reseeded(self, entropy: int) -> Self:
        return evolve(self, within=self.within.reseeded(entropy), _build=self._build.reseeded(entropy))

    def __repr__(self) -> str:
        options = [repr(one) for one in (self.forgetting, self._unequal) if one not in (None, Forgetting())]
        return f"ForgettingPosterior({', '.join([repr(self.within), *options])})"
