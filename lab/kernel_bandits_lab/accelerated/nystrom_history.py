"""Project the past onto a new anchor: the step of EK-UCB that reads the whole history."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernel_bandits_lab.accelerated.arrays import downdated_product, outer, product, put, unit
from kernel_bandits_lab.accelerated.covariance import Family, gram
from kernel_bandits_lab.accelerated.nystrom_state import Candidate, NystromState

# A pass over the history takes as many replicas at a time as have about this many kernel entries, and at least a few.
PASS_ENTRIES, SMALLEST_PASS = 5_000_000, 8


class _Extension(NamedTuple):
    """What new anchors change; the first fields are those of :class:`NystromState`."""

    factor: jax.Array
    covariance: jax.Array
    precision: jax.Array
    moment: jax.Array
    waiting: jax.Array  # replicas whose anchor is still to be added, shape (R,)
    border: jax.Array  # the u in P ← P + uuᵀ, shape (R, m)
    shift: jax.Array  # the κ in w ← w − κu, shape (R,)


class _Past(NamedTuple):
    """The history in the coordinate of the new anchor."""

    sums: jax.Array  # Σ k_Z(s_i)c_i, shape (G, m)
    square: jax.Array  # Σ c_i², shape (G,)
    moment: jax.Array  # Σ c_i r_i, shape (G,)


def extend_with_history(family: Family, state: NystromState, candidate: Candidate) -> tuple[NystromState, jax.Array]:
    """Visit the replicas that add an anchor, some at a time; return the state, and Pφ with φ ← [φ, l].

    Without such replicas this costs nothing.
    """
    replicas, capacity = candidate.features.shape
    count = min(replicas, max(SMALLEST_PASS, PASS_ENTRIES // (capacity * state.points.shape[1])))

    def visit(extension: _Extension) -> _Extension:
        rank = jnp.cumsum(extension.waiting, dtype=jnp.int32) - 1
        visited = extension.waiting & (rank < count)
        # surplus members are numbers beyond all replicas: read as the last one, never written
        numbers = jnp.arange(replicas, dtype=jnp.int32)
        members = jnp.arange(replicas, replicas + count, dtype=jnp.int32)
        members = put(members, jnp.where(visited, rank, count + numbers), numbers)
        extension = extension._replace(waiting=extension.waiting & ~visited)
        return _extend_members(family, state, candidate, extension, members)

    extension = _Extension(
        state.factor,
        state.covariance,
        state.precision,
        state.moment,
        waiting=candidate.appended,
        border=jnp.zeros_like(candidate.features),
        shift=jnp.zeros_like(state.settings.regularization),
    )
    extension = lax.while_loop(lambda extension: jnp.any(extension.waiting), visit, extension)
    extended = state._replace(
        factor=extension.factor,
        covariance=extension.covariance,
        precision=extension.precision,
        moment=extension.moment,
        weights=state.weights - extension.shift[:, None] * extension.border,
    )
    # P ← P + uuᵀ, and P had nothing in the new coordinate
    along = jnp.sum(extension.border * candidate.extended_features(state.sizes), axis=1, keepdims=True)
    return extended, candidate.solved + extension.border * along


def _extend_members(
    family: Family, state: NystromState, candidate: Candidate, extension: _Extension, members: jax.Array
) -> _Extension:
    """Add the anchors of some replicas."""
    take = partial(jnp.take, indices=members, axis=0, mode="clip")
    size, regularization = take(state.sizes), take(state.settings.regularization)
    features, pivot = take(candidate.features), take(candidate.pivot)
    new = unit(size, features, jnp.bool_(True))
    factor = take(extension.factor)
    coefficients = product("gm,gmn->gn", features, factor)
    past = _project_past(family, state, candidate, members, coefficients)
    # a = Σ φ(s_i)c_i ; s = λ + cc − aᵀPa ≥ λ ; u = [Pa, −1]/√s and κ = (cy − aᵀw)/√s
    cross = product("gmn,gn->gm", factor, past.sums)
    solved = downdated_product(product("gmn,gn->gm", take(extension.covariance), cross), take(state.downdates), cross)
    schur = jnp.maximum(regularization + past.square - jnp.sum(cross * solved, axis=1), regularization)
    border = (solved - new) / jnp.sqrt(schur)[:, None]
    shift = (past.moment - jnp.sum(cross * take(state.weights), axis=1)) / jnp.sqrt(schur)
    # A ← [[A, a], [aᵀ, λ + cc]], b ← [b, cy] and J ← [[J, 0], [−φᵀJ/l, 1/l]]
    precision_row = cross + new * (regularization + past.square)[:, None]
    factor_row = (new - coefficients) / pivot[:, None]
    precision = put(extension.precision, (members, size), precision_row)
    return _Extension(
        factor=put(extension.factor, (members, size), factor_row),
        covariance=extension.covariance.at[members].add(outer(border), mode="drop", unique_indices=True),
        precision=put(precision, (members, slice(None), size), precision_row),
        moment=put(extension.moment, (members, size), past.moment),
        waiting=extension.waiting,
        border=put(extension.border, members, border),
        shift=put(extension.shift, members, shift),
    )


def _project_past(
    family: Family, state: NystromState, candidate: Candidate, members: jax.Array, coefficients: jax.Array
) -> _Past:
    """Return sums over c_i = (k(s_i, z) − k_Z(s_i)ᵀJᵀφ(z))/l of every past state, given Jᵀφ(z)."""
    take = partial(jnp.take, indices=members, axis=0, mode="clip")
    points, rewards, kernel_factor = take(state.points), take(state.rewards), take(state.settings.factor)
    kernel = gram(family, kernel_factor, points, take(state.anchors))
    own = gram(family, kernel_factor, points, take(candidate.point)[:, None])[:, :, 0]
    # sums instead of matrix products, so that the compiler may compute the kernel on the way
    explained = jnp.sum(kernel * coefficients[:, None, :], axis=2)
    observed = jnp.arange(rewards.shape[1]) < state.rounds
    coordinate = jnp.where(observed, (own - explained) / take(candidate.pivot)[:, None], 0.0)
    return _Past(
        sums=jnp.sum(kernel * coordinate[:, :, None], axis=1),
        square=jnp.sum(coordinate * coordinate, axis=1),
        moment=jnp.sum(coordinate * rewards, axis=1),
    )
