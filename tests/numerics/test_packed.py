"""Packed symmetric matrices: what they hold, and what LAPACK makes of them."""

import numpy as np
import pytest

from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.numerics import packed

SIZES = [1, 2, 3, 4, 7, 8, 33, 64]


def positive_definite(size):
    root = np.random.default_rng(size).normal(size=(size, size))
    return root @ root.T + np.eye(size)


@pytest.mark.parametrize("size", SIZES)
def test_packing_keeps_every_entry_once(size):
    matrix = positive_definite(size)
    entries = packed.pack(matrix)
    np.testing.assert_array_equal(np.sort(entries), np.sort(matrix[np.triu_indices(size)]))
    np.testing.assert_array_equal(packed.unpack(entries, size), matrix)


@pytest.mark.parametrize("size", SIZES)
def test_only_the_upper_triangle_is_read(size):
    matrix = positive_definite(size)
    np.testing.assert_array_equal(packed.pack(np.triu(matrix)), packed.pack(matrix))


@pytest.mark.parametrize("size", SIZES)
def test_the_diagonal_stands_where_it_is_said_to(size):
    matrix = positive_definite(size)
    np.testing.assert_array_equal(packed.pack(matrix)[packed.diagonal(size)], matrix.diagonal())


@pytest.mark.parametrize("size", SIZES)
def test_the_inverse_and_the_log_determinant(size):
    matrix = positive_definite(size)
    inverse, log_determinant = packed.inverse_and_log_determinant(packed.pack(matrix), size)
    np.testing.assert_allclose(inverse @ matrix, np.eye(size), atol=1e-9)
    np.testing.assert_array_equal(inverse, inverse.T)
    assert log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-9)


def test_a_matrix_that_is_not_positive_definite_is_refused():
    with pytest.raises(KernelBanditsError, match="positive definite"):
        packed.inverse_and_log_determinant(packed.pack(np.diag([1.0, -1.0])), 2)
