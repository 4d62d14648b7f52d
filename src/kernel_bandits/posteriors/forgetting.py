"""Posteriors that forget: by falling weights, by a window, or by a kernel in time."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import setitem
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.commit import Steps, carry_out, replace_state
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.kernels.timed import Timed
from kernel_bandits.posteriors.base import Posterior
from kernel_bandits.posteriors.facts import Evaluation

# An observation leaves after this many half-lives, when its weight has fallen below 1 %.
HALF_LIVES = 7
# Weights are brought up to date this many times in a half-life or a window.
RENEWALS = 8

# Builds a fresh posterior, with coins of its own for each number.
Builder: TypeAlias = Callable[[int, Posterior[Any] | None], Posterior[Any]]


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
        self._share()

    def _share(self) -> None:
        """Show the facts of the posterior within, with the rounds of all time and the kernel of points."""
        facts = self._within._facts
        kernel = facts.kernel.kernel if isinstance(facts.kernel, Timed) else facts.kernel
        dimension = None if facts.dimension is None else facts.dimension - self._stamps
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

    def describe(self, context_columns: int, actions: FloatArray) -> None:
        self._within.describe(context_columns, actions)
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
        return np.array([kept.weight for kept in self._kept]) * (1.0 if fallen is None else fallen)

    def evaluate(self, points: FloatArray) -> _ForgettingEvaluation:
        within = self._within.evaluate(self._stamped(points))
        return _ForgettingEvaluation(self._observed, within.mean, within.std, within)

    def gradient(self, points: FloatArray, evaluation: _ForgettingEvaluation, bonus: float) -> FloatArray:
        return self._plain(self._within.gradient(self._stamped(points), evaluation.within, bonus))

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
        )

    def observe_weighted_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        stamped = self._stamped(point[None, :])[0]
        return self._learn_steps(
            lambda within: within.observe_weighted_steps(stamped, reward, weight),
            _Kept(point, reward, weight, self._clock),
            self._clock + 1,
        )

    def fulfil_steps(self, key: int, reward: float) -> Steps:
        kept = _Kept(self.awaited_point(key), reward, 1.0, self._awaited_times[key])
        steps = self._learn_steps(lambda within: within.fulfil_steps(key, reward), kept, self._clock)
        return [*steps, (self._awaited_times.pop, key, None)]

    def _learn_steps(self, prepare: Callable[[Posterior[Any]], Steps], kept: _Kept, clock: int) -> Steps:
        """The steps that learn an observation, and rebuild the posterior from what is left if a step has passed."""
        if clock - self._renewed < self.forgetting.step:
            return [*prepare(self._within), (self._kept.append, kept), (self._count, clock, self._observed + 1)]
        # it is rebuilt apart, and takes over when it is complete
        twin = self.copy()
        carry_out(prepare(twin._within))
        twin._kept.append(kept)
        twin._count(clock, self._observed + 1)
        twin._renew()
        return [replace_state(self, twin)]

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

    def _renew(self) -> None:
        """Rebuild the posterior from what is left in memory, in a copy that nobody else holds."""
        self._renewed = self._clock
        left = [kept for kept in self._kept if self._clock - kept.time <= self.forgetting.memory]
        times = np.array([kept.time for kept in left], dtype=float)
        fallen = self.forgetting.weights(self._clock - times)
        if not left or (fallen is None and len(left) == len(self._kept)):
            return
        points, rewards = np.array([kept.point for kept in left]), np.array([kept.reward for kept in left])
        weights = np.array([kept.weight for kept in left]) * (1.0 if fallen is None else fallen)
        stamped = np.hstack([points, times[:, None]]) if self._stamps else points
        within = self._build(self._renewals + 1, self._within)
        try:
            within.learn_history(stamped, rewards, stamped, None if (weights == 1.0).all() else weights)
            awaited = self._within.awaited_points
            if awaited:
                within.anticipate_many(awaited)
        except KernelBanditsError:
            # the reward is learned; what cannot be rebuilt now is tried again a step later
            return
        self._kept, self._within = left, within
        self._renewals += 1
        self._share()

    def __repr__(self) -> str:
        return f"ForgettingPosterior({self._within!r}, {self.forgetting!r})"


def require_forgetting(value: object) -> Forgetting:
    """Return what a ``forgetting=`` argument asks for, or raise."""
    if not isinstance(value, Forgetting):
        raise InputError(
            f"forgetting: expected Discount(half_life), Window(size) or Wander(half_life), got {value!r}; "
            "for instance forgetting=kernel_bandits.Discount(half_life=500)."
        )
    return value
