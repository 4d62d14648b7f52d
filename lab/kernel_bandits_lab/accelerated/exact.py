"""K-UCB of many replicas at once; for moderate horizons, since a replica holds a t×t matrix."""

from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from kernel_bandits_lab.accelerated.arrays import pad, pick, product
from kernel_bandits_lab.accelerated.covariance import Family, gram
from kernel_bandits_lab.accelerated.models import Batch, Capacity, Demand, Growth, Model, Observation, Step

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
class ExactGrowth(Growth[ExactState]):
    """Room for twice as many rounds whenever it runs out: t×t matrices are not made before there are t rounds."""

    @property
    def first(self) -> Capacity:
        return Capacity(0, 128)

    def next(self, capacity: Capacity, demand: Demand) -> Capacity:
        rounds = capacity.rounds
        while rounds < demand.rounds:
            rounds *= 2
        return Capacity(0, rounds)

    def enlarge(self, state: ExactState, capacity: Capacity) -> ExactState:
        return _enlarge(state, capacity)


@dataclass(frozen=True)
class ExactModel(Model[ExactSettings[jax.Array], ExactState, ExactBeliefs]):
    """K-UCB; the formulas of :mod:`kernel_bandits.posterior.exact`."""

    family: Family

    @property
    def growth(self) -> ExactGrowth:
        return ExactGrowth()

    @property
    def upkeep(self) -> None:
        """Bordering accumulates no rounding."""

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
