import os
import subprocess
import sys

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernel_bandits as kb
from kernel_bandits.integrations.sklearn import NystromRegressor

# One check compares array namespaces, and runs only where SciPy was told of them before it was imported.
ALL_CHECKS = """
import warnings
warnings.simplefilter("error")
from sklearn.gaussian_process.kernels import RBF
from sklearn.utils.estimator_checks import check_estimator
from kernel_bandits.integrations.sklearn import NystromRegressor
results = check_estimator(NystromRegressor({arguments}), on_fail=None, on_skip=None)
print(*[f"{{result['check_name']}} {{result['status']}} {{result['exception']}}" for result in results], sep="\\n")
"""


def smooth(count, seed=0, columns=2, noise=0.1):
    generator = np.random.default_rng(seed)
    X = generator.random((count, columns))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + noise * generator.normal(size=count)


@pytest.mark.parametrize(
    "arguments", ["", "RBF(2.0), dictionary='posterior_variance', history='none', max_dictionary_size=150"]
)
def test_every_check_of_scikit_learn_passes(arguments):
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    program = ALL_CHECKS.format(arguments=arguments)
    lines = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    ).stdout.splitlines()
    assert [line for line in lines if line.split()[1] != "passed"] == []
    expected = {"check_regressors_train", "check_estimators_partial_fit_n_features"}
    if not sklearn.__version__.startswith("1.6."):  # which has it only for estimators that declare more
        expected.add("check_array_api_input")
    assert expected <= {line.split()[0] for line in lines}


