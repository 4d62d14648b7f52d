"""The best action to use now, and what more experiments are worth."""

import numpy as np
import pytest

import kernel_bandits as kb

ACTIONS = np.linspace(0.0, 1.0, 40)[:, None]
KERNEL = kb.Gaussian(lengthscale=0.15)


def played(seed, count=8, noise=0.1):
    """Return a function drawn from the prior, and a policy that has seen some of it."""
    generator = np.random.default_rng(seed)
    truth = generator.multivariate_normal(np.zeros(40), KERNEL(ACTIONS) + 1e-9 * np.eye(40))
    policy = kb.k_ucb(KERNEL, regularization=noise**2, seed=seed)
    for row in generator.integers(0, 40, count):
        policy.update([], ACTIONS[row], truth[row] + noise * generator.standard_normal())
    return truth, policy


def test_best_has_the_largest_mean_and_changes_nothing():
    _, policy = played(0)
    following = policy.preview([], ACTIONS)
    best, mean = policy.best([], ACTIONS), policy.predict([], ACTIONS).mean
    assert best.index == mean.argmax()
    assert best.mean == mean.max()
    box = kb.Box([0.0], [1.0])
    fine = policy.predict([], np.linspace(0.0, 1.0, 2001)[:, None]).mean.max()
    assert policy.best([], box).mean >= fine - 1e-6
    policy.outlook([], box)
    assert policy.preview([], ACTIONS) == following
    mask = np.arange(40) < 10
    assert policy.best([], ACTIONS, mask).index == mean[:10].argmax()


def test_probabilities_of_what_is_left_are_frequencies():
    looks = [(0.2, 0.6), (1.0, 0.3)]
    stated, was, expected, left = [], [], [], []
    for seed in range(150):
        truth, policy = played(seed)
        missing = truth.max() - truth[policy.best([], ACTIONS).index]
        for more_than, _ in looks:
            outlook = policy.outlook([], ACTIONS, more_than=more_than)
            stated.append(outlook.probability)
            was.append(missing > more_than)
        expected.append(outlook.expected_left)
        left.append(missing)
    # 0.04 is one standard deviation of a frequency over 150 runs
    assert np.mean(stated) == pytest.approx(np.mean(was), abs=0.08)
    assert np.mean(expected) == pytest.approx(np.mean(left), abs=0.15)


def test_more_experiments_are_worth_more_up_to_what_is_left():
    _, policy = played(3)
    outlooks = [policy.outlook([], ACTIONS, experiments=count) for count in (1, 5, 50)]
    gains = [each.expected_after - each.expected_now for each in outlooks]
    assert 0.0 <= gains[0] < gains[1] < gains[2] <= outlooks[2].expected_left + 0.05
    assert "more experiments" in str(outlooks[0])


def test_best_keeps_constraints():
    box = kb.Box([0.0], [1.0])
    limit = kb.Below(0.5, kernel=4.0 * kb.Matern(0.5), regularization=1e-4)
    policy = kb.k_ucb(KERNEL, regularization=0.01, seed=0).constrained({"pressure": limit}, safe_actions=[[0.1]])
    for _ in range(15):
        action = policy.select([], box).action
        policy.update([], action, float(action[0]), outputs={"pressure": float(action[0])})
    best = policy.best([], box)
    assert best.safe
    assert 0.3 < best.action[0] <= 0.5
    assert policy.best([], ACTIONS).action[0] <= 0.5
    assert policy.outlook([], box).best == best


def test_a_table_names_the_best():
    features = kb.Features(context={"sensor": kb.Numeric()}, actions=["a", "b"])
    policy = kb.ek_ucb(features=features, seed=0)
    for number in range(40):
        arm = "ab"[number % 2]
        policy.update({"sensor": number / 40}, arm, float(arm == "b") + 0.01 * number)
    assert policy.best({"sensor": 0.5}).arm == "b"
    assert policy.outlook({"sensor": 0.5}, experiments=3).best.arm == "b"
