import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_bandits import KernelBanditsError
from kernel_bandits.numerics import linalg

sizes = st.integers(0, 12)
seeds = st.integers(0, 2**32 - 1)


def positive_definite(generator, size):
    root = generator.normal(size=(size, size))
    return root @ root.T + np.eye(size)


@given(size=sizes | st.sampled_from([100, 260]), rows=st.integers(1, 5), seed=seeds)
def test_triangular_products(size, rows, seed):
    generator = np.random.default_rng(seed)
    upper, vector = np.triu(generator.normal(size=(size, size))), generator.normal(size=size)
    matrix = generator.normal(size=(rows, size))
    kept = vector.copy()
    np.testing.assert_allclose(linalg.times_upper(matrix.copy(), upper), matrix @ upper, atol=1e-10)
    np.testing.assert_allclose(linalg.times_upper_transpose(matrix.copy(), upper), matrix @ upper.T, atol=1e-10)
    np.testing.assert_allclose(linalg.upper_times_vector(upper, vector), upper @ vector, atol=1e-10)
    symmetric = upper + upper.T
    forms = np.vecdot(matrix @ symmetric, matrix)
    np.testing.assert_allclose(linalg.quadratic_forms(matrix, symmetric), forms, atol=1e-9)
    np.testing.assert_allclose(linalg.symmetric_times_vector(symmetric, vector), symmetric @ vector, atol=1e-10)
    np.testing.assert_array_equal(vector, kept)


@given(size=sizes, columns=sizes, seed=seeds)
def test_solutions_of_a_lower_triangular_system(size, columns, seed):
    generator = np.random.default_rng(seed)
    lower = np.linalg.cholesky(positive_definite(generator, size))
    rows = generator.normal(size=(size, columns))
    kept = rows.copy()
    solution = linalg.lower_solve(np.asfortranarray(lower), rows)
    np.testing.assert_allclose(lower @ solution, rows, atol=1e-10)
    np.testing.assert_array_equal(rows, kept)


@given(size=st.sampled_from([0, 1, 5, 100, 130]), rows=st.integers(1, 40), seed=seeds)
def test_products_small_and_large(size, rows, seed):
    """On both sides of the size at which another library takes over."""
    generator = np.random.default_rng(seed)
    matrix, other = generator.normal(size=(rows, size)), generator.normal(size=(size, 3 * size))
    np.testing.assert_allclose(linalg.times(matrix, other), matrix @ other, atol=1e-10)
    np.testing.assert_allclose(linalg.times_transpose(matrix, other.T.copy()), matrix @ other, atol=1e-10)
    vector = generator.normal(size=3 * size)
    np.testing.assert_allclose(linalg.times_vector(other, vector), other @ vector, atol=1e-10)
    np.testing.assert_allclose(linalg.transpose_times_vector(other.T.copy(), vector), other @ vector, atol=1e-10)
    np.testing.assert_allclose(linalg.transpose_times(matrix, matrix), matrix.T @ matrix, atol=1e-10)
    gram = np.eye(size)
    linalg.add_gram(gram, matrix, 1.0)
    np.testing.assert_allclose(gram, np.eye(size) + matrix.T @ matrix, atol=1e-10)


@given(size=sizes | st.sampled_from([61, 130, 199, 203]), seed=seeds)
def test_rank_one_update_keeps_exact_symmetry(size, seed):
    generator = np.random.default_rng(seed)
    matrix, vector = positive_definite(generator, size), generator.normal(size=size)
    matrix = (matrix + matrix.T) / 2
    kept = matrix.copy()
    after = linalg.minus_outer(matrix, vector)
    np.testing.assert_allclose(after, kept - np.outer(vector, vector), atol=1e-10)
    np.testing.assert_array_equal(after, after.T)
    np.testing.assert_array_equal(matrix, kept)


@given(size=st.integers(1, 12), columns=sizes, seed=seeds)
def test_upper_triangles_of_products_are_added_in_place(size, columns, seed):
    generator = np.random.default_rng(seed)
    matrix, rows = generator.normal(size=(size, size)), generator.normal(size=(size, columns))
    left, right = generator.normal(size=(2, size))
    expected = np.triu(0.3 * matrix - 2.0 * rows @ rows.T + 0.7 * (np.outer(left, right) + np.outer(right, left)))
    linalg.add_products(matrix, rows, -2.0, keep=0.3)
    linalg.add_symmetric_outer(matrix, left, right, 0.7)
    np.testing.assert_allclose(np.triu(matrix), expected, atol=1e-10)


@given(size=sizes, seed=seeds)
def test_inverse_and_log_determinant(size, seed):
    matrix = positive_definite(np.random.default_rng(seed), size)
    inverse, log_determinant = linalg.inverse_and_log_determinant(matrix)
    np.testing.assert_allclose(inverse @ matrix, np.eye(size), atol=1e-8)
    assert log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-9)


def test_an_indefinite_matrix_is_refused():
    with pytest.raises(KernelBanditsError, match="positive definite"):
        linalg.inverse_and_log_determinant(np.diag([1.0, -1.0]))


def test_square_root_of_a_variance_that_rounding_made_negative():
    np.testing.assert_array_equal(linalg.safe_sqrt(np.array([-1e-18, 0.0, 4.0])), [0.0, 0.0, 2.0])
