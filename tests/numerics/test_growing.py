"""Matrices that grow: equal to what they stand for, whatever waits, and values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_bandits.numerics.linalg import Symmetric
from kernel_bandits.posterior.basis import AnchorBasis

seeds = st.integers(0, 2**32 - 1)
# a matrix of this many rows, then steps: a further coordinate, terms of either sign, or what waits joins
starts = st.integers(0, 40)
steps = st.lists(st.sampled_from(["border", "minus", "plus", "settle"]), max_size=60)


def symmetric(generator, size):
    matrix = generator.normal(size=(size, size))
    return matrix + matrix.T


def assert_is(grown, dense, generator):
    size = len(dense)
    assert grown.size == size
    vector, rows = generator.normal(size=size), generator.normal(size=(3, size))
    close = {"atol": 1e-9 * (1.0 + np.abs(dense).sum()), "rtol": 0.0}
    np.testing.assert_allclose(grown.matrix, dense, **close)
    np.testing.assert_array_equal(grown.matrix, grown.matrix.T)
    np.testing.assert_allclose(grown.times_vector(vector), dense @ vector, **close)
    np.testing.assert_allclose(grown.times(rows), rows @ dense, **close)
    np.testing.assert_allclose(grown.quadratic_forms(rows), np.vecdot(rows @ dense, rows), **close)
    assert grown.trace == pytest.approx(np.trace(dense), abs=close["atol"])


@given(start=starts, steps=steps, corner=st.floats(0.1, 10.0), seed=seeds)
@settings(deadline=None)
def test_a_symmetric_matrix_is_the_sum_of_what_was_added_to_it(start, steps, corner, seed):
    generator = np.random.default_rng(seed)
    dense = symmetric(generator, start)
    grown = Symmetric(dense.copy(), corner)
    for step in steps:
        size = len(dense)
        vector = generator.normal(size=size)
        if step == "border":
            dense, grown = np.block([[dense, np.zeros((size, 1))], [np.zeros((1, size)), corner]]), grown.bordered()
        elif step == "settle":
            grown = grown.settled()
        else:
            sign = -1.0 if step == "minus" else 1.0
            dense, grown = dense + sign * np.outer(vector, vector), grown.plus(vector, sign)
    assert_is(grown, dense, generator)


@given(seed=seeds, count=st.integers(0, 40))
@settings(deadline=None)
def test_symmetric_matrices_that_grow_from_one_are_values(seed, count):
    generator = np.random.default_rng(seed)
    first = symmetric(generator, 20)
    common = Symmetric(first, 2.0).bordered()
    whole = np.block([[first, np.zeros((20, 1))], [np.zeros((1, 20)), 2.0]])
    for _ in range(5):
        vector = generator.normal(size=21)
        common, whole = common.plus(vector, -1.0), whole - np.outer(vector, vector)
    branches, dense = [common, common], [whole, whole]
    for step in range(2 * count):
        one, vector = step % 2, generator.normal(size=21)
        branches[one], dense[one] = branches[one].plus(vector, -1.0), dense[one] - np.outer(vector, vector)
    for branch, expected in zip([*branches, common], [*dense, whole], strict=True):
        assert_is(branch, expected, generator)


def factor_of(generator, size):
    lower = np.tril(generator.normal(size=(size, size)), k=-1)
    return lower / max(size, 1) ** 0.5 + np.diag(0.5 + generator.random(size))


class Table:
    """A kernel between numbered points, whose Gram matrix is given."""

    def __init__(self, gram):
        self.gram = gram

    def __call__(self, first, second):
        return self.gram[np.ix_(first[:, 0].astype(int), second[:, 0].astype(int))]

    def diag(self, points):
        return np.diagonal(self.gram)[points[:, 0].astype(int)]


def grown_to(lower, start=0, settle=()):
    """Return the basis of LLᵀ, of which the first anchors are given at once and the others one by one."""
    inverse, first = np.linalg.inv(lower[:start, :start]), np.arange(float(start))[:, None]
    kernel = Table(lower @ lower.T)
    grown = AnchorBasis(kernel, 1e-9, first, np.ascontiguousarray(inverse.T), lower[:start, :start])
    for size in range(start, len(lower)):
        grown = extended(grown, size)
        if size in settle:
            grown.whitening = grown.whitening.settled()
    return grown


def extended(grown, number):
    point = np.array([float(number)])
    features = grown(point[None, :]).features[0]
    return grown.with_anchor(point, features)[0]


def assert_inverse(grown, lower, generator):
    size, inverse = len(lower), np.linalg.inv(lower)
    assert len(grown) == size
    vector, rows = generator.normal(size=size), generator.normal(size=(3, size))
    close = {"atol": 1e-8, "rtol": 1e-8}
    np.testing.assert_allclose(grown.whitening.upper, inverse.T, **close)
    np.testing.assert_allclose(grown.whitening.times(rows.copy()), rows @ inverse.T, **close)
    np.testing.assert_allclose(grown.whitening.times_transpose(rows.copy()), rows @ inverse, **close)
    np.testing.assert_allclose(grown.whitening.transpose_times_vector(vector), inverse.T @ vector, **close)


@given(size=st.integers(1, 70), start=st.integers(0, 70), settle=st.sets(st.integers(0, 70)), seed=seeds)
@settings(deadline=None)
def test_a_basis_holds_the_inverse_of_the_factor(size, start, settle, seed):
    generator = np.random.default_rng(seed)
    lower = factor_of(generator, size)
    assert_inverse(grown_to(lower, min(start, size), settle), lower, generator)


@given(seed=seeds, size=st.integers(1, 30), further=st.integers(0, 30))
@settings(deadline=None)
def test_bases_that_grow_from_one_are_values(seed, size, further):
    generator = np.random.default_rng(seed)
    lower = factor_of(generator, size + 2 * further)
    common, numbers = grown_to(lower[:size, :size]), np.arange(size + 2 * further)
    common.kernel = Table(lower @ lower.T)
    branches = [common, common]
    for row in range(size, size + further):
        branches = [extended(branch, row + place) for branch, place in zip(branches, (0, further), strict=True)]
    ends = [numbers[: size + further], np.delete(numbers, np.s_[size : size + further]), numbers[:size]]
    for branch, own in zip([*branches, common], ends, strict=True):
        assert_inverse(branch, np.linalg.cholesky(common.kernel.gram[np.ix_(own, own)]), generator)


def test_rows_are_solved_for_as_accurately_as_the_condition_allows():
    """JL = I to the condition of L times rounding, 1e7·1e-16, and not its square, 1e14·1e-16, after 300 rows."""
    size = 300
    points = np.linspace(0.0, 1.0, size)
    lower = np.linalg.cholesky(np.exp(-np.abs(points[:, None] - points)) ** 2 + 1e-12 * np.eye(size))
    lower[150:] *= np.geomspace(1.0, 1e-6, 150)[:, None]
    grown = grown_to(lower)
    assert np.linalg.cond(lower) > 1e7
    np.testing.assert_allclose(grown.whitening.upper.T @ lower, np.eye(size), atol=1e-8)
