"""Any offset and any scale: EK-UCB sees what K-UCB sees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import learn

import kernel_bandits as kb
from kernel_bandits.posterior import ExactPosterior, NystromPosterior
from kernel_bandits.posterior.basis import least_direction


def learned(kernel, regularization, points, rewards):
    """The exact posterior, and the projected one with every direction that KORS may draw."""
    projected = NystromPosterior(kernel, regularization, kb.Kors(oversampling=1e6), np.random.default_rng(0))
    return tuple(learn(each, points, rewards) for each in (ExactPosterior(kernel, regularization), projected))


@settings(max_examples=8, deadline=None)
@given(st.floats(-1.0, 4.0), st.floats(-6.0, 6.0), st.floats(-2.0, 0.5), st.integers(0, 99))
def test_an_offset_and_a_scale_hide_nothing(offset, spread, noise, seed):
    # f = offset + spread·g with g of variance 1; offset and noise are shares of the spread
    offset, spread, noise = 10.0 ** (spread + offset), 10.0**spread, 10.0 ** (spread + noise)
    generator = np.random.default_rng(seed)
    points, probe = generator.random((30, 2)), generator.random((20, 2))
    rewards = offset + spread * np.sin(5.0 * points.sum(axis=1)) + noise * generator.normal(size=30)
    kernel = spread**2 * kb.Gaussian(0.4) + kb.Constant(offset**2)
    exact, projected = learned(kernel, noise**2, points, rewards)
    expected, found = exact.predict(probe), projected.predict(probe)
    # a direction that is passed over is shorter than the noise by a factor of 30; and of 16 digits the offset takes 8
    tolerance = 0.1 * noise + 0.01 * spread
    np.testing.assert_allclose(found.mean, expected.mean, atol=tolerance, rtol=0)
    np.testing.assert_allclose(found.std, expected.std, atol=tolerance, rtol=0)


@pytest.mark.parametrize("column", [1.0, 1e3, 1e6])
def test_a_column_of_any_size_hides_no_other(column):
    generator = np.random.default_rng(0)
    points = np.column_stack([column * generator.random(40), generator.random(40)])
    rewards = 2.0 * points[:, 0] / column - points[:, 1]
    kernel = kb.Linear(lengthscale=1.0)
    exact, projected = learned(kernel, 0.01, points, rewards)
    np.testing.assert_allclose(projected.predict(points).mean, exact.predict(points).mean, atol=2e-3)
    assert projected.dictionary_size >= 2


def test_the_recipe_for_a_known_level_learns():
    """An offset of 50,000 and a signal of 10: what it learned before was the offset alone."""
    kernel = 10**2 * kb.Gaussian(0.3) + kb.Constant(50_000**2)
    regrets = []
    for make in (kb.ek_ucb, kb.k_ucb):
        policy, generator, regret = make(kernel, regularization=1.0, seed=0), np.random.default_rng(0), 0.0
        for _ in range(60):
            context, actions = generator.random(1), generator.random((8, 1))
            values = 50_000 + 10.0 * np.sin(6.0 * (context[0] + actions[:, 0]))
            decision = policy.select(context, actions)
            regret += values.max() - values[decision.index]
            policy.update(context, decision.action, values[decision.index] + generator.normal())
        regrets.append(regret)
    assert regrets[0] <= 1.1 * regrets[1]


@pytest.mark.parametrize(
    ("prior_variance", "regularization", "expected"), [(4.0, 1e6, 4e-6), (4.0, 1e-6, 1e-9), (1e6, 1e-9, 1e-6)]
)
def test_a_direction_is_measured_by_the_kernel_and_by_the_noise_and_by_rounding(
    prior_variance, regularization, expected
):
    assert least_direction(prior_variance, regularization) == pytest.approx(expected, rel=1e-12)
