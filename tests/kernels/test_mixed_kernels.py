"""The kernels of tables: their parts, their gradients, and arms that share nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits.kernels import Bends, Matern, weighted_gradient


def points(count, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(count, columns))


@given(
    bias=st.floats(0.0, 3.0),
    linear=st.floats(0.0, 3.0),
    smooth=st.floats(0.0, 3.0),
    lengthscale=st.floats(0.1, 10.0),
    offset=st.floats(-1e3, 1e3),
)
@settings(max_examples=50)
def test_a_mixed_kernel_is_the_sum_of_its_parts(bias, linear, smooth, lengthscale, offset):
    X, Y = 3.0 * points(7, 4) + offset, 3.0 * points(5, 4, seed=1) + offset
    kernel = kb.Mixed(bias, linear, smooth, lengthscale, centre=[offset] * 4, scale=[3.0] * 4)
    left, right = (X - offset) / 3.0, (Y - offset) / 3.0
    # distances grow as √4
    expected = bias + linear * left @ right.T / 4 + smooth * Matern(2.0 * lengthscale)(left, right)
    np.testing.assert_allclose(kernel(X, Y), expected, atol=1e-9)
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(kernel(X)), atol=1e-9)


def test_many_points_of_many_columns_are_as_far_apart_as_a_few():
    X, Y = 0.05 * points(300, 40), 0.05 * points(300, 40, seed=1)
    kernel = kb.Mixed(0.0, 0.0, 1.0, lengthscale=0.2)
    rows = [kernel(X, Y[start : start + 1]) for start in range(300)]
    np.testing.assert_allclose(kernel(X, Y), np.hstack(rows), atol=1e-12)
    # at most 1e-7 of a distance is left of a point and itself
    np.testing.assert_allclose(np.diagonal(kernel(X)), 1.0, atol=1e-9)


@pytest.mark.parametrize("columns", [3, 30])
def test_points_that_return_have_something_of_their_own(columns):
    """However distances are computed: with many columns as differences of products, which rounding leaves above 0."""
    X = np.repeat(1e3 + points(10, columns), 2, axis=0)
    Y = X[::-1].copy()
    with_own, without = (kb.Mixed(0.3, 0.8, 1.2, 0.7, centre=1e3, own=own) for own in (0.4, 0.0))
    same = (X[:, None, :] == Y).all(axis=2)
    np.testing.assert_allclose(with_own(X, Y) - without(X, Y), 0.4 * same, atol=1e-12)
    np.testing.assert_allclose(with_own.diag(X), without.diag(X) + 0.4)
    assert with_own.variance == pytest.approx(without.variance + 0.4)
    np.testing.assert_array_equal(
        weighted_gradient(with_own, X, Y, np.ones((20, 20))), weighted_gradient(without, X, Y, np.ones((20, 20)))
    )


METRIC = np.array([[0.6, -0.2, 0.0], [-0.2, 0.5, 0.1], [0.0, 0.1, 0.3]])


def test_a_metric_weighs_linear_functions():
    X, Y = points(7, 3), points(5, 3, seed=1)
    kernel = kb.Mixed(0.0, 0.8, 0.0, metric=METRIC)
    np.testing.assert_allclose(kernel(X, Y), 0.8 * X @ METRIC @ Y.T, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(kernel(X)), atol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        kb.Mixed(0.3, 0.8, 1.2, 0.7, centre=1.0, scale=2.0, variables=2),
        kb.Mixed(0.3, 0.8, 1.2, 0.7, centre=1.0, scale=2.0, metric=METRIC),
        kb.Mixed(0.3, 0.8, 1.2, 0.7, centre=1.0, scale=2.0, bends=Bends([1], [0.2], [0.5])),
    ],
)
def test_gradients_are_those_of_differences(kernel):
    X, Y, weights = points(6, 3), points(5, 3, seed=1), points(6, 5, seed=2)

    class WithoutGradient:
        def __call__(self, X, Y=None):
            return kernel(X, Y)

        def diag(self, X):
            return kernel.diag(X)

    np.testing.assert_allclose(
        kernel.gradient(X, Y, weights), weighted_gradient(WithoutGradient(), X, Y, weights), atol=1e-6
    )


def test_bent_columns_are_compared_as_such():
    X, Y = 5.0 * points(6, 3), 5.0 * points(4, 3, seed=1)
    options = {"centre": [0.1, 0.2, 0.3], "scale": [1.0, 2.0, 0.5], "metric": METRIC, "own": 0.2}
    bends = Bends([2, 0], [1.0, -1.0], [0.5, 2.0])

    def bent(X):
        return np.column_stack([np.arcsinh((X[:, 0] + 1.0) / 2.0), X[:, 1], np.arcsinh((X[:, 2] - 1.0) / 0.5)])

    kernel, straight = kb.Mixed(0.3, 0.8, 1.2, 0.7, bends=bends, **options), kb.Mixed(0.3, 0.8, 1.2, 0.7, **options)
    np.testing.assert_allclose(kernel(X, Y), straight(bent(X), bent(Y)), atol=1e-12)
    np.testing.assert_allclose(kernel.diag(X), straight.diag(bent(X)), atol=1e-12)


def test_arms_share_nothing():
    contexts, arms = points(6, 3), np.eye(2)[[0, 1, 0, 1, 1, 0]]
    X, kernel = np.hstack([contexts, arms]), kb.Mixed(0.3, 0.8, 1.2)
    gram = kb.PerArm(kernel, 3)(X)
    same = arms @ arms.T
    np.testing.assert_allclose(gram, same * kernel(contexts))
    np.testing.assert_allclose(kb.PerArm(kernel, 3).diag(X), np.diagonal(gram))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: kb.Mixed(-1.0, 1.0, 1.0), "bias: expected a finite variance"),
        (lambda: kb.Mixed(1.0, 1.0, 1.0, scale=0.0), "scale: expected positive"),
        (lambda: kb.Mixed(1.0, 1.0, 1.0, metric=[[1.0, 0.0]]), "metric: expected a symmetric matrix"),
        (lambda: kb.Mixed(1.0, 1.0, 1.0, bends=[0]), "bends: expected"),
        (lambda: kb.Mixed(1.0, 1.0, 1.0, bends=Bends([3], [0.0], [1.0]))(np.ones((2, 3))), "column 3 is bent"),
        (lambda: Bends([0, 0], [0.0, 0.0], [1.0, 1.0]), "columns: expected different"),
        (lambda: Bends([0, 1], [0.0, 0.0], [1.0]), "one middle and one knee"),
        (lambda: Bends([0], [0.0], [0.0]), "knee: expected positive"),
        (lambda: kb.PerArm(kb.Gaussian(), -1), "context_dimension: expected a whole number"),
        (lambda: kb.PerArm(kb.Gaussian(), 3)(np.ones((2, 3))), "at least one action column"),
        (lambda: kb.Mixed(1.0, 1.0, 1.0, centre=[0.0, 0.0])(np.ones((2, 3))), "centre: 2 numbers were given"),
    ],
)
def test_bad_arguments_are_named(build, words):
    with pytest.raises(kb.InputError, match=words):
        build()


@given(
    offset=st.floats(-10.0, 10.0),
    kept=st.sets(st.integers(0, 4), min_size=1),
    metric=st.booleans(),
    bent=st.booleans(),
)
@settings(max_examples=30)
def test_a_restricted_kernel_is_the_kernel_of_points_that_agree_elsewhere(offset, kept, metric, bent):
    columns = np.array(sorted(kept))
    X, Y = points(6, 5) + offset, points(4, 5, seed=1) + offset
    rest = np.setdiff1d(np.arange(5), columns)
    X[:, rest] = Y[:, rest] = X[0, rest]
    root = np.tril(points(5, 5, seed=2)) + 2.0 * np.eye(5)
    kernel = kb.Mixed(
        0.3,
        0.8,
        1.2,
        0.7,
        centre=[offset] * 5,
        scale=[1.0, 2.0, 0.5, 1.0, 3.0],
        metric=root @ root.T / 10.0 if metric else None,
        bends=Bends([3, 1], [offset + 0.5, offset], [0.5, 2.0]) if bent else None,
    )
    restricted = kernel.restricted(columns, X[0])
    np.testing.assert_allclose(restricted(X[:, columns], Y[:, columns]), kernel(X, Y), atol=1e-9)
    np.testing.assert_allclose(restricted.diag(X[:, columns]), kernel.diag(X), atol=1e-9)
