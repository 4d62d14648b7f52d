"""Operations on arrays whose first axis is the replica: products, kernels, and the choice among upper bounds."""

from typing import Any, Literal, TypeAlias, cast, get_args

import jax
import jax.numpy as jnp

from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.kernels.stationary import Stationary
from kernel_bandits.policy.policy import TIE_TOLERANCE


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


Family: TypeAlias = Literal["gaussian", "exponential", "matern 3/2", "matern 5/2"]


def family_of(kernel: KernelLike) -> Family:
    """Return the family of a kernel; one compiled program serves one family."""
    family = getattr(kernel, "form", None)
    if family in get_args(Family):
        return cast("Family", family)
    raise InputError(
        f"kernel: expected Gaussian, Exponential or Matern, got {kernel!r}; other kernels run with kernel_bandits.run."
    )


def scaling_of(kernel: KernelLike) -> tuple[float, tuple[float, ...]]:
    """Return the factor of squared distances and the divisor of each column, both as the kernel itself uses them."""
    family_of(kernel)
    assert isinstance(kernel, Stationary)
    lengthscale = kernel.lengthscale
    if isinstance(lengthscale, float):
        return kernel.factor / lengthscale / lengthscale, (1.0,)
    return kernel.factor, tuple(lengthscale.tolist())


def squared_distances(left: jax.Array, right: jax.Array) -> jax.Array:
    """Return ‖x − y‖² of points (…, n, d) and (…, m, d), shape (…, n, m).

    The differences are squared column by column, and never held in one array.
    """
    squares = (jnp.square(left[..., :, None, j] - right[..., None, :, j]) for j in range(left.shape[-1]))
    return sum(squares, start=jnp.zeros((), left.dtype))


def of_squared_distance(family: Family, squared: jax.Array) -> jax.Array:
    """Return k, given the factor times ‖(x − y)/ℓ‖².

    :mod:`kernel_bandits.kernels.stationary` computes the same values in place and in pieces, for speed.
    """
    if family == "gaussian":
        return jnp.exp(squared)
    distance = jnp.sqrt(squared)
    if family == "exponential":
        return jnp.exp(-distance)
    if family == "matern 3/2":
        return (1 + distance) * jnp.exp(-distance)
    return (1 + distance + squared / 3) * jnp.exp(-distance)


def gram(family: Family, factor: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """Return k of points (R, n, d) and (R, m, d) in units of the lengthscales, shape (R, n, m); factors (R,)."""
    return of_squared_distance(family, factor[:, None, None] * squared_distances(left, right))


# Policies break ties up to this share of the largest bound; in float32 rounding is coarser.
TIE_TOLERANCES = {"float64": TIE_TOLERANCE, "float32": 1e-6}


def choose(values: jax.Array, words: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the row of the largest value of each replica, and how many words it used; both of shape (R,).

    Among values (R, A) that are equal up to rounding, the next two 32-bit words of each replica's generator of ties,
    uint32 (R, 2), choose one.
    """
    peak = values.max(axis=1)
    tied = values >= (peak - TIE_TOLERANCES[values.dtype.name] * jnp.abs(peak))[:, None]
    count = jnp.maximum(tied.sum(axis=1), 1)
    rank, used = bounded(words, count)
    # the rank-th of the tied ones
    position = jnp.cumsum(tied, axis=1) - 1
    row = jnp.argmax(tied & (position == rank[:, None]), axis=1)
    return row.astype(jnp.int32), used


def bounded(words: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw as ``Generator.integers(count)`` does: ⌊word·count/2³²⌋, skipping a word that would bias the draw.

    Two words in a row are skipped with probability below 1e-12 at ten thousand actions; the second is used here.
    Return the draws, and how many words each took (none where count is 1).
    """
    count64 = count.astype(jnp.uint64)
    products = words.astype(jnp.uint64) * count64[:, None]
    low = products[:, 0] & jnp.uint64(0xFFFFFFFF)
    skipped = low < (jnp.uint64(2**32) - count64) % count64
    rank = jnp.where(skipped, products[:, 1], products[:, 0]) >> jnp.uint64(32)
    used = jnp.where(count > 1, 1 + skipped, 0)
    return rank.astype(jnp.int32), used.astype(jnp.int32)
