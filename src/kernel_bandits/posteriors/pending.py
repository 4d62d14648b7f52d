"""Points that were played and whose reward is pending: counted in standard deviations, not yet in means."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import setitem
from typing import Generic, Protocol, Self, TypeVar

from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, drop_step
from kernel_bandits.numerics.linalg import symmetric_times_vector
from kernel_bandits.posteriors.ridge import RidgeRegression


class Regression(Protocol):
    """What the pair needs of a regression."""

    drift: float
    log_determinant: float

    @property
    def size(self) -> int:
        """How many coordinates or points carry it."""

    @property
    def effective_dimension(self) -> float:
        """Trace K(K + λI)⁻¹."""

    def copy(self) -> Self:
        """Return an independent copy of the regression."""

    def count_many(self, coordinates: Sequence[FloatArray]) -> None:
        """Learn points with rewards that are never asked for, in a regression that nobody else holds."""

    def count_steps(self, coordinates: FloatArray) -> Steps:
        """Return the steps that learn a point with a reward that is never asked for.

        Variances depend on points alone.
        """


R = TypeVar("R", bound=Regression)


class Counted(Protocol):
    """What a posterior shows of the regression that carries it."""

    @property
    def size(self) -> int:
        """How many coordinates or points carry it."""

    @property
    def drift(self) -> float:
        """How far the tracked inverse was from the true one."""

    @property
    def log_determinant(self) -> float:
        """Log det(I + K/λ)."""

    @property
    def effective_dimension(self) -> float:
        """Trace K(K + λI)⁻¹."""


class Carrier(Protocol):
    """The regression of a posterior, with what is awaited."""

    @property
    def settled(self) -> Counted:
        """The regression on the rewards received."""

    @property
    def awaited(self) -> dict[int, Awaited]:
        """The points whose reward is pending."""


@dataclass(slots=True)
class Awaited:
    """A point whose reward is awaited.

    Attributes:
        point: itself, shape (d,).
        coordinates: by which the regression counts it: its φ when it was played, or the point itself if exact.
        residual: what the anchors then left unexplained of it.
    """

    point: FloatArray
    coordinates: FloatArray
    residual: float = 0.0


class Pending(Generic[R]):
    """A regression on the rewards received, and one beside it that counts awaited points too.

    Attributes:
        settled: has learned the points whose rewards came; means are its.
        ahead: has learned the awaited points too, with any rewards; standard deviations are its. The same object as
            ``settled`` while no reward is awaited.
        awaited: the points by key, in the order in which they were played.
    """

    __slots__ = ("ahead", "awaited", "settled")

    def __init__(self, settled: R) -> None:
        self.settled = self.ahead = settled
        self.awaited: dict[int, Awaited] = {}

    def expect_steps(self, key: int, awaited: Awaited) -> Steps:
        """Return the steps that count a point ahead."""
        ahead = self.settled.copy() if self.ahead is self.settled else self.ahead
        steps = ahead.count_steps(awaited.coordinates)
        if ahead is not self.ahead:
            carry_out(steps)
            steps = [(setattr, self, "ahead", ahead)]
        return [*steps, (setitem, self.awaited, key, awaited)]

    def recounted(self, awaited: dict[int, Awaited]) -> Pending[R]:
        """Return the pair that awaits these points instead, counted again."""
        pair = Pending(self.settled)
        if awaited:
            pair.ahead, pair.awaited = self.settled.copy(), awaited
            pair.ahead.count_many([each.coordinates for each in awaited.values()])
        return pair

    def release_steps(self, keys: Collection[int]) -> Steps:
        """Return the steps that await points no longer, which ``ahead`` no longer counts or ``settled`` has learned."""
        steps: Steps = [drop_step(self.awaited, keys)]
        if len(keys) == len(self.awaited):
            steps.append((setattr, self, "ahead", self.settled))
        return steps

    def forget_steps(self: Pending[RidgeRegression], keys: Collection[int], coordinates: Sequence[FloatArray]) -> Steps:
        """Return the steps that count awaited points no longer, given their φ."""
        ahead = self.settled
        if len(keys) < len(self.awaited):
            ahead = self.ahead.copy()
            ahead.forget_many(coordinates)
        return [(setattr, self, "ahead", ahead), drop_step(self.awaited, keys)]

    def copy(self) -> Pending[R]:
        """Return an independent copy of the pair."""
        pair = Pending(self.settled.copy())
        pair.ahead = pair.settled if self.ahead is self.settled else self.ahead.copy()
        pair.awaited = dict(self.awaited)
        return pair

    def observe_weighted_steps(
        self: Pending[RidgeRegression], features: FloatArray, reward: float, weight: float
    ) -> Steps:
        """The steps that learn a reward of noise variance λ/weight in both: √weight·r at √weight·φ."""
        scale = math.sqrt(weight)
        steps = self.settled.learn_steps(scale * features, scale * reward)
        return steps if self.ahead is self.settled else [*self.ahead.count_steps(scale * features), *steps]

    def observe_steps(
        self: Pending[RidgeRegression],
        features: FloatArray,
        solved: FloatArray,
        variance: float,
        mean: float,
        reward: float,
    ) -> Steps:
        """Return the steps that learn a reward in both, given h = Pφ and φᵀh with the P ahead, and mean = φᵀw."""
        settled, ahead = self.settled, self.ahead
        if ahead is settled:
            return settled.observe_steps(features, solved, variance, mean, reward)
        steps = ahead.observe_steps(features, solved, variance, 0.0, 0.0)
        solved = symmetric_times_vector(settled.covariance, features)
        return [*steps, *settled.observe_steps(features, solved, float(features @ solved), mean, reward)]
