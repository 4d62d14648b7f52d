"""The estimators against their published formulas, written densely over (round, action) tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_bandits import offpolicy
from kernel_bandits.offpolicy import Rounds
from kernel_bandits.offpolicy.continuous import chosen_bandwidth
from kernel_bandits.offpolicy.estimators import chosen_parameter, shrinkages, thresholds

SEEDS = st.integers(0, 2**32)


def random_tables(seed):
    """Tables of a log and a candidate: π and q (n, A), played, p, r."""
    generator = np.random.default_rng(seed)
    count, actions = generator.integers(5, 60), generator.integers(2, 7)
    behaviour, target = (generator.dirichlet(np.ones(actions), size=count) for _ in range(2))
    played = np.array([generator.choice(actions, p=row) for row in behaviour])
    rewards, model = generator.normal(size=count), generator.normal(size=(count, actions))
    return target, model, played, behaviour[np.arange(count), played], rewards


def rounds_of(target, model, played, propensities, rewards):
    each = np.arange(len(played))
    return Rounds(target[each, played] / propensities, rewards, model[each, played], (target * model).sum(axis=1))


@given(SEEDS)
def test_every_estimator_equals_its_formula_summed_over_actions(seed):
    target, model, played, propensities, rewards = tables = random_tables(seed)
    rounds = rounds_of(*tables)
    count, actions = target.shape
    shrinkage, threshold = 0.7, 1.3
    sums = dict.fromkeys(("ips", "weight", "dm", "dr", "shrunk", "switch"), 0.0)
    for i in range(count):
        for a in range(actions):
            sums["dm"] += target[i, a] * model[i, a]
            if played[i] != a:
                continue
            weight = target[i, a] / propensities[i]
            misfit = rewards[i] - model[i, a]
            sums["ips"] += weight * rewards[i]
            sums["weight"] += weight
            sums["dr"] += weight * misfit
            sums["shrunk"] += shrinkage * weight / (weight**2 + shrinkage) * misfit
            sums["switch"] += weight * misfit * (weight <= threshold)
    expected = {
        offpolicy.inverse_propensity: sums["ips"] / count,
        offpolicy.self_normalised: sums["ips"] / sums["weight"],
        offpolicy.direct_method: sums["dm"] / count,
        offpolicy.doubly_robust: (sums["dm"] + sums["dr"]) / count,
    }
    for estimator, value in expected.items():
        assert estimator(rounds).mean() == pytest.approx(value, abs=1e-10)
    shrunk, switch = offpolicy.shrunk_doubly_robust, offpolicy.switch_doubly_robust
    assert shrunk(rounds, shrinkage).mean() == pytest.approx((sums["dm"] + sums["shrunk"]) / count, abs=1e-10)
    assert switch(rounds, threshold).mean() == pytest.approx((sums["dm"] + sums["switch"]) / count, abs=1e-10)


@given(SEEDS)
def test_the_families_end_in_the_direct_method_and_in_doubly_robust(seed):
    rounds = rounds_of(*random_tables(seed))
    direct, robust = offpolicy.direct_method(rounds), offpolicy.doubly_robust(rounds)
    np.testing.assert_allclose(offpolicy.shrunk_doubly_robust(rounds, 0.0), direct, atol=1e-12)
    np.testing.assert_allclose(offpolicy.shrunk_doubly_robust(rounds, np.inf), robust, atol=1e-12)
    np.testing.assert_allclose(offpolicy.switch_doubly_robust(rounds, 0.0), direct, atol=1e-12)
    np.testing.assert_allclose(offpolicy.switch_doubly_robust(rounds, np.inf), robust, atol=1e-12)
    for family, values in ((offpolicy.shrunk_doubly_robust, shrinkages), (offpolicy.switch_doubly_robust, thresholds)):
        assert chosen_parameter(rounds, family, values(rounds)) in values(rounds)


@given(SEEDS)
def test_the_log_itself_as_candidate(seed):
    """With π = p all weights are 1: IPS, SNIPS and DR with any model that predicts the rewards are the mean reward."""
    generator = np.random.default_rng(seed)
    rewards = generator.normal(size=20)
    rounds = Rounds(np.ones(20), rewards, rewards, rewards)
    for estimator in (offpolicy.inverse_propensity, offpolicy.self_normalised, offpolicy.doubly_robust):
        assert estimator(rounds).mean() == pytest.approx(rewards.mean(), abs=1e-12)


def test_smoothed_weights_equal_their_formula():
    generator = np.random.default_rng(0)
    played, wanted, densities = generator.random((50, 2)), generator.random((50, 2)), generator.random(50) + 0.5
    widths = np.array([0.3, 0.7])
    weights = offpolicy.smoothed_weights(played, wanted, densities, widths)
    for i in range(50):
        u = (wanted[i] - played[i]) / widths
        first, second = 0.75 * (1 - u**2) * (abs(u) <= 1)
        assert weights[i] == pytest.approx(first / 0.3 * second / 0.7 / densities[i], abs=1e-12)


def test_near_a_wall_the_weights_still_average_to_one():
    import kernel_bandits as kb

    box = kb.Box([0.0], [1.0])
    grid = ((np.arange(20_000) + 0.5) / 20_000)[:, None]
    for wanted in (0.0, 0.05, 0.5, 1.0):
        every = np.full((len(grid), 1), wanted)
        weights = offpolicy.smoothed_weights(grid, every, np.ones(len(grid)), np.array([0.2]), box)
        assert weights.mean() == pytest.approx(1.0, abs=1e-6)


def test_the_widest_bandwidth_that_agrees_with_all_narrower_ones_is_chosen():
    # in order of decreasing bandwidth: the first is biased
    assert chosen_bandwidth([2.0, 1.05, 1.0, 1.1], [0.01, 0.05, 0.1, 0.2]) == 1
    assert chosen_bandwidth([1.0, 1.0], [0.1, 0.1]) == 0
    assert chosen_bandwidth([1.0], [0.1]) == 0
