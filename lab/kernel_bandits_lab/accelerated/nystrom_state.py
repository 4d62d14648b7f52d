"""The state of EK-UCB on a device, in matrices with room for more anchors than there are.

A coordinate without an anchor is zero in φ, J and w. On the diagonals of A and Q it has λ and 1/μ, as a direction has
before the first observation in it. On that of P it has 1/λ without the history; with it, 0, and bordering adds the
rest.
"""

from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from kernel_bandits_lab.accelerated.arrays import pad, unit
from kernel_bandits_lab.accelerated.models import BLOCK, Batch, Capacity

T = TypeVar("T")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, order=True)
class NystromSettings(Generic[T]):
    """The numbers of one replica, or arrays of shape (R,)."""

    regularization: T  # λ
    bonus: T  # β/√λ, the factor of the standard deviation
    leverage_regularization: T  # the μ of KORS
    leverage_accuracy: T  # the ε of KORS
    oversampling: T  # the γ of KORS
    factor: T  # the factor of squared distances in the kernel


class NystromState(NamedTuple):
    """R replicas with room for m anchors and, if the history is kept, t rounds.

    P and Q lag behind by the rounds since they were last settled: each such round is a downdate in a row of its own.
    """

    settings: NystromSettings[jax.Array]  # each of shape (R,)
    max_anchors: jax.Array  # caps on the number of anchors, shape (R,)
    sizes: jax.Array  # the number of anchors, shape (R,)
    anchors: jax.Array  # shape (R, m, d)
    factor: jax.Array  # J, shape (R, m, m)
    covariance: jax.Array  # P without the latest downdates, shape (R, m, m)
    downdates: jax.Array  # the g in P − Σ ggᵀ, shape (R, b, m)
    weights: jax.Array  # w, shape (R, m)
    precision: jax.Array  # A as of the last refinement, but with all anchors, shape (R, m, m)
    moment: jax.Array  # b as of the last refinement, but with all anchors, shape (R, m)
    leverage: jax.Array  # Q of KORS without the latest downdates, shape (R, m, m)
    leverage_downdates: jax.Array  # the v in Q − Σ vvᵀ, shape (R, b, m)
    points: jax.Array  # the history, shape (R, t, d), or (R, 0, d)
    rewards: jax.Array  # the history, shape (R, t), or (R, 0)
    rounds: jax.Array  # the number of observed rounds, a scalar


class Candidate(NamedTuple):
    """The observed point of each replica, and whether it becomes an anchor."""

    point: jax.Array  # shape (R, d)
    features: jax.Array  # φ, shape (R, m)
    solved: jax.Array  # Pφ, shape (R, m)
    appended: jax.Array  # whether the point becomes an anchor, shape (R,)
    pivot: jax.Array  # l, the length that it adds to the span, 1 where it is not appended; shape (R,)

    def unit(self, sizes: jax.Array) -> jax.Array:
        """Return 1 in the coordinate of an appended anchor and 0 elsewhere, shape (R, m)."""
        return unit(sizes, self.features, self.appended)

    def extended_features(self, sizes: jax.Array) -> jax.Array:
        """Return [φ, l] where an anchor is appended, else φ."""
        return self.features + self.unit(sizes) * self.pivot[:, None]


def empty_state(batch: Batch[NystromSettings[jax.Array]]) -> NystromState:
    """Return the state before the first round, without room for anchors or rounds."""
    replicas, dimension = batch.lengthscales.shape
    zeros = partial(jnp.zeros, dtype=batch.lengthscales.dtype)
    return NystromState(
        settings=batch.settings,
        max_anchors=batch.max_anchors,
        sizes=jnp.zeros(replicas, jnp.int32),
        anchors=zeros((replicas, 0, dimension)),
        factor=zeros((replicas, 0, 0)),
        covariance=zeros((replicas, 0, 0)),
        downdates=zeros((replicas, BLOCK, 0)),
        weights=zeros((replicas, 0)),
        precision=zeros((replicas, 0, 0)),
        moment=zeros((replicas, 0)),
        leverage=zeros((replicas, 0, 0)),
        leverage_downdates=zeros((replicas, BLOCK, 0)),
        points=zeros((replicas, 0, dimension)),
        rewards=zeros((replicas, 0)),
        rounds=jnp.int32(0),
    )


@partial(jax.jit, static_argnums=(1, 2))
def enlarged(state: NystromState, capacity: Capacity, history: bool) -> NystromState:
    """Return the same state with more room."""
    number = capacity.anchors
    added = jnp.diag((jnp.arange(number) >= state.weights.shape[1]).astype(state.weights.dtype))

    def square(matrices: jax.Array, diagonal: jax.Array | float) -> jax.Array:
        return pad(pad(matrices, 1, number), 2, number) + added * jnp.reshape(diagonal, (-1, 1, 1))

    ridge = state.settings.regularization
    return state._replace(
        anchors=pad(state.anchors, 1, number),
        factor=square(state.factor, 0.0),
        covariance=square(state.covariance, 0.0 if history else 1.0 / ridge),
        downdates=pad(state.downdates, 2, number),
        weights=pad(state.weights, 1, number),
        precision=square(state.precision, ridge),
        moment=pad(state.moment, 1, number),
        leverage=square(state.leverage, 1.0 / state.settings.leverage_regularization),
        leverage_downdates=pad(state.leverage_downdates, 2, number),
        points=pad(state.points, 1, capacity.rounds),
        rewards=pad(state.rewards, 1, capacity.rounds),
    )
