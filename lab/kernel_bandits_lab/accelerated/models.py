"""The interface between the engine and a model: what a compiled program is made of. Uniform play is the simplest."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

Settings = TypeVar("Settings")
State = TypeVar("State", bound=tuple[Any, ...])
Beliefs = TypeVar("Beliefs")

# Rounds that a model may collect before they enter its matrices.
BLOCK = 8


class Batch(NamedTuple, Generic[Settings]):
    """The R replicas of one program."""

    settings: Settings  # the numbers that the model takes, each of shape (R,)
    lengthscales: jax.Array  # the divisors of the columns of points, shape (R, d)
    max_anchors: jax.Array  # caps on the number of anchors, infinite where there is none, shape (R,)


class Capacity(NamedTuple):
    """The number of anchors and rounds that a state can hold; a program is specialised to it."""

    anchors: int  # m, 0 for a model without anchors
    rounds: int  # t, 0 for a model that keeps no rounds


class Demand(NamedTuple):
    """What the next rounds need."""

    rounds: int  # how many the state must hold now
    horizon: int  # how many there will be
    full: bool  # whether a replica had no place for an anchor
    max_anchors: float  # the number of anchors that no replica will exceed


class Observation(NamedTuple, Generic[Beliefs]):
    """One round of every replica."""

    beliefs: Beliefs  # about the offered points, as :meth:`Model.bounds` returned them
    row: jax.Array  # the chosen point among the offered ones, shape (R,)
    point: jax.Array  # the chosen point, in units of the lengthscales, shape (R, d)
    reward: jax.Array  # shape (R,)
    coin: jax.Array  # uniform on [0, 1), shape (R,)
    slot: jax.Array  # rounds since the last :meth:`Upkeep.settle`, a scalar
    live: jax.Array  # whether the round counts; one that does not changes nothing. A scalar.


class Step(NamedTuple, Generic[State]):
    """The result of one round."""

    state: State  # after the round
    # as they were learned, shape (R, m), zeros if the round did not count; None for a model without upkeep
    features: jax.Array | None = None
    # whether a replica had no place for an anchor, in which case the round changed nothing
    full: jax.Array | bool = False


class Growth(ABC, Generic[State]):
    """How a state gets room for more anchors and rounds; each capacity has a program of its own."""

    @property
    @abstractmethod
    def first(self) -> Capacity:
        """The capacity to start with."""

    @abstractmethod
    def next(self, capacity: Capacity, demand: Demand) -> Capacity:
        """Return the least capacity that meets the demand; the same one if it does."""

    @abstractmethod
    def enlarge(self, state: State, capacity: Capacity) -> State:
        """Return the same state with more room."""


class Upkeep(ABC, Generic[State]):
    """How the matrices of a state stay accurate."""

    @abstractmethod
    def width(self, state: State) -> int:
        """Return the length m of the features in a :class:`Step`."""

    @abstractmethod
    def settle(self, state: State) -> State:
        """Apply the rounds collected so far to the matrices; called every ``BLOCK`` rounds."""

    @abstractmethod
    def refine(self, state: State, features: jax.Array, rewards: jax.Array) -> State:
        """Remove the rounding accumulated over rounds with these features (B, R, m) and rewards (B, R)."""


class Model(ABC, Generic[Settings, State, Beliefs]):
    """What R replicas believe, in step: all have seen t rounds. Implementations are plain data.

    A state is a tuple of arrays that includes the settings.
    """

    @property
    @abstractmethod
    def growth(self) -> Growth[State] | None:
        """How the state gets room for more; None if it never needs any."""

    @property
    @abstractmethod
    def upkeep(self) -> Upkeep[State] | None:
        """How the matrices stay accurate; None if there is nothing to do."""

    @abstractmethod
    def start(self, batch: Batch[Settings]) -> State:
        """Return the state before the first round, without room for any."""

    @abstractmethod
    def bounds(self, state: State, points: jax.Array) -> tuple[jax.Array, Beliefs]:
        """Return the upper confidence bounds at points (R, A, d), shape (R, A), and the beliefs behind them."""

    @abstractmethod
    def observe(self, state: State, observation: Observation[Beliefs]) -> Step[State]:
        """Learn one round."""

    @abstractmethod
    def sizes(self, state: State) -> jax.Array:
        """Return the number of points that carry the model of each replica, shape (R,)."""


AnyModel: TypeAlias = Model[Any, Any, Any]


class UniformState(NamedTuple):
    """The number of observed rounds, a scalar, and zeros, one per replica."""

    rounds: jax.Array
    sizes: jax.Array


@dataclass(frozen=True)
class UniformModel(Model[None, UniformState, None]):
    """Uniform play: all bounds are equal, so that every choice is a tie."""

    @property
    def growth(self) -> None:
        """Nothing grows."""

    @property
    def upkeep(self) -> None:
        """There are no matrices."""

    def start(self, batch: Batch[None]) -> UniformState:
        return UniformState(jnp.int32(0), jnp.zeros(len(batch.lengthscales), jnp.int32))

    def sizes(self, state: UniformState) -> jax.Array:
        return state.sizes

    def bounds(self, state: UniformState, points: jax.Array) -> tuple[jax.Array, None]:
        return jnp.zeros((len(state.sizes), points.shape[1]), points.dtype), None

    def observe(self, state: UniformState, observation: Observation[None]) -> Step[UniformState]:
        return Step(state._replace(rounds=state.rounds + observation.live))
