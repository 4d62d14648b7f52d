"""select_many and update_many are select and update, only faster."""

import pickle

import numpy as np
import pytest
from test_policy_contract import VARIANTS, build, models, variant_name

import kernel_bandits as kb


def log(count, seed=0):
    generator = np.random.default_rng(seed)
    contexts, actions = generator.random((count, 2)), generator.random((count, 1))
    return contexts, actions, np.sin(5 * contexts[:, 0] * actions[:, 0]) + 0.1 * generator.normal(size=count)


def assert_same_posterior(one, other, tolerance=1e-8):
    contexts, actions, _ = log(100, seed=9)
    points = np.hstack([contexts, actions])
    assert one.dictionary_size == other.dictionary_size
    for ours, theirs in zip(models(one), models(other), strict=True):
        assert ours.round_index == theirs.round_index
        np.testing.assert_allclose(ours.predict(points).mean, theirs.predict(points).mean, atol=tolerance, rtol=0)
        np.testing.assert_allclose(ours.predict(points).std, theirs.predict(points).std, atol=tolerance, rtol=0)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=map(variant_name, VARIANTS))
def test_update_many_is_update_one_by_one(name, options):
    many, single = build(name, **options), build(name, **options)
    contexts, actions, rewards = log(400)
    many.update_many(contexts[:150], actions[:150], rewards[:150])
    for round_ in zip(contexts, actions, rewards, strict=True):
        single.update(*round_)
    many.update_many(contexts[150:], actions[150:], rewards[150:])
    assert_same_posterior(many, single)
    # and both go on alike, coins included
    later = log(60, seed=1)
    many.update_many(*later)
    for round_ in zip(*later, strict=True):
        single.update(*round_)
    assert_same_posterior(many, single)


@pytest.mark.parametrize("rule", [kb.Kors(), kb.Kors(history="none"), kb.PosteriorVariance()], ids=str)
def test_a_long_log_gives_the_same_anchors_and_quantities(rule):
    many, single = (kb.ek_ucb(kb.Gaussian(0.2), seed=0, dictionary=rule) for _ in range(2))
    contexts, actions, rewards = log(2500)
    many.update_many(contexts, actions, rewards)
    for round_ in zip(contexts, actions, rewards, strict=True):
        single.update(*round_)
    np.testing.assert_array_equal(many.dictionary_points, single.dictionary_points)
    assert_same_posterior(many, single)
    for quantity in ("log_determinant", "effective_dimension", "residual_trace", "round_index"):
        assert getattr(many.posterior, quantity) == pytest.approx(
            getattr(single.posterior, quantity), rel=1e-8, abs=1e-8
        )
    if rule.history != "none":
        np.testing.assert_array_equal(many.posterior.observed_points, np.hstack([contexts, actions]))
        np.testing.assert_array_equal(many.posterior.observed_rewards, rewards)


class FailsBeyondOne(kb.Kernel):
    """A Gaussian that answers NaN for points whose first column is above 1."""

    gaussian = kb.Gaussian(0.2)

    def __call__(self, X, Y=None):
        gram = self.gaussian(X, Y)
        gram[X[:, 0] > 1.0] = np.nan
        return gram

    def diag(self, X):
        return self.gaussian.diag(X)


def test_a_log_at_which_the_kernel_fails_is_not_learned_at_all():
    failed, other = kb.ek_ucb(FailsBeyondOne(), seed=0), kb.ek_ucb(FailsBeyondOne(), seed=0)
    contexts, actions, rewards = log(600)
    contexts[500, 0] = 2.0
    with pytest.raises(kb.InputError, match="not finite"):
        failed.update_many(contexts, actions, rewards)
    assert failed.round_index == 0
    for policy in (failed, other):
        policy.update_many(contexts[:500], actions[:500], rewards[:500])
    # the same coins were drawn, so the dictionary is the same
    np.testing.assert_array_equal(failed.dictionary_points, other.dictionary_points)
    assert_same_posterior(failed, other, tolerance=0.0)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=map(variant_name, VARIANTS))
