"""await_many, tell_many and select_many are ask, tell and select one by one, only faster."""

import numpy as np
import pytest
from test_many_at_once import assert_same_posterior, log
from test_policy_contract import VARIANTS, build, variant_name

import kernel_bandits as kb
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.learning.defaults import FIRST_TESTED_ROUND, LARGEST_RESIDUAL
from kernel_bandits.posterior import Posterior

RULES = [kb.Kors(), kb.Kors(history="none"), kb.Kors(max_size=20), kb.PosteriorVariance()]


def ask_one_by_one(policy, contexts, actions):
    return [policy.ask(context, action[None, :]).id for context, action in zip(contexts, actions, strict=True)]


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=map(variant_name, VARIANTS))
def test_await_many_and_tell_many_are_ask_and_tell_one_by_one(name, options):
    many, single = build(name, **options), build(name, **options)
    if not isinstance(many.model, Posterior):
        pytest.skip("counts who chose a point, which await_many does not know")
    for seed in range(3):
        contexts, actions, rewards = log(80, seed)
        ids = many.await_many(contexts, actions)
        assert ids == ask_one_by_one(single, contexts, actions)
        assert many.pending == single.pending
        assert_same_posterior(many, single)
        order = np.random.default_rng(seed).permutation(80)[: 80 if seed == 1 else 60]
        many.tell_many([ids[place] for place in order], rewards[order])
        # where rewards are learned in the order of decisions they are told in it, or some are not waited for
        for place in np.sort(order) if many.model.learns_in_order else order:
            single.tell(ids[place], rewards[place])
        assert many.pending == single.pending
        assert_same_posterior(many, single)


@pytest.mark.parametrize("preset", [kb.ek_ucb, kb.k_ucb, kb.lin_ucb])
def test_rewards_that_are_told_together_are_compared_with_what_was_predicted_before_them(preset):
    policy = preset(seed=0) if preset is kb.lin_ucb else preset(kb.Gaussian(0.3), seed=0)
    contexts, actions, rewards = log(200)
    ids = policy.await_many(contexts, actions)
    before = policy.posterior.evaluate_awaited(ids, np.hstack([contexts, actions]))
    policy.tell_many(ids, rewards)
    test = kb.Restart().detector()
    for time in range(FIRST_TESTED_ROUND, 200):
        z = (rewards[time] - before.mean[time]) / np.sqrt(before.std[time] ** 2 + policy.posterior.regularization)
        test = test.after(float(np.clip(z, -LARGEST_RESIDUAL, LARGEST_RESIDUAL)), time)
    assert policy.residuals.test.number == test.number > 100
    assert policy.residuals.test.mean_square == pytest.approx(test.mean_square)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_anchors_and_quantities_are_the_same(rule):
    many, single = (kb.ek_ucb(kb.Gaussian(0.6), seed=0, dictionary=rule) for _ in range(2))
    contexts, actions, rewards = log(450)
    for start in range(0, 450, 150):
        rows = slice(start, start + 150)
        ids = many.await_many(contexts[rows], actions[rows])
        assert ask_one_by_one(single, contexts[rows], actions[rows]) == ids
        many.tell_many(ids[20:], rewards[rows][20:])
        for id, reward in zip(ids[20:], rewards[rows][20:], strict=True):
            single.tell(id, reward)
    np.testing.assert_array_equal(many.dictionary_points, single.dictionary_points)
    assert_same_posterior(many, single)
    for quantity in ("log_determinant", "effective_dimension", "residual_trace", "round_index"):
        ours, theirs = getattr(many.posterior, quantity), getattr(single.posterior, quantity)
        assert ours == pytest.approx(theirs, rel=1e-8, abs=1e-8)
    if rule.history == "all":
        np.testing.assert_array_equal(many.posterior.observed_points, single.posterior.observed_points)
        np.testing.assert_array_equal(many.posterior.observed_rewards, single.posterior.observed_rewards)
    expired = many.pending[::2]
    for id in expired:
        many.expire(id)
        single.expire(id)
    assert_same_posterior(many, single)


def test_what_is_awaited_survives_a_file(tmp_path):
    policy = kb.ek_ucb(kb.Gaussian(0.3), seed=0)
    contexts, actions, rewards = log(100)
    ids = policy.await_many(contexts, actions)
    policy.save(tmp_path / "policy")
    loaded = kb.load(tmp_path / "policy")
    for one in (policy, loaded):
        one.tell_many(ids, rewards)
    points = np.hstack([contexts, actions])
    np.testing.assert_array_equal(policy.posterior.predict(points).mean, loaded.posterior.predict(points).mean)


def test_bad_input_changes_nothing():
    policy = kb.ek_ucb(kb.Gaussian(0.3), seed=0)
    contexts, actions, rewards = log(30)
    for bad in (
        lambda: policy.await_many(contexts, actions[:-1]),
        lambda: policy.await_many(contexts * np.nan, actions),
    ):
        with pytest.raises(InputError):
            bad()
    assert policy.pending == ()
    ids = policy.await_many(contexts, actions)
    rewards[-1] = np.nan
    for bad in (lambda: policy.tell_many(ids, rewards), lambda: policy.tell_many([*ids[:-1], ids[0]], rewards * 0)):
        with pytest.raises(InputError):
            bad()
    assert policy.pending == tuple(ids)
    assert policy.round_index == 0
    policy.tell_many(ids, np.ones(30))
    with pytest.raises(InputError, match=r"was told already, with reward 1\.0"):
        policy.tell(ids[3], 1.0)


