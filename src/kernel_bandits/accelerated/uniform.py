"""Uniform play of many replicas at once."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kernel_bandits.accelerated.models import Batch, Model, Observation, Step


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
