"""Operations on arrays whose first axis is the replica."""

from typing import Any

import jax
import jax.numpy as jnp


def product(subscripts: str, *operands: jax.Array) -> jax.Array:
    """Return ``einsum`` in full precision; by default an accelerator rounds float32 factors first."""
    return jnp.einsum(subscripts, *operands, precision="highest")


def pick(rows: jax.Array, row: jax.Array) -> jax.Array:
    """Return one row of each replica: shape (R, A, …) to (R, …)."""
    index = row.reshape(-1, *(1,) * (rows.ndim - 1))
    return jnp.take_along_axis(rows, index, axis=1)[:, 0]


def bucket(number: int) -> int:
    """Round up to one of 512, 576, 640, …, 1024, 1152, …: eight sizes to a doubling."""
    step = max(512, 1 << (number - 1).bit_length()) // 16
    return max(512, -(-number // step) * step)


def pad(array: jax.Array, axis: int, length: int) -> jax.Array:
    """Extend an axis to a length with zeros."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return jnp.pad(array, widths)


def unit(sizes: jax.Array, features: jax.Array, where: jax.Array) -> jax.Array:
    """Return 1 in the coordinate that the next anchor takes, for the replicas selected; shape (R, m)."""
    coordinate = jnp.arange(features.shape[1]) == sizes[:, None]
    return (coordinate & jnp.broadcast_to(where, sizes.shape)[:, None]).astype(features.dtype)


def outer(vectors: jax.Array) -> jax.Array:
    """Return ggᵀ of each replica."""
    return vectors[:, :, None] * vectors[:, None, :]


def downdated_product(product_with_matrix: jax.Array, downdates: jax.Array, vectors: jax.Array) -> jax.Array:
    """Return (M − Σ ggᵀ)x, given Mx."""
    lengths = jnp.sum(downdates * vectors[:, None, :], axis=2)
    return product_with_matrix - jnp.sum(downdates * lengths[:, :, None], axis=1)


def downdated(matrices: jax.Array, downdates: jax.Array) -> jax.Array:
    """Return M − Σ ggᵀ, term by term so that M is read and written once."""
    for slot in range(downdates.shape[1]):
        matrices = matrices - outer(downdates[:, slot])
    return matrices


def put_row(matrices: jax.Array, sizes: jax.Array, where: jax.Array, rows: jax.Array) -> jax.Array:
    """Write the row of the next anchor for the replicas selected; for the others it lies beyond the matrix."""
    return put(matrices, (jnp.arange(len(sizes)), jnp.where(where, sizes, matrices.shape[1])), rows)


def put(array: jax.Array, at: Any, values: jax.Array) -> jax.Array:
    """Write where the indices lie within the array; no place occurs twice."""
    return array.at[at].set(values, mode="drop", unique_indices=True)
