"""What a compiled program is made of, and the two simple models: uniform play and K-UCB.

K-UCB is for moderate horizons, since a replica holds a t×t matrix.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from kernel_bandits_lab.accelerated.arrays import Family, gram, pad, pick, product

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
    slot: jax.Array  # rounds since the last :meth:`Model.settle`, a scalar
    live: jax.Array  # whether the round counts; one that does not changes nothing. A scalar.


class Step(NamedTuple, Generic[State]):
    """The result of one round."""

    state: State  # after the round
    # as they were learned, shape (R, m), zeros if the round did not count; None for a model without a width
    features: jax.Array | None = None
    # whether a replica had no place for an anchor, in which case the round changed nothing
    full: jax.Array | bool = False


class Model(ABC, Generic[Settings, State, Beliefs]):
    """What R replicas believe, in step: all have seen t rounds. Implementations are plain data.

    A state is a tuple of arrays that includes the settings. By default it needs no room and no upkeep.
    """

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

    @property
    def first_capacity(self) -> Capacity:
        """The capacity to start with; each has a program of its own."""
        return Capacity(0, 0)

    def next_capacity(self, capacity: Capacity, demand: Demand) -> Capacity:  # noqa: ARG002 (nothing is needed)
        """Return the least capacity that meets the demand; the same one if it does."""
        return capacity

    def enlarge(self, state: State, capacity: Capacity) -> State:  # noqa: ARG002 (there is none)
        """Return the same state with more room."""
        return state

    def width(self, state: State) -> int:  # noqa: ARG002 (there are none)
        """Return the length m of the features that :meth:`refine` needs of every round; 0 if it needs none."""
        return 0

    def settle(self, state: State) -> State:
        """Apply the rounds collected so far to the matrices; called every ``BLOCK`` rounds."""
        return state

    def refine(self, state: State, features: jax.Array, rewards: jax.Array) -> State:  # noqa: ARG002 (nothing drifts)
        """Remove the rounding accumulated over rounds with these features (B, R, m) and rewards (B, R)."""
        return state


AnyModel: TypeAlias = Model[Any, Any, Any]


class UniformState(NamedTuple):
    """The number of observed rounds, a scalar, and zeros, one per replica."""

    rounds: jax.Array
    sizes: jax.Array


@dataclass(frozen=True)
class UniformModel(Model[None, UniformState, None]):
    """Uniform play: all bounds are equal, so that every choice is a tie."""

    def start(self, batch: Batch[None]) -> UniformState:
        return UniformState(jnp.int32(0), jnp.zeros(len(batch.lengthscales), jnp.int32))

    def sizes(self, state: UniformState) -> jax.Array:
        return state.sizes

    def bounds(self, state: UniformState, points: jax.Array) -> tuple[jax.Array, None]:
        return jnp.zeros((len(state.sizes), points.shape[1]), points.dtype), None

    def observe(self, state: UniformState, observation: Observation[None]) -> Step[UniformState]:
        return Step(state._replace(rounds=state.rounds + observation.live))


T = TypeVar("T")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, order=True)
class ExactSettings(Generic[T]):
    """The numbers of one replica, or arrays of shape (R,)."""

    regularization: T  # λ
    bonus: T  # β/√λ, the factor of the standard deviation
    factor: T  # the factor of squared distances in the kernel


class ExactState(NamedTuple):
    """R replicas with room for t rounds; rows and columns of rounds to come are zero."""

    settings: ExactSettings[jax.Array]  # each of shape (R,)
    points: jax.Array  # shape (R, t, d)
    factor: jax.Array  # J = L⁻¹ with LLᵀ = K + λI, shape (R, t, t)
    whitened: jax.Array  # v = Jy, shape (R, t)
    rounds: jax.Array  # the number of observed rounds, a scalar


class ExactBeliefs(NamedTuple):
    """Mean and standard deviation of the offered points, shape (R, A), and φ, shape (R, A, t)."""

    mean: jax.Array
    std: jax.Array
    features: jax.Array


@dataclass(frozen=True)
class ExactModel(Model[ExactSettings[jax.Array], ExactState, ExactBeliefs]):
    """K-UCB; the formulas of :mod:`kernel_bandits.posterior.exact`."""

    family: Family

    @property
    def first_capacity(self) -> Capacity:
        return Capacity(0, 128)

    def next_capacity(self, capacity: Capacity, demand: Demand) -> Capacity:
        """Return room for twice as many rounds whenever it runs out: no t×t matrix is made before its rounds."""
        rounds = capacity.rounds
        while rounds < demand.rounds:
            rounds *= 2
        return Capacity(0, rounds)

    def enlarge(self, state: ExactState, capacity: Capacity) -> ExactState:
        return _enlarge(state, capacity)

    def start(self, batch: Batch[ExactSettings[jax.Array]]) -> ExactState:
        replicas, dimension = batch.lengthscales.shape
        zeros = partial(jnp.zeros, dtype=batch.lengthscales.dtype)
        return ExactState(
            settings=batch.settings,
            points=zeros((replicas, 0, dimension)),
            factor=zeros((replicas, 0, 0)),
            whitened=zeros((replicas, 0)),
            rounds=jnp.int32(0),
        )

    def sizes(self, state: ExactState) -> jax.Array:
        return jnp.broadcast_to(state.rounds, len(state.whitened))

    def bounds(self, state: ExactState, points: jax.Array) -> tuple[jax.Array, ExactBeliefs]:
        kernel = gram(self.family, state.settings.factor, points, state.points)
        # φ = J k_S(s) ; mean = φᵀJy ; variance = k(s, s) − ‖φ‖²
        features = product("ram,rnm->ran", kernel, state.factor)
        mean = product("ram,rm->ra", features, state.whitened)
        variance = 1.0 - jnp.sum(features * features, axis=2)
        std = jnp.sqrt(jnp.maximum(variance, 0.0))
        return mean + state.settings.bonus[:, None] * std, ExactBeliefs(mean, std, features)

    def observe(self, state: ExactState, observation: Observation[ExactBeliefs]) -> Step[ExactState]:
        features = pick(observation.beliefs.features, observation.row)
        mean = pick(observation.beliefs.mean, observation.row)
        # l² = k(s, s) + λ − ‖φ‖², at least λ but for rounding
        variance = jnp.maximum(1.0 - jnp.sum(features * features, axis=1), 0.0)
        pivot = jnp.sqrt(variance + state.settings.regularization)[:, None]
        # the new row of J is [−φᵀJ, 1]/l, and v = Jy gains (r − φᵀv)/l
        unit = (jnp.arange(features.shape[1]) == state.rounds).astype(features.dtype)
        row = (unit - product("rm,rmn->rn", features, state.factor)) / pivot
        error = (observation.reward - mean)[:, None] / pivot
        row, error = jnp.where(observation.live, row, 0.0), jnp.where(observation.live, error, 0.0)
        put = partial(lax.dynamic_update_slice_in_dim, start_index=state.rounds, axis=1)
        return Step(
            state._replace(
                points=put(state.points, observation.point[:, None]),
                factor=put(state.factor, row[:, None]),
                whitened=put(state.whitened, error),
                rounds=state.rounds + observation.live,
            )
        )


@partial(jax.jit, static_argnums=1)
def _enlarge(state: ExactState, capacity: Capacity) -> ExactState:
    return state._replace(
        points=pad(state.points, 1, capacity.rounds),
        factor=pad(pad(state.factor, 1, capacity.rounds), 2, capacity.rounds),
        whitened=pad(state.whitened, 1, capacity.rounds),
    )
