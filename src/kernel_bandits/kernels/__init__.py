"""Covariance functions on joint points, in scikit-learn's protocol.

A kernel is called as ``kernel(X, Y)`` with points as rows and returns their cross-Gram matrix; ``kernel.diag(X)``
returns k(x, x) row by row. Any object that does both works in every policy, scikit-learn's Gaussian-process kernels
included. The other way round, :func:`register_with_scikit_learn` lets scikit-learn's ``GaussianProcessRegressor`` take
the kernels here, whose parameters it treats as fixed. Kernels are immutable; ``+`` and ``*`` combine them with each
other and with numbers.

Continuous actions need derivatives. A kernel that has ``kernel.gradient(X, Y, weights)`` gives its own, as all kernels
here do; for any other :func:`weighted_gradient` takes differences.
"""

from kernel_bandits.kernels.base import (
    Constant,
    Differentiable,
    Kernel,
    KernelLike,
    Product,
    Sum,
    as_kernel,
    register_with_scikit_learn,
    weighted_gradient,
)
from kernel_bandits.kernels.composite import TensorProduct, require_columns, require_gram
from kernel_bandits.kernels.dot_product import Linear, Polynomial
from kernel_bandits.kernels.lengthscales import Lengthscale, median_lengthscale
from kernel_bandits.kernels.stationary import Exponential, Gaussian, Matern, Stationary

__all__ = [
    "Constant",
    "Differentiable",
    "Exponential",
    "Gaussian",
    "Kernel",
    "KernelLike",
    "Lengthscale",
    "Linear",
    "Matern",
    "Polynomial",
    "Product",
    "Stationary",
    "Sum",
    "TensorProduct",
    "as_kernel",
    "median_lengthscale",
    "register_with_scikit_learn",
    "require_columns",
    "require_gram",
    "weighted_gradient",
]