class Settles:
    """Rewards of 1 that are read while another caller tells the reward of a decision."""

    def __init__(self, policy, key, count):
        self.policy, self.key, self.count = policy, key, count

    def __array__(self, dtype=None, copy=None):
        if self.key in self.policy.pending:
            self.policy.tell(self.key, 2.0)
        return np.ones(self.count)


@pytest.mark.parametrize("preset", [kb.ek_ucb, kb.k_ucb])
def test_rewards_that_settle_a_decision_as_they_are_read_are_refused(preset):
    policy = preset(kb.Gaussian(0.3), seed=0)
    ids = policy.await_many(*log(30)[:2])
    with pytest.raises(UnavailableError, match="changed while it computed"):
        policy.tell_many(ids, Settles(policy, ids[3], 30))
    assert policy.round_index == 1


class TooFar(kb.Kernel):
    """A Gaussian that refuses points whose first column is above a limit."""

    def __init__(self, reason):
        self.gaussian, self.limit, self.reason = kb.Gaussian(0.3), 2.0, reason

    def __call__(self, X, Y=None):
        if (X[:, 0] > self.limit).any():
            raise self.reason("too far")
        return self.gaussian(X, Y)

    def diag(self, X):
        return self.gaussian.diag(X)


@pytest.mark.parametrize("reason", [InputError, ValueError])
def test_points_at_which_the_kernel_fails_are_not_awaited(reason):
    policy, expected = (kb.ek_ucb(TooFar(reason), seed=0) for _ in range(2))
    contexts, actions, rewards = log(40)
    contexts[29, 0] = 3.0
    with pytest.raises(reason, match="too far"):
        policy.await_many(contexts, actions)
    assert policy.pending == ()
    assert policy.await_many(contexts[:29], actions[:29]) == list(range(29))
    ids = [expected.ask(context, action[None, :]).id for context, action in zip(contexts[:29], actions, strict=False)]
    policy.tell_many(policy.pending, rewards[:29])
    expected.tell_many(ids, rewards[:29])
    assert_same_posterior(policy, expected)


def test_a_table_awaits_new_levels_in_their_order():
    features = kb.Features(context={"country": kb.Categorical()}, actions=kb.Arms(["red"]))
    many, single = (kb.ek_ucb(kb.Gaussian(0.5), features=features, seed=0) for _ in range(2))
    rows = [{"country": name} for name in "abcabcdabcd"]
    arms = ["red", "new", "red", "newer", "red", "red", "new", "red", "red", "newer", "red"]
    ids = many.await_many(rows, arms)
    assert [single.ask(row, [arm]).id for row, arm in zip(rows, arms, strict=True)] == ids
    many.tell_many(ids, np.arange(11.0))
    for id in ids:
        single.tell(id, float(id))
    assert many.codec.levels == single.codec.levels
    for row in rows:
        np.testing.assert_allclose(many.predict(row).mean, single.predict(row).mean, atol=1e-9)
    with pytest.raises(InputError, match="as many of each"):
        many.await_many(rows, arms[1:])


@pytest.mark.parametrize("floor", [0.0, 0.3])
@pytest.mark.parametrize("count", [0, 3, 200])
def test_select_many_draws_as_select_does(floor, count):
    many, single = (kb.ek_ucb(kb.Gaussian(0.3), exploration_floor=floor, seed=4) for _ in range(2))
    for policy in (many, single) if count else ():
        policy.update_many(*log(count))
    # repeated actions tie
    offer = np.array([[0.1], [0.5], [0.9], [0.5]])
    rows = log(60, seed=3)[0]
    own = np.random.default_rng(0).random((60, 4, 1))
    for offered in (offer, own):
        together = many.select_many(rows, offered)
        for place, decision in enumerate(together):
            alone = single.select(rows[place], offered if offered.ndim == 2 else offered[place])
            assert decision.index == alone.index
            np.testing.assert_allclose([decision.mean, decision.std], [alone.mean, alone.std], atol=1e-9)
            if floor:
                np.testing.assert_allclose(decision.probabilities, alone.probabilities)
                assert decision.propensity == pytest.approx(alone.propensity)


def test_ids_of_decisions_are_counted_whoever_opens_them():
    policy = kb.ek_ucb(kb.Gaussian(0.5), seed=0)
    contexts, actions, _ = log(10, 0)
    assert policy.issued == 0
    assert policy.await_many(contexts, actions) == list(range(10))
    assert policy.ask(contexts[0], actions).id == 10
    policy.expire(3)
    assert policy.issued == 11


def test_rewards_that_take_several_products_are_learned_as_one_by_one():
    many, single = (kb.ek_ucb(kb.Gaussian(0.3), dictionary=kb.Kors(max_size=20), seed=4) for _ in range(2))
    contexts, actions, rewards = log(400, 1)
    ids = many.await_many(contexts, actions)
    assert single.await_many(contexts, actions) == ids
    many.tell_many(ids, rewards)
    for id, reward in zip(ids, rewards.tolist(), strict=True):
        single.tell(id, reward)
    queries = log(30, 2)[1]
    for context in contexts[:5]:
        found, expected = many.predict(context, queries), single.predict(context, queries)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-9)
        np.testing.assert_allclose(found.std, expected.std, atol=1e-9)
