"""The evidence of stationary kernels against scikit-learn."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits.learning.fit import log_marginal_likelihood

FAMILIES = [kb.Gaussian(), kb.Exponential(), kb.Matern(smoothness=1.5), kb.Matern(smoothness=2.5)]


def data(count=50, dimension=3, seed=0):
    generator = np.random.default_rng(seed)
    points = generator.random((count, dimension))
    return points, 0.4 + np.sin(5 * points[:, 0]) + points[:, -1] + 0.2 * generator.normal(size=count)


def in_scikit_learn(family, lengthscales):
    if isinstance(family, kb.Gaussian):
        return sk.RBF(lengthscales)
    return sk.Matern(lengthscales, nu=getattr(family, "smoothness", 0.5))


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_it_is_scikit_learns_log_marginal_likelihood(family):
    points, rewards = data()
    lengthscales = np.array([0.3, 0.7, 2.0])
    regressor = GaussianProcessRegressor(
        sk.ConstantKernel(1.3) * in_scikit_learn(family, lengthscales) + sk.WhiteKernel(0.05), alpha=0.0, optimizer=None
    ).fit(points, rewards)
    theirs = regressor.log_marginal_likelihood(regressor.kernel_.theta)
    kernel = family.with_lengthscale(lengthscales)
    assert log_marginal_likelihood(kernel, 1.3, 0.05, points, rewards) == pytest.approx(theirs, rel=1e-9)
