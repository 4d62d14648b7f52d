"""What a compiled program is made of: the settings that vary across replicas, and the model they are settings of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

S = TypeVar("S", bound=tuple[Any, ...])

# Rounds that a model may let wait before they enter its matrices.
BLOCK = 8


class Settings(NamedTuple):
    """Numbers that may differ from replica to replica, each of shape (R,) but for the last.

    Attributes:
        regularization: λ.
        bonus: β/√λ, what a standard deviation is multiplied by.
        leverage_regularization: μ of KORS.
        leverage_accuracy: ε of KORS.
        oversampling: γ of KORS.
        max_dictionary_size: cap on m.
        factor: of squared distances in the kernel.
        divisor: what the columns of points are divided by, shape (R, d).
    """

    regularization: jax.Array
    bonus: jax.Array
    leverage_regularization: jax.Array
    leverage_accuracy: jax.Array
    oversampling: jax.Array
    max_dictionary_size: jax.Array
    factor: jax.Array
    divisor: jax.Array


class Room(NamedTuple):
    """How much a state has room for; what a compiled program is specialised to.

    Attributes:
        anchors: m, 0 where there are none.
        rounds: t, 0 where rounds are not kept.
    """

    anchors: int
    rounds: int


class Evaluation(NamedTuple):
    """What the model believes of the offered points, and intermediate results that the update needs again.

    Attributes:
        mean: shape (R, A).
        std: shape (R, A).
        features: φ, shape (R, A, m).
        solved: Pφ, shape (R, A, m), where the model has it.
    """

    mean: jax.Array
    std: jax.Array
    features: jax.Array
    solved: jax.Array


class Observation(NamedTuple):
    """One round of every replica: what was played and what came back.

    Attributes:
        row: of the played point among the offered ones, shape (R,).
        point: divided by the lengthscale where there is one per column, shape (R, d).
        reward: shape (R,).
        coin: uniform on [0, 1), shape (R,).
        slot: how many rounds came since the last :meth:`Model.settle`, a scalar.
        live: whether the round counts; one that does not changes nothing. A scalar.
    """

    row: jax.Array
    point: jax.Array
    reward: jax.Array
    coin: jax.Array
    slot: jax.Array
    live: jax.Array


class Model(ABC, Generic[S]):
    """A posterior of R replicas with room for so many anchors and so many rounds; implementations are plain data.

    A state is a tuple of arrays whose shapes say how much room there is. Replicas are in step: all have seen t rounds.
    """

    @abstractmethod
    def first_room(self) -> Room:
        """What there is room for at first."""

    @abstractmethod
    def further_room(self, room: Room, rounds: int, horizon: int, full: bool, most: float) -> Room:
        """The least room that will do; the same where there is enough.

        Args:
            room: as it stands.
            rounds: how many there must be room for now.
            horizon: how many there will be.
            full: whether there must be room for more anchors.
            most: anchors that no replica will exceed.
        """

    @abstractmethod
    def start(self, settings: Settings, room: Room) -> S:
        """Nothing observed."""

    @abstractmethod
    def enlarge(self, state: S, settings: Settings, room: Room) -> S:
        """The same state with more room."""

    @abstractmethod
    def width(self, state: S) -> int:
        """The length m of the features that :meth:`observe` returns."""

    @abstractmethod
    def sizes(self, state: S) -> jax.Array:
        """How many points carry the model of each replica, shape (R,)."""

    @abstractmethod
    def evaluate(self, state: S, settings: Settings, points: jax.Array) -> Evaluation:
        """Mean and standard deviation at points of shape (R, A, d)."""

    @abstractmethod
    def observe(
        self, state: S, settings: Settings, evaluation: Evaluation, observation: Observation
    ) -> tuple[S, jax.Array, jax.Array]:
        """Learn one round.

        Returns:
            The state; the features as they were learned, shape (R, m), zeros if the round did not count; and whether
            some replica had no room, in which case the round changed nothing.
        """

    @abstractmethod
    def settle(self, state: S) -> S:
        """Bring matrices up to date with rounds that wait; called every ``BLOCK`` rounds."""

    @abstractmethod
    def refine(self, state: S, features: jax.Array, rewards: jax.Array) -> S:
        """Take back the rounding that rounds with these features (B, R, m) and rewards (B, R) have piled up."""


def product(subscripts: str, *operands: jax.Array) -> jax.Array:
    """``einsum`` in full precision, also in float32, where an accelerator would round the factors first."""
    return jnp.einsum(subscripts, *operands, precision="highest")


def pick(rows: jax.Array, row: jax.Array) -> jax.Array:
    """One row of each replica: shape (R, A, …) to (R, …)."""
    index = row.reshape(-1, *(1,) * (rows.ndim - 1))
    return jnp.take_along_axis(rows, index, axis=1)[:, 0]


def bucket(number: int) -> int:
    """The least of 512, 576, 640, …, 1024, 1152, … that is not below the number: eight sizes to a doubling."""
    step = max(512, 1 << (number - 1).bit_length()) // 16
    return max(512, -(-number // step) * step)


def pad(array: jax.Array, axis: int, length: int) -> jax.Array:
    """Zeros behind an axis up to a length."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return jnp.pad(array, widths)
