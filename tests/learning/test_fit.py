"""Learned parameters against scikit-learn's optimiser, and what they must not depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits.learning.columns import RewardModel, Units
from kernel_bandits.learning.fit import Sample
from kernel_bandits.learning.prior import STATIONARY_PRIOR as PRIOR

FAMILIES = [kb.Gaussian(), kb.Exponential(), kb.Matern(smoothness=1.5), kb.Matern(smoothness=2.5)]


def data(count=60, dimension=2, seed=0, irrelevant=0, noise=0.05):
    """Rewards that vary fast in the first column and slowly in the second, around 3."""
    generator = np.random.default_rng(seed)
    points = generator.random((count, dimension + irrelevant))
    values = np.sin(8.0 * points[:, 0]) * np.cos(2.0 * points[:, 1])
    return points, 3.0 + 0.5 * values + noise * generator.normal(size=count)


@pytest.mark.parametrize(
    ("family", "theirs"),
    [
        (kb.Gaussian(), sk.RBF([0.3, 0.3], (1e-2, 1e2))),
        (kb.Matern(smoothness=1.5), sk.Matern([0.3, 0.3], (1e-2, 1e2), nu=1.5)),
        (kb.Matern(smoothness=2.5), sk.Matern([0.3, 0.3], (1e-2, 1e2), nu=2.5)),
        (kb.Exponential(), sk.Matern([0.3, 0.3], (1e-2, 1e2), nu=0.5)),
    ],
    ids=lambda value: repr(value),
)
def test_the_best_model_is_nearly_that_of_scikit_learn(family, theirs):
    """A search on a grid comes within two nats, prior and all."""
    points, rewards = data(60, noise=0.2)
    sample = Sample(points, rewards)
    found = sample.fit(family, None)
    units = sample.units
    regressor = GaussianProcessRegressor(
        sk.ConstantKernel(1.0, (1e-2, 1e2)) * theirs + sk.WhiteKernel(0.05, (1e-4, 1.0)),
        alpha=0.0,
    ).fit(units.scaled(points), (rewards - found.mean) / units.reward_spread)
    # theirs is of rewards in units of their spread
    theirs_in_nats = regressor.log_marginal_likelihood_value_
    assert sample.score(found).evidence == pytest.approx(theirs_in_nats, abs=2.0)


@pytest.mark.parametrize("count", [40, 150])
def test_units_do_not_matter(count):
    """Powers of two do not even move the rounding."""
    points, rewards = data(count)
    plain = Sample(points, rewards).fit(kb.Matern(), None)
    columns, height = np.array([1024.0, 2.0**-20]), 4096.0
    scaled = Sample(columns * points, height * rewards).fit(kb.Matern(), None)
    np.testing.assert_allclose(scaled.kernel.lengthscale, columns * plain.kernel.lengthscale, rtol=1e-9)
    assert scaled.variance == pytest.approx(height**2 * plain.variance)
    assert scaled.noise == pytest.approx(height**2 * plain.noise)
    assert scaled.mean == pytest.approx(height * plain.mean, rel=1e-6)
    # far from the origin the digits of the data limit what can be the same
    moved = Sample(points + 1e4, rewards - 1e4).fit(kb.Matern(), None)
    np.testing.assert_allclose(moved.kernel.lengthscale, plain.kernel.lengthscale, rtol=0.1)
    assert moved.mean == pytest.approx(plain.mean - 1e4, abs=0.05)


def test_noise_lengthscales_and_mean_are_those_of_the_data():
    points, rewards = data(400)
    sample = Sample(points, rewards)
    model = sample.fit(kb.Gaussian(), None)
    fast, slow = model.kernel.lengthscale
    assert 0.1 < fast < 0.5
    assert slow > 2 * fast
    assert model.noise**0.5 == pytest.approx(0.05, rel=0.25)
    # one start does not decide: any model before leads to the same place
    for before in (0.003, 30.0):
        other = sample.fit(kb.Gaussian(), RewardModel(kb.Gaussian(before), 100.0, 1.0, 0.0))
        np.testing.assert_allclose(np.log(other.kernel.lengthscale), np.log(model.kernel.lengthscale), atol=0.3)
        assert other.noise == pytest.approx(model.noise, rel=0.3)


def test_irrelevant_columns_get_long_lengthscales():
    points, rewards = data(200, irrelevant=5)
    lengthscales = Sample(points, rewards).fit(kb.Matern(), None).kernel.lengthscale
    assert lengthscales[2:].min() > 4 * lengthscales[0]


def test_a_start_that_cannot_be_computed_is_passed_over():
    points, rewards = data(40)
    sample = Sample(points, rewards)
    lost = RewardModel(kb.Matern(1e-170), 1.0, 0.1)
    found = sample.fit(kb.Matern(), lost)
    assert sample.score(found).objective > sample.score(sample.fit(kb.Matern(), None)).objective - 1.0


def test_a_model_that_is_the_best_start_is_still_improved():
    """With more points than the search looks at, refinement begins where the model before was."""
    points, rewards = data(200)
    sample = Sample(points, rewards)
    best = sample.fit(kb.Matern(), None)
    off = RewardModel(kb.Matern(1.3 * best.kernel.lengthscale), best.variance, 1.5 * best.noise, best.mean)
    assert sample.score(off).objective < sample.score(best).objective - 2.0
    again = sample.fit(kb.Matern(), off)
    assert sample.score(again).objective > sample.score(best).objective - 1.0


def test_few_points_do_not_declare_a_column_irrelevant():
    for seed in range(10):
        points, rewards = data(8, irrelevant=3, seed=seed)
        lengthscales = Sample(points, rewards).fit(kb.Matern(), None).kernel.lengthscale
        # the columns are as wide as 1: at eight times that a column would hardly count any more
        assert lengthscales.max() < 8.0


def test_groups_share_a_lengthscale_in_units_of_their_spread():
    points, rewards = data(100)
    points[:, 1] *= 512.0
    units = Units(points, rewards, np.zeros(2, dtype=int))
    model = Sample(points, rewards, groups=[0, 0]).fit(kb.Matern(), None)
    one, other = model.kernel.lengthscale / units.spreads
    assert one == pytest.approx(other)


def test_parameters_are_logarithms_in_units_of_the_sample_and_lead_back_to_the_model():
    points, rewards = data(30, irrelevant=1)
    units = Units(points * [1.0, 10.0, 0.1], rewards, np.array([0, 1, 1]))
    # the second and third column have one lengthscale in units of their spread
    lengthscales = np.array([0.3, 0.7, 0.7]) * units.spreads
    model = RewardModel(kb.Matern(lengthscales), 2.0, 0.05, 3.0)
    parameters = units.parameters(model)
    expected = np.log([0.3, 0.7, 2.0 / units.reward_spread**2, 0.05 / units.reward_spread**2])
    np.testing.assert_allclose(parameters, expected)
    mean = (3.0 - units.reward_centre) / units.reward_spread
    again = units.model(kb.Matern(), parameters, mean)
    np.testing.assert_allclose(again.kernel.lengthscale, lengthscales)
    np.testing.assert_allclose([again.variance, again.noise, again.mean], [2.0, 0.05, 3.0])


def test_scores_tell_the_better_model():
    sample = Sample(*data(100))
    best = sample.fit(kb.Gaussian(), None)
    for other in (
        RewardModel(kb.Gaussian(10 * best.kernel.lengthscale), best.variance, best.noise, best.mean),
        RewardModel(best.kernel, best.variance, 100 * best.noise, best.mean),
        RewardModel(best.kernel, best.variance, best.noise, best.mean + 10.0),
        RewardModel(best.kernel, 1e-6 * best.variance, best.noise, best.mean),
    ):
        assert sample.score(other).evidence < sample.score(best).evidence - 3.0
        assert sample.score(other).objective < sample.score(best).objective - 3.0


DEGENERATE = {
    "constant reward": (np.random.default_rng(0).random((30, 3)), np.full(30, 5.0)),
    "zero reward": (np.random.default_rng(0).random((30, 3)), np.zeros(30)),
    "one repeated point": (np.full((30, 3), 0.3), np.random.default_rng(0).normal(size=30)),
    "all equal": (np.full((30, 3), 0.3), np.full(30, -2.0)),
    "three points": (np.random.default_rng(0).random((3, 3)), np.array([0.0, 1.0, 0.5])),
    "two equal points": (np.zeros((2, 1)), np.array([1.0, 2.0])),
    "a constant column": (np.column_stack([np.arange(30.0), np.full(30, 7.0)]), np.sin(np.arange(30.0))),
    "pure noise": (np.random.default_rng(0).random((100, 2)), np.random.default_rng(1).normal(size=100)),
    "no noise": (np.linspace(0, 1, 100)[:, None], np.sin(5 * np.linspace(0, 1, 100))),
    "one outlier": (np.random.default_rng(0).random((50, 2)), np.append(np.zeros(49), 1e6)),
    "huge": (1e150 * np.random.default_rng(0).random((20, 2)), 1e90 * np.random.default_rng(1).random(20)),
    "tiny": (1e-150 * np.random.default_rng(0).random((20, 2)), 1e-90 * np.random.default_rng(1).random(20)),
    "far away": (1e9 + np.random.default_rng(0).random((20, 2)), 1e9 + np.random.default_rng(1).random(20)),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_samples_leave_a_finite_sensible_model(name):
    points, rewards = DEGENERATE[name]
    sample = Sample(points, rewards)
    model = sample.fit(kb.Matern(), None)
    units = sample.units
    lengthscales = model.kernel.lengthscale / units.spreads
    assert (
        (lengthscales > 0.999 * PRIOR.lengthscale_bounds[0]) & (lengthscales < 1.001 * PRIOR.lengthscale_bounds[1])
    ).all()
    assert 0.999 * PRIOR.variance_bounds[0] < model.variance / units.reward_spread**2 < 100.0
    assert 0.999 * PRIOR.noise_bounds[0] < model.noise / units.reward_spread**2 < 10.0
    assert abs(model.mean - units.reward_centre) <= 3.0 * units.reward_spread
    again = sample.fit(kb.Matern(), model)
    assert np.isfinite(sample.score(again).objective)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 90),
    dimension=st.integers(1, 4),
    exponents=st.tuples(st.floats(-6, 6), st.floats(-6, 6)),
    family=st.sampled_from(FAMILIES),
)
def test_learning_never_explains_less(seed, count, dimension, exponents, family):
    generator = np.random.default_rng(seed)
    points = 10.0 ** exponents[0] * generator.random((count, dimension))
    rewards = 10.0 ** exponents[1] * generator.normal(size=count)
    sample = Sample(points, rewards)
    before = RewardModel(family, 1.0, 0.1, 0.0)
    after = sample.fit(family, before)
    # inducing points that follow the model may cost a little
    assert sample.score(after).objective > sample.score(before).objective - 2.0


def test_kernels_that_cannot_be_learned_are_named():
    for kernel in (sk.RBF(), kb.Linear(), kb.Gaussian() + 1.0, kb.Gaussian() * kb.Gaussian()):
        with pytest.raises(kb.InputError, match="learn_kernel"):
            RewardModel.of(kernel, 0.1)
    assert RewardModel.of(2.5 * kb.Gaussian(0.3), 0.1).variance == 2.5
    assert RewardModel.of(kb.Gaussian(0.3) * 2.5, 0.1).kernel.lengthscale == 0.3


def test_a_model_near_the_best_is_improved():
    points, rewards = data(40, noise=0.2)
    sample = Sample(points, rewards)
    best = sample.fit(kb.Gaussian(), None)
    near = RewardModel(
        best.kernel.with_lengthscale(1.25 * best.kernel.lengthscale), best.variance, best.noise, best.mean
    )
    again = sample.fit(kb.Gaussian(), near)
    assert sample.score(near).objective < sample.score(best).objective - 0.1
    assert sample.score(again).objective > sample.score(best).objective - 0.05


def test_a_score_counts_the_prior_of_parameters_and_mean():
    points, rewards = data(20)
    sample = Sample(points, rewards)
    centre = PRIOR.centre(2, 2)
    for offset, mean in ((np.zeros(4), 0.0), (np.array([0.3, -0.2, 0.1, 0.4]), -0.7)):
        units = sample.units
        score = sample.score(units.model(kb.Matern(), centre + offset, mean))
        expected = -0.5 * offset @ PRIOR.precision(2) @ offset - 0.5 * PRIOR.mean_precision * mean**2
        assert score.objective - score.evidence == pytest.approx(expected)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_noise_is_taken_for_noise_where_a_short_lengthscale_explains_it_as_well(columns):
    generator = np.random.default_rng(0)
    points, rewards = generator.random((60, columns)), generator.normal(size=60)
    found = Sample(points, rewards).fit(kb.Matern(), RewardModel(kb.Matern(0.02), 1.0, 0.05))
    assert found.noise > found.variance
