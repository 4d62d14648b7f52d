import math

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits.posterior.ridge import RECENT_ROWS


def test_plays_the_largest_upper_bound_of_scikit_learns_regressor():
    policy = kb.k_ucb(kb.Gaussian(0.3), regularization=0.2, confidence=kb.StandardDeviations(1.7), seed=0)
    generator = np.random.default_rng(0)
    points, rewards = [], []
    for t in range(40):
        context, actions = generator.random(1), generator.random((6, 1))
        decision = policy.select(context, actions)
        if t:
            regressor = GaussianProcessRegressor(sk.RBF(0.3), alpha=0.2, optimizer=None).fit(points, rewards)
            joint = np.column_stack([np.full(6, context[0]), actions[:, 0]])
            mean, std = regressor.predict(joint, return_std=True)
            assert decision.index == np.argmax(mean + 1.7 * std)
            assert decision.upper_bound == pytest.approx((mean + 1.7 * std).max(), abs=1e-8)
        reward = math.sin(6 * context[0] + 3 * decision.action[0])
        policy.update(context, decision.action, reward)
        points.append([context[0], decision.action[0]])
        rewards.append(reward)


@pytest.mark.parametrize("preset", [kb.k_ucb, kb.ek_ucb])
@pytest.mark.parametrize("regularization", [0.04, 1.0])
def test_a_radius_is_the_papers_beta(preset, regularization):
    """bonus = β·std/√λ: a constant β, and c standard deviations as β = c·√λ."""
    context, actions = [0.5], [[0.1], [0.9]]
    for confidence, bonus in [
        (kb.ConstantRadius(0.3), 0.3 / math.sqrt(regularization)),
        (kb.StandardDeviations(2.0), 2.0),
    ]:
        policy = preset(kb.Gaussian(0.3), regularization=regularization, confidence=confidence, seed=0)
        policy.update([0.4], [0.1], 1.0)
        decision = policy.select(context, actions)
        assert decision.upper_bound == pytest.approx(decision.mean + bonus * decision.std)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "two"])
def test_bad_radii_are_named(bad):
    with pytest.raises(kb.InputError, match="value"):
        kb.ConstantRadius(bad)
    with pytest.raises(kb.InputError, match="number"):
        kb.StandardDeviations(bad)


@pytest.mark.parametrize("preset", [kb.k_ucb, kb.ek_ucb])
def test_ties_are_broken_at_random_and_evenly(preset):
    """First round: all ten bounds equal. 1,000 draws, each count within 5 standard deviations of 100."""
    counts = np.bincount(
        [
            preset(kb.Gaussian(0.1), seed=seed).select([0.5], np.linspace(0, 1, 10)[:, None]).index
            for seed in range(1000)
        ],
        minlength=10,
    )
    assert (np.abs(counts - 100) < 5 * math.sqrt(1000 * 0.1 * 0.9)).all()


def test_ties_up_to_rounding_are_ties():
    """Far from the data, bounds agree but for the order of rounding; every action must have its chance."""
    chosen = set()
    for seed in range(60):
        policy = kb.ek_ucb(kb.Gaussian(0.05), seed=seed)
        for place in (0.0, 0.01, 0.02):
            policy.update([0.0], [place], 0.3)
        chosen.add(policy.select([0.0], np.linspace(10, 11, 5)[:, None]).index)
    assert chosen == {0, 1, 2, 3, 4}


class CountingKernel:
    def __init__(self):
        self.evaluations = 0

    def __call__(self, X, Y=None):
        self.evaluations += len(X)
        return kb.Gaussian(0.5)(X, Y)

    def diag(self, X):
        return np.ones(len(X))


@pytest.mark.parametrize("preset", [kb.k_ucb, kb.ek_ucb])
def test_select_then_update_evaluates_the_kernel_once(preset):
    """Only the rows of select are evaluated; with a full dictionary an update touches the kernel no more."""
    kernel = CountingKernel()
    options = {"dictionary": kb.Kors(max_size=5)} if preset is kb.ek_ucb else {}
    policy = preset(kernel, seed=0, **options)
    generator = np.random.default_rng(0)
    for t in range(100):
        context, actions = generator.random(2), generator.random((8, 1))
        decision = policy.select(context, actions)
        before = kernel.evaluations
        policy.update(context, decision.action, 0.0)
        if preset is kb.k_ucb or (policy.dictionary_size == 5 and t > 90):
            assert kernel.evaluations == before


@pytest.mark.parametrize("preset", [kb.k_ucb, kb.ek_ucb])
def test_an_update_is_the_same_with_and_without_a_select_before_it(preset):
    generator = np.random.default_rng(0)
    selecting, plain = preset(kb.Gaussian(0.5), seed=0), preset(kb.Gaussian(0.5), seed=0)
    for t in range(50):
        context, actions = generator.random(2), generator.random((8, 1))
        decision = selecting.select(context, actions)
        # sometimes another action is played than the one chosen, and sometimes one that was never offered
        action = decision.action if t % 3 == 0 else actions[0] if t % 3 == 1 else np.array([0.123])
        selecting.update(context, action, context[0])
        plain.update(context, action, context[0])
        one, other = selecting.predict(context, actions), plain.predict(context, actions)
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-10)
        np.testing.assert_allclose(one.std, other.std, atol=1e-10)


def test_history_free_policy_holds_still_once_its_dictionary_does():
    """No array of the policy grows after the dictionary has stopped growing."""

    def sizes(thing, seen):
        if id(thing) in seen:
            return []
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            return [thing.nbytes] if thing.base is None else sizes(thing.base, seen)
        children = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
        children += [getattr(thing, slot) for slot in getattr(type(thing), "__slots__", ()) if hasattr(thing, slot)]
        children += list(thing) if isinstance(thing, (list, tuple)) else []
        return [size for child in children for size in sizes(child, seen)]

    policy = kb.ek_ucb(kb.Gaussian(0.1), dictionary=kb.Kors(history="none", max_size=30), seed=0)
    environment = kb.environments.Chessboard()
    kb.run(policy, environment, 500, seed=0)
    assert policy.dictionary_size == 30
    before = sorted(sizes(policy, set()))
    assert len(before) > 6
    # rows that wait for the others join them every so many rounds
    kb.run(policy, environment, 32 * RECENT_ROWS, seed=1)
    assert sorted(sizes(policy, set())) == before


def test_accessors_tell_the_same_story():
    policy = kb.ek_ucb(kb.Gaussian(0.3), seed=0)
    result = kb.run(policy, kb.environments.Chessboard(), 50, seed=0)
    np.testing.assert_array_equal(policy.observed_points, np.hstack([result.contexts, result.actions]))
    assert policy.round_index == 50
    assert policy.dictionary_size == len(policy.dictionary_points) == result.dictionary_size[-1]
    observed = {tuple(point) for point in policy.observed_points}
    assert all(tuple(anchor) in observed for anchor in policy.dictionary_points)
