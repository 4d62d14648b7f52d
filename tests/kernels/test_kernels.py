import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits.kernels import Shear, register_with_scikit_learn

SCALES = [0.3, 0.7, 2.0]
PAIRS = [
    (kb.Gaussian(0.4), sk.RBF(0.4)),
    (kb.Gaussian(SCALES), sk.RBF(SCALES)),
    (kb.Exponential(0.4), sk.Matern(0.4, nu=0.5)),
    (kb.Exponential(SCALES), sk.Matern(SCALES, nu=0.5)),
    (kb.Matern(0.4, smoothness=1.5), sk.Matern(0.4, nu=1.5)),
    (kb.Matern(SCALES, smoothness=1.5), sk.Matern(SCALES, nu=1.5)),
    (kb.Matern(0.4, smoothness=2.5), sk.Matern(0.4, nu=2.5)),
    (kb.Matern(SCALES, smoothness=2.5), sk.Matern(SCALES, nu=2.5)),
    (kb.Linear(offset=0.25), sk.DotProduct(sigma_0=0.5)),
    (kb.Polynomial(3, offset=0.25), sk.DotProduct(sigma_0=0.5) ** 3),
    (2.0 * kb.Gaussian(0.4) + 0.5, 2.0 * sk.RBF(0.4) + 0.5),
    (kb.Gaussian(0.4) * kb.Linear() + kb.Matern(2.0), sk.RBF(0.4) * sk.DotProduct(0.0) + sk.Matern(2.0, nu=2.5)),
    (kb.Gaussian(0.4) + sk.RBF(2.0), sk.RBF(0.4) + sk.RBF(2.0)),
]


def points(seed, count=12, dimension=3):
    return np.random.default_rng(seed).normal(size=(count, dimension))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda kernel: repr(kernel))
def test_agrees_with_scikit_learn(ours, theirs):
    X, Y = points(0), points(1, 7)
    np.testing.assert_allclose(ours(X, Y), theirs(X, Y), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours.diag(X), theirs.diag(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ours", [ours for ours, _ in PAIRS], ids=repr)
@settings(max_examples=20)
@given(X=hnp.arrays(float, st.tuples(st.integers(1, 8), st.just(3)), elements=st.floats(-3, 3)))
def test_is_symmetric_positive_semidefinite_with_its_diagonal(ours, X):
    gram = ours(X, X)
    scale = 1 + gram.diagonal().max()
    np.testing.assert_allclose(gram, gram.T, atol=1e-12 * scale)
    np.testing.assert_allclose(gram.diagonal(), ours.diag(X), rtol=1e-12)
    assert np.linalg.eigvalsh(gram).min() >= -1e-10 * scale


def test_distances_keep_their_digits_far_from_the_origin():
    near, far = np.array([[0.0], [1e-3]]), np.array([[1e8], [1e8 + 2**-10]])
    np.testing.assert_allclose(kb.Gaussian(1e-3)(far, far)[0, 1], np.exp(-0.5 * (2**-10 / 1e-3) ** 2), rtol=1e-12)
    np.testing.assert_allclose(kb.Gaussian(1e-3)(near, near)[0, 1], np.exp(-0.5), rtol=1e-12)


class CountingKernel:
    """A kernel that counts the rows it is evaluated on."""

    def __init__(self, kernel):
        self.kernel, self.rows = kernel, 0

    def __call__(self, X, Y=None):
        self.rows += len(X)
        return self.kernel(X, Y)

    def diag(self, X):
        return self.kernel.diag(X)


def test_tensor_product_is_the_product_on_the_columns():
    kernel = kb.TensorProduct(kb.Linear(offset=1.0), kb.Matern(0.5), context_dimension=2)
    X, Y = points(0), points(1, 7)
    expected = kb.Linear(offset=1.0)(X[:, :2], Y[:, :2]) * kb.Matern(0.5)(X[:, 2:], Y[:, 2:])
    np.testing.assert_allclose(kernel(X, Y), expected, rtol=1e-14)
    np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X)), rtol=1e-14)


def test_tensor_product_evaluates_the_context_once_per_round():
    context = CountingKernel(kb.Gaussian(0.5))
    kernel = kb.TensorProduct(context, kb.Gaussian(0.2), context_dimension=1)
    policy = kb.ek_ucb(kernel, seed=0)
    generator = np.random.default_rng(0)
    plain = kb.ek_ucb(kb.Gaussian([0.5, 0.2]), seed=0)
    for _ in range(20):
        x, actions = generator.random(1), generator.random((30, 1))
        before = context.rows
        decision = policy.select(x, actions)
        assert context.rows - before <= 1
        assert decision.index == plain.select(x, actions).index
        policy.update(x, decision.action, x[0])
        plain.update(x, decision.action, x[0])


