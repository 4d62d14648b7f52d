"""Intervals of the mean of skewed terms, such as rewards times importance weights."""

import numpy as np
import pytest

from kernel_bandits.offpolicy.intervals import bootstrap, studentised


def misses(draw, mean, count, logs=600):
    """How often an interval of 95 % lies above and below the mean."""
    above = below = 0
    for seed in range(logs):
        generator = np.random.default_rng(seed)
        low, high = bootstrap(draw(generator, count), 0.95, generator)
        above, below = above + (low > mean), below + (high < mean)
    return above / logs, below / logs


def test_intervals_of_skewed_terms_miss_on_both_sides_alike():
    """With the correction for skewness reversed the mean lies above them far too often."""
    above, below = misses(lambda generator, count: generator.exponential(size=count), 1.0, 40, logs=1500)
    # 2.5 % on either side, and four standard errors of 1,500 logs
    assert below < 0.025 + 4 * np.sqrt(0.025 * 0.975 / 1500)
    assert above + below < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 1500)


def test_the_interval_leans_towards_the_long_tail():
    """Edgeworth: the upper end of a mean of skewed terms lies further from it than the lower one (Efron 1987)."""
    terms = np.random.default_rng(0).exponential(size=60)
    ends = np.mean([bootstrap(terms, 0.95, np.random.default_rng(seed)) for seed in range(20)], axis=0)
    up, down = ends[1] - terms.mean(), terms.mean() - ends[0]
    skewness = float(np.mean((terms - terms.mean()) ** 3)) / terms.std() ** 3
    # to first order the ends move by (2z² + 1)·γ/(6n) standard deviations, z = 1.96
    shift = terms.std() / 60 * skewness * (2 * 1.96**2 + 1) / 6
    # exponential weights lean a little more than counts
    assert 1.8 * shift < up - down < 3.2 * shift
    mirrored = bootstrap(-terms, 0.95, np.random.default_rng(0))
    assert mirrored[1] + terms.mean() < -terms.mean() - mirrored[0]


def test_intervals_of_symmetric_terms_are_those_of_student():
    generator = np.random.default_rng(0)
    terms = generator.normal(size=30)
    terms = np.concatenate([terms, -terms])
    ends = np.mean([bootstrap(terms, 0.95, np.random.default_rng(seed)) for seed in range(40)], axis=0)
    half = 2.001 * terms.std(ddof=1) / np.sqrt(60)
    np.testing.assert_allclose(ends, [-half, half], rtol=0.06)


@pytest.mark.parametrize("exponent", [-1000, -370, 340])
def test_intervals_are_those_of_the_terms_in_any_unit(exponent):
    terms = np.random.default_rng(0).exponential(size=40)
    ends = bootstrap(terms, 0.95, np.random.default_rng(0))
    there = bootstrap(np.ldexp(terms, exponent), 0.95, np.random.default_rng(0))
    np.testing.assert_allclose(np.ldexp(there, -exponent), ends, rtol=1e-12)


@pytest.mark.parametrize("terms", [[1.0], [1.0, 1.0, 1.0], [0.0, 1.0], [0.0] * 50 + [1e6]])
def test_few_or_equal_terms_have_an_interval_around_their_mean(terms):
    low, high = bootstrap(np.array(terms), 0.95, np.random.default_rng(0))
    assert np.isfinite([low, high]).all()
    assert low <= np.mean(terms) <= high


def test_an_interval_of_weighted_terms_by_its_formula():
    terms, weights = np.array([1.0, 2.0, 4.0, 5.0]), np.array([1.0, 1.0, 2.0, 2.0])
    mean, low, high, error = studentised(terms, weights, 0.9, effective=5.0)
    # Q = Σhx/Σh = 21/6, and √(Σh²(x − Q)²)/Σh
    assert (mean, error) == pytest.approx((3.5, np.sqrt(6.25 + 2.25 + 4 * 0.25 + 4 * 2.25) / 6.0))
    # Student's quantile with four degrees of freedom
    assert (high - mean, mean - low) == pytest.approx((2.1318468 * error, 2.1318468 * error))
