"""The stationary kernels as functions that compile, with lengthscales of each replica."""

from typing import Literal, TypeAlias, cast, get_args

import jax
import jax.numpy as jnp

from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.kernels.stationary import Stationary

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
