"""Large action sets: the same choice as without pruning, always."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits.posterior import nystrom


def trained(seed, lengthscale, regularization, number, rounds, scale):
    generator = np.random.default_rng(seed)
    policy = kb.ek_ucb(
        kb.Gaussian(lengthscale),
        regularization=regularization,
        confidence=kb.StandardDeviations(number),
        seed=seed,
    )
    contexts, actions = generator.random((rounds, 1)), generator.random((rounds, 2))
    rewards = scale * np.exp(-8 * ((actions - contexts) ** 2).sum(axis=1))
    policy.update_many(contexts, actions, rewards + 0.1 * generator.normal(size=rounds))
    return policy, generator


def both(policy, context, actions):
    """The decisions with pruning and without."""
    state = policy.generator.bit_generator.state
    pruned = policy.select(context, actions)
    policy.generator.bit_generator.state = state
    minimum = nystrom.MINIMUM_ACTIONS
    try:
        nystrom.MINIMUM_ACTIONS = 10**9
        return pruned, policy.select(context, actions)
    finally:
        nystrom.MINIMUM_ACTIONS = minimum


@pytest.mark.parametrize("seed", range(4))
def test_same_choice_with_a_kernel_of_large_variance(seed):
    generator = np.random.default_rng(seed)
    policy = kb.ek_ucb(100.0**2 * kb.Gaussian(0.15), regularization=1.0, seed=seed)
    points = generator.random((60, 3))
    policy.update_many(points[:, :1], points[:, 1:], 100.0 * np.sin(9.0 * points.sum(axis=1)))
    pruned, plain = both(policy, generator.random(1), generator.random((800, 2)))
    np.testing.assert_array_equal(pruned.action, plain.action)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengthscale=st.sampled_from([0.1, 0.4, 2.0]),
    regularization=st.sampled_from([1e-6, 1e-3, 0.1, 3.0]),
    number=st.sampled_from([0.0, 0.1, 1.0]),
    rounds=st.sampled_from([1, 30, 300]),
    scale=st.sampled_from([-1.0, 1.0, 30.0]),
    repeats=st.booleans(),
)
def test_same_choice_as_without_pruning(seed, lengthscale, regularization, number, rounds, scale, repeats):
    policy, generator = trained(seed, lengthscale, regularization, number, rounds, scale)
    actions = generator.random((600, 2))
    if repeats:
        actions[300:] = actions[:300]
    pruned, plain = both(policy, generator.random(1), actions)
    # of two equal actions rounding may prefer either
    np.testing.assert_array_equal(pruned.action, plain.action)
    # products of few rows round otherwise than products of many, and small regularizations amplify that
    assert pruned.upper_bound == pytest.approx(plain.upper_bound, rel=1e-7, abs=1e-7)


@pytest.fixture(autouse=True)
def prune_from_one_anchor_on(monkeypatch):
    monkeypatch.setattr(nystrom, "MINIMUM_ANCHORS", 1)
    monkeypatch.setattr(nystrom, "MINIMUM_ENTRIES", 1)


def test_pruning_spares_most_of_the_work_on_a_posterior_that_knows(monkeypatch):
    policy, generator = trained(0, 0.4, 0.01, 0.1, 400, 3.0)
    evaluated = []
    evaluate = nystrom.NystromPosterior.evaluate_gram

    def counting(self, gram, prior):
        evaluated.append(len(gram))
        return evaluate(self, gram, prior)

    monkeypatch.setattr(nystrom.NystromPosterior, "evaluate_gram", counting)
    decision = policy.select([0.5], generator.random((5000, 2)))
    assert sum(evaluated) < 2500
    # the update of the chosen action finds its evaluation
    before = len(evaluated)
    policy.update([0.5], decision.action, 1.0)
    assert len(evaluated) == before


def test_a_kernel_that_is_not_finite_is_reported_for_large_action_sets_too():
    class Poisoned:
        def __call__(self, X, Y=None):
            gram = kb.Gaussian(0.5)(X, Y)
            gram[(X > 1).any(axis=1)] = np.nan
            return gram

        def diag(self, X):
            return np.ones(len(X))

    policy = kb.ek_ucb(Poisoned(), seed=0)
    policy.update([0.5], [0.5], 1.0)
    actions = np.linspace(0, 1.001, 1000)[:, None]
    with pytest.raises(kb.InputError, match="not finite"):
        policy.select([0.5], actions)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), lengthscale=st.sampled_from([0.1, 0.4, 2.0]), rounds=st.sampled_from([1, 40]))
def test_the_std_is_below_what_a_few_of_its_values_say(seed, lengthscale, rounds):
    policy, generator = trained(seed, lengthscale, 0.01, 1.0, rounds, 1.0)
    points = generator.random((300, 3))
    std, known = policy.posterior.predict(points).std, nystrom.pivots(300, 100)
    bounds = nystrom.std_bounds(policy.posterior.kernel, points, np.ones(300), known, std[known])
    assert np.all(bounds >= std - 1e-7)
    np.testing.assert_allclose(bounds[known], std[known], atol=1e-7)
