"""The stationary kernels as functions that compile, with a lengthscale per replica."""

from __future__ import annotations

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import Exponential, Gaussian, KernelLike, Matern

Family: TypeAlias = Literal["gaussian", "exponential", "matern32", "matern52"]
# The c in c·‖(x − y)/ℓ‖², the argument of :func:`of_squared_distance`; as in kernel_bandits.kernels.
_FACTORS: dict[Family, float] = {"gaussian": -0.5, "exponential": 1.0, "matern32": 3.0, "matern52": 5.0}


def family_of(kernel: KernelLike) -> Family:
    """The family a kernel belongs to; one compiled program serves one family."""
    if type(kernel) is Gaussian:
        return "gaussian"
    if type(kernel) is Exponential:
        return "exponential"
    if type(kernel) is Matern:
        return "matern32" if kernel.smoothness == 1.5 else "matern52"
    raise InputError(
        f"kernel: expected Gaussian, Exponential or Matern, got {kernel!r}; other kernels run with kernel_bandits.run."
    )


def scaling_of(kernel: KernelLike) -> tuple[float, FloatArray]:
    """The factor of squared distances and what columns are divided by first: both as the kernel itself computes."""
    factor = _FACTORS[family_of(kernel)]
    assert isinstance(kernel, (Gaussian, Exponential, Matern))
    lengthscale = kernel.lengthscale
    if isinstance(lengthscale, float):
        return factor / lengthscale / lengthscale, np.ones(1)
    return factor, lengthscale


def squared_distances(left: jax.Array, right: jax.Array) -> jax.Array:
    """‖x − y‖² from differences, column by column, so that no array of all differences is ever held.

    Args:
        left: shape (…, n, d).
        right: shape (…, m, d).

    Returns:
        Shape (…, n, m).
    """
    columns = range(left.shape[-1])
    return sum(
        (jnp.square(left[..., :, None, j] - right[..., None, :, j]) for j in columns),
        start=jnp.zeros((), left.dtype),
    )


def of_squared_distance(family: Family, squared: jax.Array) -> jax.Array:
    """k, given the factor times ‖(x − y)/ℓ‖²."""
    if family == "gaussian":
        return jnp.exp(squared)
    distance = jnp.sqrt(squared)
    if family == "exponential":
        return jnp.exp(-distance)
    if family == "matern32":
        return (1 + distance) * jnp.exp(-distance)
    return (1 + distance + squared / 3) * jnp.exp(-distance)


def gram(family: Family, factor: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """k(left, right) of each replica.

    Args:
        family: which kernel.
        factor: shape (R,).
        left: points in units of the lengthscale, shape (R, n, d).
        right: shape (R, m, d).

    Returns:
        Shape (R, n, m).
    """
    return of_squared_distance(family, factor[:, None, None] * squared_distances(left, right))
