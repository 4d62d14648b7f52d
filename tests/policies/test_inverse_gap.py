"""Inverse-gap weighting against its formula, its lemma, and its schedule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import kernel_bandits as kb
from kernel_bandits.policy import InformationSharpness, PowerSharpness
from kernel_bandits.policy.inverse_gap import inverse_gap_weights

VALUES = st.floats(-5.0, 5.0, width=32)
TABLES = st.integers(1, 12).flatmap(lambda count: arrays(np.float64, count, elements=VALUES))


def by_hand(means, sharpness):
    """Algorithm 1 of Foster & Rakhlin, for means without ties."""
    best = max(range(len(means)), key=lambda a: means[a])
    table = [1.0 / (len(means) + sharpness * (means[best] - mean)) for mean in means]
    table[best] = 1.0 - (sum(table) - table[best])
    return table


def test_the_formula():
    means = [0.3, 0.1, -0.4, 0.25]
    for sharpness in (0.0, 1.0, 50.0):
        np.testing.assert_allclose(
            inverse_gap_weights(np.array(means), sharpness), by_hand(means, sharpness), rtol=1e-14
        )
    np.testing.assert_allclose(inverse_gap_weights(np.array([1.0, 0.0]), 6.0), [7 / 8, 1 / 8], rtol=1e-15)


@given(TABLES, st.floats(0.0, 1e6))
def test_the_weights_are_probabilities_and_fall_with_the_gap(means, sharpness):
    table = inverse_gap_weights(means, sharpness)
    assert abs(table.sum() - 1.0) <= 1e-12
    assert (table > 0.0).all()
    order = np.argsort(-means)
    assert (np.diff(table[order]) <= 1e-15).all()
    assert table[order[0]] >= 1.0 / len(means) - 1e-15
    # equal means have equal probabilities
    assert len(np.unique(table)) <= len(np.unique(means))


@given(TABLES, st.floats(0.01, 1e4), st.integers(0, 2**32))
def test_the_lemma_of_foster_and_rakhlin(means, sharpness, seed):
    """Σ p(a)·(f* − f(a) − γ/4·(μ(a) − f(a))²) ≤ 2A/γ for every f, whatever the means (their Lemma 3)."""
    generator = np.random.default_rng(seed)
    table = inverse_gap_weights(means, sharpness)
    for scale in (0.01, 1.0, 10.0):
        truth = means + scale * generator.normal(size=len(means))
        regret = table @ (truth.max() - truth - sharpness / 4.0 * (means - truth) ** 2)
        assert regret <= 2.0 * len(means) / sharpness + 1e-9


@given(TABLES, st.floats(0.0, 1e4))
def test_fewer_effective_actions_explore_less(means, sharpness):
    full, smoothed = inverse_gap_weights(means, sharpness), inverse_gap_weights(means, sharpness, 3)
    assert abs(smoothed.sum() - 1.0) <= 1e-12
    best = int(means.argmax())
    if len(np.unique(means)) == len(means):
        assert smoothed[best] >= full[best] - 1e-12
    np.testing.assert_array_equal(inverse_gap_weights(means, sharpness, 100), full)


def learned(policy, count=40, scale=1.0):
    generator = np.random.default_rng(1)
    for _ in range(count):
        context, action = generator.random(1), generator.random(1)
        policy.update(context, action, scale * (np.sin(5 * action[0]) * context[0] + 0.1 * generator.normal()))
    return policy


ACTIONS = np.linspace(0, 1, 6)[:, None]


@pytest.mark.parametrize("dictionary", [kb.Kors(), None], ids=["nystrom", "exact"])
def test_a_decision_has_the_weights_of_the_predicted_means(dictionary):
    policy = learned(kb.inverse_gap_weighting(kb.Gaussian(0.3), dictionary=dictionary, seed=0))
    means = policy.predict([0.3], ACTIONS).mean
    np.testing.assert_allclose(policy.posterior.means(np.hstack([np.full((6, 1), 0.3), ACTIONS])), means, atol=1e-10)
    posterior = policy.posterior
    gamma = 8.0 * np.sqrt(6 * 40 / (posterior.regularization * posterior.log_determinant))
    decision = policy.select([0.3], ACTIONS)
    np.testing.assert_allclose(decision.probabilities, by_hand(means, gamma), rtol=1e-8)
    assert decision.upper_bound == decision.mean == pytest.approx(means[decision.index], abs=1e-10)


def test_the_schedule_has_no_units():
    """Rewards a thousand times as large, with λ and the kernel to match, give the same probabilities."""
    one = learned(kb.inverse_gap_weighting(kb.Gaussian(0.3), regularization=0.1, seed=0))
    other = learned(kb.inverse_gap_weighting(1e6 * kb.Gaussian(0.3), regularization=1e5, seed=0), scale=1e3)
    first, second = (policy.select([0.3], ACTIONS).probabilities for policy in (one, other))
    np.testing.assert_allclose(first, second, rtol=1e-8)


def test_schedules_by_hand():
    policy = learned(kb.inverse_gap_weighting(kb.Gaussian(0.3), sharpness=3.0, seed=0))
    assert policy.sharpness == PowerSharpness(3.0)
    assert policy.sharpness.value(policy.posterior, 6) == pytest.approx(3.0 * np.sqrt(40))
    assert PowerSharpness(2.0, 0.0).value(policy.posterior, 6) == 2.0
    means = policy.predict([0.3], ACTIONS).mean
    decision = policy.select([0.3], ACTIONS)
    np.testing.assert_allclose(decision.probabilities, by_hand(means, 3.0 * np.sqrt(40)), rtol=1e-9)
    for wrong in (0.0, -1.0, "sharp"):
        with pytest.raises(kb.InputError, match="sharpness: expected a positive"):
            kb.inverse_gap_weighting(kb.Gaussian(0.3), sharpness=wrong)
    with pytest.raises(kb.InputError, match="effective_actions"):
        kb.inverse_gap_weighting(kb.Gaussian(0.3), effective_actions=0)
    with pytest.raises(kb.InputError, match="scale"):
        InformationSharpness(0.0)


def test_nothing_learned_is_uniform_play():
    for policy in (kb.inverse_gap_weighting(seed=0), kb.inverse_gap_weighting(kb.Gaussian(0.3), seed=0)):
        np.testing.assert_allclose(policy.select([0.3], ACTIONS).probabilities, np.full(6, 1 / 6), rtol=1e-15)


def test_inverse_gap_weighting_learns():
    environment = kb.environments.Chessboard()
    policy = kb.inverse_gap_weighting(kb.Gaussian(0.1), regularization=0.01, seed=0)
    ours = kb.run(policy, environment, horizon=600, seed=0).regret[-1]
    blind = kb.run(kb.uniform(seed=0), environment, horizon=600, seed=0).regret[-1]
    assert ours < 0.25 * blind
