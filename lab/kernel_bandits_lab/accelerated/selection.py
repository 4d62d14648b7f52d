"""Select among upper bounds, with the tie-breaks that NumPy's generator draws."""

import jax
import jax.numpy as jnp

from kernel_bandits.policy.policy import TIE_TOLERANCE

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
