"""Derivatives of kernels against central differences; the own ones and the numerical ones are held to the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits.kernels import Differentiable, Shear, diagonal_gradient, weighted_gradient
from kernel_bandits.kernels.composite import Timed

SCALES = [0.3, 0.7, 2.0]
OWN = [
    kb.Gaussian(0.4),
    kb.Gaussian(SCALES),
    kb.Exponential(0.4),
    kb.Exponential(SCALES),
    kb.Matern(0.4, smoothness=1.5),
    kb.Matern(SCALES, smoothness=2.5),
    kb.Linear(2.0, offset=1.0),
    kb.Linear(SCALES),
    kb.Polynomial(1),
    kb.Polynomial(3, SCALES, offset=0.25),
    kb.Constant(2.0),
    2.0 * kb.Gaussian(0.4) + 0.5,
    kb.Linear() * kb.Matern(1.0) + kb.Exponential(0.5),
    kb.TensorProduct(kb.Polynomial(2), kb.Matern(0.5), context_dimension=2),
    kb.TensorProduct(kb.Gaussian(0.5), kb.Linear(0.5) + kb.Gaussian(0.2), context_dimension=1),
    kb.TensorProduct(kb.Linear(), kb.Matern(0.5), 1, Shear(np.array([[0.7], [-0.4]]), np.array([0.2]))),
    kb.TensorProduct(kb.Gaussian(0.5), kb.Linear(0.5), 2, Shear(np.array([[0.7, -0.4]]), np.zeros(2))),
    Timed(kb.Matern(0.5), half_life=3.0),
]
FOREIGN = [
    sk.RBF(0.4),
    sk.Matern(SCALES, nu=1.5) * 2.0 + sk.DotProduct(),
    kb.Gaussian(0.4) + sk.RationalQuadratic(0.7),
    kb.Gaussian(0.4) * sk.RBF(SCALES),
    kb.TensorProduct(sk.RBF(0.5), kb.Matern(0.5), context_dimension=1),
]
COORDINATES = st.floats(-2, 2).map(lambda number: round(number, 3))


def differences(function, X, step=1e-6):
    """The gradient of each row's value by central differences, shape (n, d)."""
    shifts = step * np.eye(X.shape[1])
    return np.stack([(function(X + shift) - function(X - shift)) / (2 * step) for shift in shifts], axis=1)


@pytest.mark.parametrize("kernel", OWN + FOREIGN, ids=repr)
@settings(max_examples=30)
@given(
    X=hnp.arrays(float, (3, 3), elements=COORDINATES),
    Y=hnp.arrays(float, st.tuples(st.integers(1, 6), st.just(3)), elements=COORDINATES),
    seed=st.integers(0, 1000),
)
def test_gradient_agrees_with_differences(kernel, X, Y, seed):
    generator = np.random.default_rng(seed)
    # Off the lattice of Y by more than the step of the differences: at y itself the exponential kernel has a kink.
    X = X + generator.uniform(0.0001, 0.0009, X.shape)
    weights = generator.normal(size=(len(X), len(Y)))
    expected = differences(lambda moved: (weights * kernel(moved, Y)).sum(axis=1), X)
    gradient = weighted_gradient(kernel, X, Y, weights)
    # What rounding does to differences of kernel values of this size, and to those of a kernel near its kink.
    tolerance = 1e-7 * (1 + np.abs(expected).max() + np.abs(kernel.diag(X)).max())
    np.testing.assert_allclose(gradient, expected, atol=tolerance * (100 if "Exponential" in repr(kernel) else 1))


@pytest.mark.parametrize("kernel", OWN + FOREIGN, ids=repr)
def test_gradient_of_the_diagonal_agrees_with_differences(kernel):
    X = np.random.default_rng(0).random((5, 3))
    gradient = diagonal_gradient(kernel, X)
    if gradient is None:
        # by symmetry it is twice the slope in the first argument
        gradient = weighted_gradient(kernel, X, X.copy(), 2.0 * np.eye(5))
    expected = differences(kernel.diag, X)
    np.testing.assert_allclose(gradient, expected, atol=1e-6 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("kernel", OWN, ids=repr)
def test_every_kernel_here_has_its_own_gradient(kernel):
    assert isinstance(kernel, Differentiable)


def test_a_foreign_kernel_has_none_and_is_found_out():
    assert not isinstance(sk.RBF(0.4), Differentiable)


@pytest.mark.parametrize(
    "kernel", [kb.Gaussian(0.4), kb.Exponential(0.4), kb.Matern(0.4, 1.5), kb.Matern(0.4)], ids=repr
)
def test_gradient_of_a_stationary_kernel_is_zero_at_the_point_itself(kernel):
    X = np.random.default_rng(0).random((4, 3))
    np.testing.assert_array_equal(kernel.gradient(X, X.copy(), np.eye(4)), np.zeros((4, 3)))


@pytest.mark.parametrize("kernel", [kb.Gaussian(1e-3), kb.Matern(1e-3), kb.Exponential(1e-3)], ids=repr)
def test_gradients_keep_their_digits_far_from_the_origin(kernel):
    near, offset = np.array([[0.0], [2.0**-10], [2.0**-9]]), 2.0**27
    weights = np.arange(9.0).reshape(3, 3)
    np.testing.assert_allclose(
        kernel.gradient(near + offset, near + offset, weights), kernel.gradient(near, near, weights), rtol=1e-12
    )


def test_numerical_gradient_follows_the_units():
    """A step of fixed size would be wrong for columns of another unit."""
    generator = np.random.default_rng(0)
    X, Y, weights = generator.random((4, 2)), generator.random((5, 2)), generator.normal(size=(4, 5))
    units = np.array([1e6, 1e-6])
    numerical = weighted_gradient(sk.RBF(0.3 * units), X * units, Y * units, weights)
    np.testing.assert_allclose(numerical * units, kb.Gaussian(0.3).gradient(X, Y, weights), rtol=1e-7)