@pytest.mark.parametrize("normalize_y", [True, False])
def test_with_every_row_an_anchor_it_is_scikit_learns_regressor(normalize_y):
    X, y = smooth(80)
    rows = np.random.default_rng(1).random((5000, 2))  # more than are predicted at once
    parameters = {"kernel": Matern(0.3, nu=0.5), "normalize_y": normalize_y}
    ours = NystromRegressor(**parameters, regularization=0.05, dictionary=X).fit(X, 40 + 7 * y)
    theirs = GaussianProcessRegressor(**parameters, alpha=0.05, optimizer=None).fit(X, 40 + 7 * y)
    for one, other in zip(ours.predict(rows, return_std=True), theirs.predict(rows, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    np.testing.assert_array_equal(ours.predict(rows), ours.predict(rows, return_std=True)[0])


def test_a_small_dictionary_predicts_nearly_as_well():
    X, y = smooth(1500)
    rows, truth = smooth(500, seed=1, noise=0.0)
    ours = NystromRegressor(kb.Gaussian(0.3), regularization=0.01, random_state=0).fit(X, y)
    theirs = GaussianProcessRegressor(RBF(0.3), alpha=0.01, optimizer=None, normalize_y=True).fit(X, y)
    assert ours.posterior_.dictionary_size < 150
    error = np.sqrt(np.mean((ours.predict(rows) - truth) ** 2))
    assert error < 1.1 * np.sqrt(np.mean((theirs.predict(rows) - truth) ** 2))


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 120), max_size=6), history=st.sampled_from(["all", "none"]))
def test_any_division_into_batches_ends_where_one_fit_does(cuts, history):
    X, y = smooth(120)
    whole = NystromRegressor(kb.Gaussian(0.3), normalize_y=False, history=history, random_state=3)
    parts = clone(whole)
    whole.fit(X, y)
    for batch, targets in zip(np.split(X, sorted(cuts)), np.split(y, sorted(cuts)), strict=True):
        if len(batch):
            parts.partial_fit(batch, targets)
    np.testing.assert_array_equal(parts.posterior_.dictionary_points, whole.posterior_.dictionary_points)
    rows = smooth(50, seed=1)[0]
    for one, other in zip(parts.predict(rows, return_std=True), whole.predict(rows, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_level_and_spread_of_the_first_batch_stay():
    X, y = smooth(100)
    regressor = NystromRegressor(kb.Gaussian(0.3), random_state=0).fit(X[:60], y[:60])
    regressor.partial_fit(X[60:], y[60:] + 9.0)
    assert regressor.y_mean_ == pytest.approx(y[:60].mean())
    assert regressor.y_scale_ == pytest.approx(y[:60].std())
    regressor.fit(X[60:], y[60:] + 9.0)
    assert regressor.y_mean_ == pytest.approx(9.0 + y[60:].mean())
    assert regressor.posterior_.round_index == 40


def test_units_of_the_target_are_those_of_the_predictions():
    X, y = smooth(100)
    rows = smooth(20, seed=1)[0]
    regressor = NystromRegressor(kb.Gaussian(0.3), random_state=0)
    mean, std = regressor.fit(X, y).predict(rows, return_std=True)
    other_mean, other_std = regressor.fit(X, 1000 * y - 5).predict(rows, return_std=True)
    np.testing.assert_allclose(other_mean, 1000 * mean - 5)
    np.testing.assert_allclose(other_std, 1000 * std)


def test_a_constant_target_is_predicted():
    X, _ = smooth(30)
    mean, std = NystromRegressor(random_state=0).fit(X, np.full(30, 7.0)).predict(X, return_std=True)
    np.testing.assert_array_equal(mean, 7.0)
    assert (std < 1).all()


def test_a_stream_of_single_rows():
    X, y = smooth(300)
    regressor = NystromRegressor(kb.Gaussian(0.3), normalize_y=False, random_state=0)
    for row, target in zip(X, y, strict=True):
        regressor.partial_fit(row[None, :], [target])
    assert regressor.score(X, y) > 0.95


def test_grid_search_through_a_pipeline_finds_the_scale():
    X, y = smooth(200)
    pipeline = make_pipeline(StandardScaler(), NystromRegressor(kb.Gaussian(1.0), random_state=0))
    grid = {
        "nystromregressor__kernel": [kb.Gaussian(0.01), kb.Gaussian(1.0), kb.Gaussian(100.0)],
        "nystromregressor__regularization": [0.05, 50.0],
    }
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_params_["nystromregressor__kernel"] is grid["nystromregressor__kernel"][1]
    assert search.best_params_["nystromregressor__regularization"] == 0.05
    assert search.score(X, y) > 0.95


def test_grid_search_over_the_parameters_of_a_kernel_of_scikit_learn():
    X, y = smooth(200)
    search = GridSearchCV(NystromRegressor(RBF(1.0), random_state=0), {"kernel__length_scale": [0.001, 0.3]}, cv=3)
    assert search.fit(X, y).best_params_ == {"kernel__length_scale": 0.3}


def test_the_kernel_is_learned_unless_given():
    X, y = smooth(200)
    regressor = NystromRegressor(random_state=0).fit(1000 * X, y)
    assert regressor.posterior_.kernel_changes
    assert cross_val_score(regressor, 1000 * X, y, cv=3).mean() > 0.9


def test_a_learned_kernel_is_linear_where_the_target_is():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 5))
    y = X @ [1.0, -2.0, 0.5, 0.0, 3.0] + 0.1 * generator.normal(size=300)
    regressor = NystromRegressor(random_state=0).fit(X[:200], y[:200])
    # far beyond the data a smooth kernel would return to the mean
    assert regressor.score(4.0 * X[200:], 4.0 * y[200:]) > 0.98


def test_coins_are_those_of_the_random_state():
    X, y = smooth(200)

    def anchors(random_state):
        return NystromRegressor(kb.Gaussian(0.3), random_state=random_state).fit(X, y).posterior_.dictionary_points

    np.testing.assert_array_equal(anchors(1), anchors(1))
    np.testing.assert_array_equal(anchors(1), anchors(np.random.RandomState(1)))
    assert not np.array_equal(anchors(1), anchors(2))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"regularization": 0.0}, "regularization"),
        ({"dictionary": "best"}, "dictionary"),
        ({"history": "some"}, "history"),
        ({"max_dictionary_size": 0}, "max_size"),
        ({"kernel": RBF}, "instance and not the class"),
    ],
)
def test_bad_parameters_are_named_when_fitting(parameters, words):
    with pytest.raises(kb.InputError, match=words):
        NystromRegressor(**parameters).fit(*smooth(10))


def test_a_tensor_product_splits_the_columns():
    X, y = smooth(200)
    kernel = kb.TensorProduct(kb.Gaussian(0.3), kb.Gaussian(0.5), context_dimension=1)
    assert NystromRegressor(kernel, random_state=0).fit(X, y).score(X, y) > 0.95
