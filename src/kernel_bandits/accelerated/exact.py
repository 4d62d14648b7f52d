"""K-UCB of many replicas at once, and uniform play; for moderate horizons, since a replica holds a t×t matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernel_bandits.accelerated.covariance import Family, gram
from kernel_bandits.accelerated.models import Evaluation, Model, Observation, Room, Settings, pad, pick, product

# Rounds there is room for at first; doubled where there are more.
FIRST_ROOM = Room(0, 128)


class ExactState(NamedTuple):
    """R replicas with room for t rounds; rows and columns of rounds to come are zero.

    Attributes:
        points: shape (R, t, d).
        factor: J = L⁻¹ with LLᵀ = K + λI, shape (R, t, t).
        whitened: v = Jy, shape (R, t).
        rounds: how many rounds were observed, a scalar.
    """

    points: jax.Array
    factor: jax.Array
    whitened: jax.Array
    rounds: jax.Array


@dataclass(frozen=True)
class ExactModel(Model[ExactState]):
    """K-UCB; the formulas of :mod:`kernel_bandits.posteriors.exact`."""

    family: Family

    def first_room(self) -> Room:
        return FIRST_ROOM

    def further_room(
        self,
        room: Room,
        rounds: int,
        horizon: int,  # noqa: ARG002 (t×t matrices are not made before there are t rounds)
        full: bool,  # noqa: ARG002
        most: float,  # noqa: ARG002
    ) -> Room:
        more = room.rounds
        while more < rounds:
            more *= 2
        return Room(0, more)

    def start(self, settings: Settings, room: Room) -> ExactState:
        return _start(settings, room)

    def enlarge(self, state: ExactState, settings: Settings, room: Room) -> ExactState:  # noqa: ARG002
        return _enlarge(state, room)

    def width(self, state: ExactState) -> int:  # noqa: ARG002
        return 0

    def sizes(self, state: ExactState) -> jax.Array:
        return jnp.broadcast_to(state.rounds, len(state.whitened))

    def evaluate(self, state: ExactState, settings: Settings, points: jax.Array) -> Evaluation:
        kernel = gram(self.family, settings.factor, points, state.points)
        # φ = J k_S(s) ; mean = φᵀJy ; variance = k(s, s) − ‖φ‖²
        features = product("ram,rnm->ran", kernel, state.factor)
        mean = product("ram,rm->ra", features, state.whitened)
        variance = 1.0 - jnp.sum(features * features, axis=2)
        std = jnp.sqrt(jnp.maximum(variance, 0.0))
        return Evaluation(mean, std, features, features)

    def observe(
        self, state: ExactState, settings: Settings, evaluation: Evaluation, observation: Observation
    ) -> tuple[ExactState, jax.Array, jax.Array]:
        features, mean = pick(evaluation.features, observation.row), pick(evaluation.mean, observation.row)
        # l² = k(s, s) + λ − ‖φ‖², never below λ but for rounding
        variance = jnp.maximum(1.0 - jnp.sum(features * features, axis=1), 0.0)
        pivot = jnp.sqrt(variance + settings.regularization)[:, None]
        # the further row of J is [−φᵀJ, 1]/l, and v = Jy gains (r − φᵀv)/l
        unit = (jnp.arange(features.shape[1]) == state.rounds).astype(features.dtype)
        row = (unit - product("rm,rmn->rn", features, state.factor)) / pivot
        error = (observation.reward - mean)[:, None] / pivot
        row, error = jnp.where(observation.live, row, 0.0), jnp.where(observation.live, error, 0.0)
        put = partial(lax.dynamic_update_slice_in_dim, start_index=state.rounds, axis=1)
        state = ExactState(
            put(state.points, observation.point[:, None]),
            put(state.factor, row[:, None]),
            put(state.whitened, error),
            state.rounds + observation.live,
        )
        return state, jnp.zeros((len(error), 0), error.dtype), jnp.bool_(False)

    def settle(self, state: ExactState) -> ExactState:
        return state

    def refine(
        self,
        state: ExactState,
        features: jax.Array,  # noqa: ARG002 (bordering piles up no rounding)
        rewards: jax.Array,  # noqa: ARG002
    ) -> ExactState:
        return state


class UniformState(NamedTuple):
    """How many rounds were observed, and as many zeros as there are replicas."""

    rounds: jax.Array
    sizes: jax.Array


@dataclass(frozen=True)
class UniformModel(Model[UniformState]):
    """Uniform play: to a model that believes the same of all actions, all are tied."""

    def first_room(self) -> Room:
        return Room(0, 0)

    def further_room(
        self,
        room: Room,
        rounds: int,  # noqa: ARG002
        horizon: int,  # noqa: ARG002
        full: bool,  # noqa: ARG002
        most: float,  # noqa: ARG002
    ) -> Room:
        return room

    def start(self, settings: Settings, room: Room) -> UniformState:  # noqa: ARG002
        return UniformState(jnp.int32(0), jnp.zeros(len(settings.bonus), jnp.int32))

    def enlarge(self, state: UniformState, settings: Settings, room: Room) -> UniformState:  # noqa: ARG002
        return state

    def width(self, state: UniformState) -> int:  # noqa: ARG002
        return 0

    def sizes(self, state: UniformState) -> jax.Array:
        return state.sizes

    def evaluate(self, state: UniformState, settings: Settings, points: jax.Array) -> Evaluation:  # noqa: ARG002
        zeros = jnp.zeros(points.shape[:2], points.dtype)
        return Evaluation(zeros, zeros, zeros[:, :, None], zeros[:, :, None])

    def observe(
        self,
        state: UniformState,
        settings: Settings,  # noqa: ARG002
        evaluation: Evaluation,
        observation: Observation,
    ) -> tuple[UniformState, jax.Array, jax.Array]:
        state = state._replace(rounds=state.rounds + observation.live)
        return state, jnp.zeros((len(state.sizes), 0), evaluation.mean.dtype), jnp.bool_(False)

    def settle(self, state: UniformState) -> UniformState:
        return state

    def refine(
        self,
        state: UniformState,
        features: jax.Array,  # noqa: ARG002
        rewards: jax.Array,  # noqa: ARG002
    ) -> UniformState:
        return state


@partial(jax.jit, static_argnums=1)
def _start(settings: Settings, room: Room) -> ExactState:
    replicas, dimension = settings.divisor.shape
    dtype = settings.divisor.dtype
    return ExactState(
        jnp.zeros((replicas, room.rounds, dimension), dtype),
        jnp.zeros((replicas, room.rounds, room.rounds), dtype),
        jnp.zeros((replicas, room.rounds), dtype),
        jnp.int32(0),
    )


@partial(jax.jit, static_argnums=1)
def _enlarge(state: ExactState, room: Room) -> ExactState:
    return ExactState(
        pad(state.points, 1, room.rounds),
        pad(pad(state.factor, 1, room.rounds), 2, room.rounds),
        pad(state.whitened, 1, room.rounds),
        state.rounds,
    )
