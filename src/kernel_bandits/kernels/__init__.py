"""Covariance functions on joint points, in scikit-learn's protocol.

``kernel(X, Y)`` takes points as rows and returns their cross-Gram matrix; ``kernel.diag(X)`` returns k(x, x) for each
row. Any object with these two methods works in every policy, including scikit-learn's Gaussian-process kernels.
Conversely, after :func:`register_with_scikit_learn`, scikit-learn's ``GaussianProcessRegressor`` accepts the kernels
here and treats their parameters as fixed. Kernels are immutable; ``+`` and ``*`` combine them with each other and with
numbers.

Continuous actions need derivatives. All kernels here have a method ``kernel.gradient(X, Y, weights)``; for kernels
without it, :func:`weighted_gradient` uses finite differences.
"""

from kernel_bandits.kernels.base import (
    Constant,
    Differentiable,
    Kernel,
    KernelLike,
    Product,
    Sum,
    as_kernel,
    diagonal_gradient,
    kernel_gradient,
    register_with_scikit_learn,
    weighted_gradient,
)
from kernel_bandits.kernels.composite import PerArm, Shear, TensorProduct, require_columns, require_gram
from kernel_bandits.kernels.dot_product import Linear, Polynomial
from kernel_bandits.kernels.mixed import Bends, Mixed
from kernel_bandits.kernels.stationary import Exponential, Gaussian, Lengthscale, Matern, Stationary, median_lengthscale

__all__ = [
    "Bends",
    "Constant",
    "Differentiable",
    "Exponential",
    "Gaussian",
    "Kernel",
    "KernelLike",
    "Lengthscale",
    "Linear",
    "Matern",
    "Mixed",
    "PerArm",
    "Polynomial",
    "Product",
    "Shear",
    "Stationary",
    "Sum",
    "TensorProduct",
    "as_kernel",
    "diagonal_gradient",
    "kernel_gradient",
    "median_lengthscale",
    "register_with_scikit_learn",
    "require_columns",
    "require_gram",
    "weighted_gradient",
]