def test_scikit_learns_regressor_takes_our_kernels():
    register_with_scikit_learn()
    X, y, queries = points(0), np.sin(points(0)).sum(axis=1), points(2)
    kernel = 2.0 * kb.Gaussian(SCALES) + kb.Linear()
    ours = GaussianProcessRegressor(kernel, alpha=0.1).fit(X, y)
    theirs = GaussianProcessRegressor(
        2.0 * sk.RBF(SCALES) + sk.DotProduct(0.0, "fixed"), alpha=0.1, optimizer=None
    ).fit(X, y)
    for one, other in zip(
        ours.predict(queries, return_std=True), theirs.predict(queries, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    assert ours.kernel_ is kernel
    with pytest.raises(kb.InputError, match="no free hyper-parameters"):
        kernel.theta = np.zeros(2)


def test_median_lengthscale_by_hand():
    # distances 1, 2 and 3
    assert kb.median_lengthscale([[0.0], [1.0], [3.0]]) == 2.0
    # repeats do not count: ten times 1, ten times 3, once 2
    assert kb.median_lengthscale([[0.0]] * 10 + [[1.0], [3.0]]) == 2.0
    scales = kb.median_lengthscale([[0.0, 5.0], [1.0, 5.0], [3.0, 5.0]], per_dimension=True)
    np.testing.assert_allclose(scales, [2.0 * np.sqrt(2), 1.0])


def test_median_lengthscale_follows_the_units():
    sample = points(0, 3000)
    assert kb.median_lengthscale(1000 * sample) == pytest.approx(1000 * kb.median_lengthscale(sample))
    units = np.array([1.0, 1e3, 1e-3])
    np.testing.assert_allclose(
        kb.median_lengthscale(sample * units, per_dimension=True),
        units * kb.median_lengthscale(sample, per_dimension=True),
    )


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: kb.Gaussian(0.0), "lengthscale"),
        (lambda: kb.Gaussian([1.0, -1.0]), "lengthscale"),
        (lambda: kb.Gaussian(np.nan), "lengthscale"),
        (lambda: kb.Matern(1.0, smoothness=0.7), "smoothness"),
        (lambda: kb.Polynomial(0), "degree"),
        (lambda: kb.Polynomial(2, offset=-1.0), "offset"),
        (lambda: kb.Constant(-1.0), "value"),
        (lambda: kb.Gaussian([1.0, 2.0])(points(0)), "2 lengthscales were given for points with 3 columns"),
        (lambda: kb.Gaussian([1.0, 2.0]).diag(points(0)), "2 lengthscales were given for points with 3 columns"),
        (lambda: kb.TensorProduct(kb.Linear(), kb.Linear(), 3)(points(0), points(1)), "at least one action column"),
        (lambda: kb.Gaussian(1.0) + "rbf", "kernel"),
        (lambda: kb.ek_ucb(kb.Gaussian), "kernel"),
    ],
)
def test_bad_kernels_are_named(build, words):
    with pytest.raises(kb.InputError, match=words):
        build()


@pytest.mark.parametrize("make", [kb.Gaussian, kb.Exponential, kb.Matern])
def test_the_lengthscale_is_what_was_given(make):
    one, several = make(0.3), make([0.3, 0.4])
    assert one.lengthscale == 0.3
    assert isinstance(one.lengthscale, float)
    np.testing.assert_array_equal(several.lengthscale, [0.3, 0.4])
    # a copy: the kernel stays as it is
    before = several(np.zeros((1, 2)), np.full((1, 2), 0.1))
    several.lengthscale[:] = 9.0
    np.testing.assert_array_equal(several(np.zeros((1, 2)), np.full((1, 2), 0.1)), before)


def test_polynomials_by_their_formula():
    X, Y = np.random.default_rng(0).normal(size=(4, 2)), np.random.default_rng(1).normal(size=(3, 2))
    scales = np.array([0.5, 4.0])
    expected = np.array([[(x[0] * y[0] / 0.25 + x[1] * y[1] / 16.0 + 0.3) ** 2 for y in Y] for x in X])
    kernel = kb.Polynomial(2, scales, offset=0.3)
    np.testing.assert_allclose(kernel(X, Y), expected)
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(kernel(X)))


@pytest.mark.parametrize(
    ("slopes", "words"),
    [
        (np.ones((1, 2)), r"slopes of 3 action columns, one row each, got slopes of shape \(1, 2\)"),
        (np.ones((2, 2)), r"slopes of 3 action columns, one row each, got slopes of shape \(2, 2\)"),
        (np.ones((3, 1)), r"slopes of 2 context columns, as context_dimension says, got slopes of shape \(3, 1\)"),
        (None, "expected a Shear or None, got ndarray"),
    ],
)
def test_a_shear_fits_its_kernel(slopes, words):
    X = np.random.default_rng(0).normal(size=(4, 5))
    shear = np.ones((3, 2)) if slopes is None else Shear(slopes, np.zeros(slopes.shape[1]))
    with pytest.raises(kb.InputError, match=words):
        kb.TensorProduct(kb.Gaussian(1.0), kb.Gaussian(1.0), 2, shear)(X, X)
