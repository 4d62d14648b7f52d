"""Points that were played and whose reward is still to come: counted in standard deviations, not yet in means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from kernel_bandits.arrays import FloatArray
from kernel_bandits.numerics.linalg import symmetric_times_vector
from kernel_bandits.posteriors.regression import RidgeRegression


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
        """A regression that goes on by itself."""

    def count(self, coordinates: FloatArray) -> None:
        """Learn a point with a reward that is never asked for: variances depend on points alone."""


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
        """The regression on the rewards that came."""

    @property
    def awaited(self) -> dict[int, Awaited]:
        """The points whose reward is to come."""


@dataclass(frozen=True, slots=True)
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
    """A regression on every reward that came, and one beside it that counts awaited points too.

    Attributes:
        settled: has learned the points whose rewards came; means are its.
        ahead: has learned the awaited points too, with any rewards; standard deviations are its. The same object as
            ``settled`` while no reward is awaited.
        awaited: the points by key, in the order in which they were played.
    """

    def __init__(self, settled: R) -> None:
        self.settled = self.ahead = settled
        self.awaited: dict[int, Awaited] = {}

    def expect(self, key: int, awaited: Awaited) -> None:
        """Count a point ahead; either succeeds or changes nothing."""
        ahead = self.settled.copy() if self.ahead is self.settled else self.ahead
        ahead.count(awaited.coordinates)
        self.ahead = ahead
        self.awaited[key] = awaited

    def recount(self, awaited: dict[int, Awaited]) -> None:
        """Await these points instead, and count them anew; either succeeds or changes nothing."""
        ahead = self.settled.copy() if awaited else self.settled
        for each in awaited.values():
            ahead.count(each.coordinates)
        self.ahead, self.awaited = ahead, awaited

    def release(self, key: int) -> None:
        """Await a point no longer, which ``ahead`` no longer counts or ``settled`` has learned."""
        del self.awaited[key]
        if not self.awaited:
            self.ahead = self.settled

    def observe_weighted(self: Pending[RidgeRegression], features: FloatArray, reward: float, weight: float) -> None:
        """Learn a reward of noise variance λ/weight in both: √weight·r at √weight·φ."""
        scale = math.sqrt(weight)
        if self.ahead is not self.settled:
            self.ahead.count(scale * features)
        self.settled.learn(scale * features, scale * reward)

    def observe(
        self: Pending[RidgeRegression],
        features: FloatArray,
        solved: FloatArray,
        variance: float,
        mean: float,
        reward: float,
    ) -> None:
        """Learn a reward in both, given h = Pφ and φᵀh with the P ahead, and mean = φᵀw."""
        if self.ahead is not self.settled:
            self.ahead.observe(features, solved, variance, 0.0, 0.0)
            solved = symmetric_times_vector(self.settled.covariance, features)
            variance = float(features @ solved)
        self.settled.observe(features, solved, variance, mean, reward)