@pytest.mark.parametrize("rounds", [0, 40])
def test_select_many_is_select_one_by_one(name, options, rounds):
    many, single = build(name, seed=4, **options), build(name, seed=4, **options)
    if rounds:
        for policy in (many, single):
            policy.update_many(*log(rounds))
    contexts, _, _ = log(30, seed=2)
    generator = np.random.default_rng(3)
    for actions in (generator.random((6, 1)), generator.random((30, 6, 1)), np.full((5, 1), 0.5)):
        decisions = many.select_many(contexts, actions)
        for context, offered, decision in zip(
            contexts, np.broadcast_to(actions, (30, *actions.shape[-2:])), decisions, strict=True
        ):
            expected = single.select(context, offered)
            assert decision.index == expected.index
            np.testing.assert_array_equal(decision.action, expected.action)
            assert decision.upper_bound == pytest.approx(expected.upper_bound, abs=1e-10)


@pytest.mark.parametrize(
    ("contexts", "actions", "rewards", "words"),
    [
        (np.zeros((3, 2)), np.zeros((2, 1)), np.zeros(3), "as many of each"),
        (np.zeros((3, 2)), np.zeros((3, 1)), [0.0, np.nan, 0.0], "rewards"),
        (np.full((3, 2), np.inf), np.zeros((3, 1)), np.zeros(3), "contexts"),
        (np.zeros((3, 2)), np.full((3, 1), np.nan), np.zeros(3), "actions"),
        (np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3), "expected 2 columns"),
        (np.zeros((0, 2)), np.zeros((0, 1)), np.zeros(0), "at least one row"),
    ],
)
def test_a_bad_log_changes_nothing(contexts, actions, rewards, words):
    policy = kb.ek_ucb(kb.Gaussian(0.2), seed=0)
    policy.update_many(*log(30))
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match=words):
        policy.update_many(contexts, actions, rewards)
    assert pickle.dumps(policy) == before


@pytest.mark.parametrize(
    ("contexts", "actions", "words"),
    [
        (np.zeros((3, 2)), np.zeros((2, 4, 1)), "n = 3"),
        (np.zeros((3, 2)), np.zeros((3, 0, 1)), "A at least 1"),
        (np.zeros((3, 2)), np.zeros(3), "expected shape"),
        (np.zeros((3, 2)), np.zeros((4, 2)), "expected 1 columns"),
        (np.zeros((3, 2)), np.full((4, 1), np.nan), "actions"),
    ],
)
def test_bad_offers_are_named(contexts, actions, words):
    policy = kb.ek_ucb(kb.Gaussian(0.2), seed=0)
    policy.update_many(*log(30))
    with pytest.raises(kb.InputError, match=words):
        policy.select_many(contexts, actions)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=map(variant_name, VARIANTS))
def test_an_action_has_at_least_one_column(name, options):
    policy = build(name, **options)
    for call in (
        lambda: policy.update([0.5, 0.5, 0.5], [], 1.0),
        lambda: policy.update([], [], 1.0),
        lambda: policy.update_many([[0.5, 0.5, 0.5]], [[]], [1.0]),
        lambda: policy.select([0.5, 0.5, 0.5], [[]]),
    ):
        with pytest.raises(kb.InputError, match="at least one column"):
            call()
    policy.update([0.5, 0.5], [0.5], 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_repeats_in_a_log_are_drawn_as_they_are_one_by_one(seed):
    """Above k(s, s), μ makes KORS draw points again that add no direction, and scores fall with each of them."""
    generator = np.random.default_rng(seed)
    rows, rewards = generator.random((6, 1))[generator.integers(6, size=300)], generator.normal(size=300)
    rule = kb.Kors(leverage_regularization=5.0)
    many, single = (kb.ek_ucb(kb.Gaussian(0.3), dictionary=rule, seed=seed) for _ in range(2))
    many.update_many(np.empty((300, 0)), rows, rewards)
    for row, reward in zip(rows, rewards.tolist(), strict=True):
        single.update([], row, reward)
    draws = [policy.posterior.dictionary.draws for policy in (many, single)]
    assert draws[0] == draws[1] > 2 * many.dictionary_size
