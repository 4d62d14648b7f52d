"""Kernels at fixed points: the values, and the gradients that share their work, against the kernel and differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk
from test_kernel_gradients import differences

import kernel_bandits as kb
from kernel_bandits.kernels import Bends, Shear, kernel_gradient

METRIC = np.array([[0.6, -0.2, 0.0], [-0.2, 0.5, 0.1], [0.0, 0.1, 0.3]])
MIXED = [
    kb.Mixed(0.3, 0.8, 1.2, 0.7, centre=1.0, scale=2.0, variables=2),
    kb.Mixed(0.3, 0.8, 1.2, 0.7, centre=[0.1, 0.2, 0.3], scale=[0.5, 1.0, 2.0]),
    kb.Mixed(0.3, 0.8, 1.2, 0.7, centre=1.0, scale=2.0, metric=METRIC),
    kb.Mixed(0.3, 0.0, 1.2, 0.1),
    kb.Mixed(0.3, 0.8, 1.2, 0.7, scale=[0.5, 1.0, 2.0], metric=METRIC, bends=Bends([2, 0], [0.1, -0.2], [0.3, 0.5])),
]
SHEAR = Shear(np.array([[0.7], [-0.4], [0.1]]), np.array([0.2]))
ACTIONS = [*MIXED, kb.Gaussian(0.5) + kb.Linear(), sk.RBF(0.5), kb.Mixed(0.3, 0.8, 1.2, own=0.5)]


def assert_sections(sections, kernel, fixed, X, join=lambda X: X):
    """Of a kernel of joined points, of which X are the last columns."""
    generator, columns = np.random.default_rng(3), X.shape[1]
    weights, own = generator.normal(size=(len(X), len(fixed))), generator.normal(size=len(X))
    gram, prior, pullback = sections.with_pullback(X)
    np.testing.assert_allclose(gram, kernel(join(X), fixed), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(prior, kernel.diag(join(X)), rtol=1e-13)
    for with_gradient, alone in zip((gram, prior), sections(X), strict=True):
        np.testing.assert_array_equal(with_gradient, alone)
    gradient = pullback(weights, own)
    by_kernel = kernel_gradient(kernel, join(X), fixed, weights, own)[:, -columns:]
    np.testing.assert_allclose(gradient, by_kernel, rtol=1e-7, atol=1e-7)

    def weighted(moved):
        return (weights * kernel(join(moved), fixed)).sum(axis=1) + own * kernel.diag(join(moved))

    np.testing.assert_allclose(gradient, differences(weighted, X), atol=1e-6)


@pytest.mark.parametrize("kernel", MIXED, ids=repr)
@given(seed=st.integers(0, 1000), count=st.integers(1, 20))
@settings(max_examples=20)
def test_sections_are_the_kernel_at_fixed_points(kernel, seed, count):
    generator = np.random.default_rng(seed)
    fixed, X = generator.normal(size=(count, 3)), generator.normal(size=(6, 3))
    assert_sections(kernel.sections(fixed), kernel, fixed, X)


@pytest.mark.parametrize("shear", [None, SHEAR], ids=["", "sheared"])
@pytest.mark.parametrize("actions", ACTIONS, ids=repr)
def test_sections_in_a_context_are_the_tensor_product_there(actions, shear):
    kernel = kb.TensorProduct(kb.Matern(0.6), actions, 1, shear)
    generator = np.random.default_rng(1)
    fixed, context, X = generator.normal(size=(5, 4)), generator.normal(size=1), generator.normal(size=(6, 3))
    sections = kernel.sections_in(context, fixed)
    assert_sections(sections, kernel, fixed, X, lambda X: np.hstack([np.tile(context, (len(X), 1)), X]))


def test_nothing_is_computed_in_advance_where_nothing_can_be():
    fixed = np.ones((2, 3))
    assert kb.Gaussian(0.5).sections(fixed) is None
    # what a point has of its own is not continuous
    assert kb.Mixed(0.3, 0.8, 1.2, own=0.5).sections(fixed) is None
    assert kb.TensorProduct(kb.Gaussian(), kb.Gaussian(), context_dimension=1).sections_in(np.zeros(2), fixed) is None


def test_a_subclass_that_is_another_kernel_is_not_taken_for_its_base():
    class Twice(kb.Mixed):
        def __call__(self, X, Y=None):
            return 2.0 * super().__call__(X, Y)

    fixed = np.random.default_rng(0).normal(size=(4, 3))
    assert Twice(0.3, 0.8, 1.2).sections(fixed) is None
    assert kb.Mixed(0.3, 0.8, 1.2).sections(fixed) is not None
