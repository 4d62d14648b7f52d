"""The collapsed bound against dense formulas, finite differences and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits.learning.fit import log_evidence, log_marginal_likelihood

FAMILIES = [kb.Gaussian(), kb.Exponential(), kb.Matern(smoothness=1.5), kb.Matern(smoothness=2.5)]


def data(count=50, dimension=3, seed=0):
    generator = np.random.default_rng(seed)
    points = generator.random((count, dimension))
    return points, 0.4 + np.sin(5 * points[:, 0]) + points[:, -1] + 0.2 * generator.normal(size=count)


def in_scikit_learn(family, lengthscales):
    if isinstance(family, kb.Gaussian):
        return sk.RBF(lengthscales)
    return sk.Matern(lengthscales, nu=getattr(family, "smoothness", 0.5))


def dense_bound(kernel, variance, noise, points, rewards, inducing, mean=0.0):
    """F written out with dense n×n matrices."""
    gram = variance * kernel(points)
    cross = variance * kernel(points, inducing)
    projected = cross @ np.linalg.pinv(variance * kernel(inducing), rcond=1e-13, hermitian=True) @ cross.T
    covariance = projected + noise * np.eye(len(points))
    sign, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    assert sign > 0
    centred = rewards - mean
    fit = centred @ np.linalg.solve(covariance, centred)
    return -0.5 * (log_determinant + fit + np.trace(gram - projected) / noise)


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_with_every_point_inducing_it_is_scikit_learns_log_marginal_likelihood(family, everything):
    """By the bound with Z = S, and by the likelihood itself, which is what ``inducing=None`` computes."""
    points, rewards = data()
    lengthscales = np.array([0.3, 0.7, 2.0])
    regressor = GaussianProcessRegressor(
        sk.ConstantKernel(1.3) * in_scikit_learn(family, lengthscales) + sk.WhiteKernel(0.05), alpha=0.0, optimizer=None
    ).fit(points, rewards)
    theirs, their_gradient = regressor.log_marginal_likelihood(regressor.kernel_.theta, eval_gradient=True)
    kernel = family.with_lengthscale(lengthscales)
    ours = log_evidence(kernel, 1.3, 0.05, points, rewards, None if everything else points)
    assert ours.value == pytest.approx(theirs, rel=1e-7)
    assert log_marginal_likelihood(kernel, 1.3, 0.05, points, rewards) == pytest.approx(theirs, rel=1e-9)
    assert ours.mean == 0.0
    # scikit-learn orders its parameters: log v, log ℓ, log λ
    gradient = np.array([ours.variance, *ours.lengthscales, ours.noise])
    np.testing.assert_allclose(gradient, their_gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mean_precision", [None, 0.0, 1.5])
@pytest.mark.parametrize("inducing", [7, 50, None])
@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_the_gradient_agrees_with_finite_differences(family, inducing, mean_precision):
    points, rewards = data()

    def evaluate(theta):
        kernel = family.with_lengthscale(np.exp(theta[:3]))
        variance, noise = np.exp(theta[3:])
        chosen = None if inducing is None else points[:inducing]
        return log_evidence(kernel, variance, noise, points, rewards, chosen, mean_precision=mean_precision)

    for theta in (np.log([0.3, 0.7, 2.0, 1.3, 0.05]), np.log([2.0, 0.1, 0.5, 0.4, 0.3])):
        evidence = evaluate(theta)
        gradient = np.array([*evidence.lengthscales, evidence.variance, evidence.noise])
        step = 1e-5
        differences = [
            (evaluate(theta + step * unit).value - evaluate(theta - step * unit).value) / (2 * step)
            for unit in np.eye(5)
        ]
        np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_it_is_the_dense_bound(family):
    points, rewards = data()
    kernel = family.with_lengthscale([0.3, 0.7, 2.0])
    for mean_precision in (None, 0.7):
        evidence = log_evidence(kernel, 1.3, 0.05, points, rewards, points[:9], mean_precision=mean_precision)
        dense = dense_bound(kernel, 1.3, 0.05, points, rewards, points[:9], evidence.mean)
        prior = 0.0 if mean_precision is None else 0.5 * mean_precision * evidence.mean**2
        assert evidence.value == pytest.approx(dense - prior, rel=1e-6)


def test_the_mean_is_where_the_bound_is_largest():
    points, rewards = data()
    kernel = kb.Matern([0.3, 0.7, 2.0])
    best = log_evidence(kernel, 1.3, 0.05, points, rewards, points[:9], mean_precision=0.7)
    for shift in (-0.1, 0.1):
        mean = best.mean + shift
        shifted = log_evidence(kernel, 1.3, 0.05, points, rewards - mean, points[:9])
        assert shifted.value - 0.35 * mean**2 < best.value


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    family=st.sampled_from(FAMILIES),
    scale=st.floats(0.05, 20.0),
    noise=st.floats(0.01, 1.0),
)
def test_more_inducing_points_never_lower_the_bound(seed, family, scale, noise):
    points, rewards = data(30, seed=seed)
    kernel = family.with_lengthscale(scale)
    values = [log_evidence(kernel, 1.0, noise, points, rewards, points[:size]).value for size in (1, 5, 12, 30)]
    slack = 1e-6 * (1.0 + np.abs(values).max())
    assert (np.diff(values) >= -slack).all()


def test_a_kernel_cannot_profit_from_poor_inducing_points():
    """Without the trace term a tiny lengthscale with few inducing points would pass for pure noise at no cost."""
    points, rewards = data(80)
    good = log_evidence(kb.Gaussian(0.5), 1.0, 0.04, points, rewards, points[:40]).value
    for inducing in (1, 5, 20):
        assert log_evidence(kb.Gaussian(0.01), 1.0, 0.04, points, rewards, points[:inducing]).value < good - 100.0


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_repeated_points_and_huge_offsets_change_nothing(family):
    points, rewards = data(40)
    twice, both = np.repeat(points, 2, axis=0), np.repeat(rewards, 2)
    kernel = family.with_lengthscale([0.3, 0.7, 2.0])
    once = log_evidence(kernel, 1.0, 0.05, twice, both, points)
    repeated = log_evidence(kernel, 1.0, 0.05, twice, both, twice)
    moved = log_evidence(kernel, 1.0, 0.05, twice + 1e6, both, points + 1e6)
    for other in (repeated, moved):
        assert other.value == pytest.approx(once.value, rel=1e-5)
        np.testing.assert_allclose(other.lengthscales, once.lengthscales, rtol=1e-4, atol=1e-4)
