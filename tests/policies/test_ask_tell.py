"""Feedback as it really arrives: late, in any order, in batches, twice, or never."""

import json

import dense
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_policy_contract import VARIANTS, build, rounds, variant_name

import kernel_bandits as kb
from kernel_bandits.policy import policy as policy_module

PROBE = np.array([0.4]), np.linspace(0, 1, 9)[:, None]


def reward_of(decision):
    return float(np.sin(6 * decision.action[0]) * decision.context[0])


def assert_direct(policy, told):
    """The policy predicts what a dense computation from the rewards that came does, on its dictionary."""
    points = np.array([np.concatenate((decision.context, decision.action)) for decision, _ in told])
    rewards = np.array([reward for _, reward in told])
    queries = np.hstack([np.full((9, 1), PROBE[0][0]), PROBE[1]])
    expected = dense.nystrom(
        policy.posterior.kernel, policy.dictionary_points, points, rewards, policy.posterior.regularization, queries
    )
    prediction = policy.predict(*PROBE)
    np.testing.assert_allclose(prediction.mean, expected.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(prediction.std, expected.std, rtol=0, atol=1e-8)


def test_ten_thousand_asks_with_delays_losses_and_repeats():
    generator = np.random.default_rng(0)
    policy = kb.ek_ucb(kb.Gaussian(0.3), regularization=0.1, seed=0)
    arrivals, told, twice, lost = {}, [], 0, 0
    for now in range(11_000):
        if now < 10_000:
            decision = policy.ask(generator.random(1), generator.random((5, 1)))
            arrivals.setdefault(now + 1 + int(generator.exponential(60)), []).append(decision)
        for decision in generator.permutation(np.array(arrivals.pop(now, []), dtype=object)):
            fate = generator.random()
            if fate < 0.05:
                policy.expire(decision.id)
                lost += 1
                continue
            reward = reward_of(decision)
            policy.tell(decision.id, reward)
            told.append((decision, reward))
            if fate < 0.10:
                twice += 1
                with pytest.raises(kb.InputError, match=rf"decision {decision.id} was told already, with reward "):
                    policy.tell(decision.id, 100.0)
    for waiting in arrivals.values():
        policy.tell_many([decision.id for decision in waiting], [reward_of(decision) for decision in waiting])
        told += [(decision, reward_of(decision)) for decision in waiting]
    assert not policy.pending
    assert lost > 400
    assert twice > 400
    assert len(told) + lost == 10_000
    assert policy.round_index == len(told)
    assert_direct(policy, told)


class Stream(RuleBasedStateMachine):
    """Asks, tells, repeats, expiries, saves and plain updates in any order."""

    def __init__(self):
        super().__init__()
        self.policy = kb.ek_ucb(kb.Gaussian(0.3), regularization=0.1, seed=1)
        self.generator = np.random.default_rng(7)
        self.waiting, self.told, self.settled = [], [], []

    @rule()
    def ask(self):
        self.waiting.append(self.policy.ask(self.generator.random(1), self.generator.random((4, 1))))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def tell(self, data):
        decision = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.policy.tell(decision.id, reward_of(decision))
        self.told.append((decision, reward_of(decision)))
        self.settled.append(decision.id)

    @precondition(lambda self: len(self.waiting) > 1)
    @rule()
    def tell_all_but_one(self):
        batch, self.waiting = self.waiting[1:], self.waiting[:1]
        self.policy.tell_many([decision.id for decision in batch], [reward_of(decision) for decision in batch])
        self.told += [(decision, reward_of(decision)) for decision in batch]
        self.settled += [decision.id for decision in batch]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def expire(self, data):
        decision = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.policy.expire(decision.id)
        self.settled.append(decision.id)

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def settle_again(self, data):
        key = data.draw(st.sampled_from(self.settled))
        before = self.policy.predict(*PROBE)
        with pytest.raises(kb.InputError, match=f"decision {key} (was told already|has expired)"):
            self.policy.tell(key, 1.0)
        with pytest.raises(kb.InputError, match=f"decision {key} (was told already|has expired)"):
            self.policy.expire(key)
        np.testing.assert_array_equal(self.policy.predict(*PROBE).mean, before.mean)

    @precondition(lambda self: len(self.waiting) > 1)
    @rule()
    def a_batch_with_a_bad_reward_changes_nothing(self):
        before = self.policy.predict(*PROBE)
        with pytest.raises(kb.InputError, match="reward"):
            self.policy.tell_many([self.waiting[0].id, self.waiting[-1].id], [1.0, np.nan])
        np.testing.assert_array_equal(self.policy.predict(*PROBE).mean, before.mean)

    @rule()
    def update(self):
        context = self.generator.random(1)
        decision = self.policy.select(context, self.generator.random((3, 1)))
        self.policy.update(context, decision.action, 0.25)
        self.told.append((decision, 0.25))

    @invariant()
    def nothing_is_lost(self):
        assert self.policy.pending == tuple(decision.id for decision in self.waiting)
        assert self.policy.round_index == len(self.told)

    def teardown(self):
        for decision in self.waiting:
            self.policy.expire(decision.id)
        if self.told:
            assert_direct(self.policy, self.told)


Stream.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestStream = Stream.TestCase


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)
def test_every_policy_takes_late_rewards(variant):
    policy = build(variant[0], **variant[1])
    waiting = [policy.ask(context, actions) for context, actions, _ in rounds(30)]
    assert policy.pending == tuple(range(30))
    assert policy.diagnostics().pending == 30
    for decision in waiting[::3]:
        policy.tell(decision.id, float(decision.action[0]))
    for decision in waiting[1::3]:
        policy.expire(decision.id)
    policy.tell_many([decision.id for decision in waiting[2::3]], [0.5] * 10)
    assert policy.pending == ()
    context, actions, _ = next(rounds(1, seed=5))
    assert 0 <= policy.select(context, actions).index < len(actions)


def test_a_burst_of_asks_explores_different_actions():
    policy = kb.ek_ucb(kb.Gaussian(0.1), regularization=0.01, seed=0)
    actions = np.linspace(0, 1, 8)[:, None]
    policy.update([0.5], actions[0], 0.2)
    asked = [policy.ask([0.5], actions) for _ in range(7)]
    assert len({decision.index for decision in asked}) == 7
    # select alone, without anticipation, would repeat itself
    assert len({decision.mean for decision in asked}) <= 7
    before = policy.predict([0.5], actions)
    policy.tell(asked[0].id, 5.0)
    after = policy.predict([0.5], actions)
    assert after.mean[asked[0].index] > before.mean[asked[0].index] + 1.0
    np.testing.assert_allclose(after.std, before.std, rtol=0, atol=1e-9)


def test_what_is_no_open_decision():
    policy = kb.ek_ucb(kb.Gaussian(0.1), seed=0)
    decision = policy.ask([0.5], [[0.1], [0.2]])
    for verb in (lambda key: policy.tell(key, 1.0), policy.expire):
        with pytest.raises(kb.InputError, match=r"never asked for; ask has issued 1 ids"):
            verb(1)
        with pytest.raises(kb.InputError, match=r"expected the id of a decision, got None"):
            verb(policy.select([0.5], [[0.1]]).id)
    with pytest.raises(kb.InputError, match="appears twice"):
        policy.tell_many([decision.id, decision.id], [1.0, 1.0])
    with pytest.raises(kb.InputError, match="expected length 1, got 2"):
        policy.tell_many([decision.id], [1.0, 1.0])
    assert policy.pending == (0,)


def test_decisions_older_than_one_expire_together():
    asked = kb.ek_ucb(kb.Gaussian(0.3), regularization=0.1, seed=0)
    decisions = [asked.ask([0.2 * number], PROBE[1]) for number in range(5)]
    asked.tell(decisions[1].id, 1.0)
    assert asked.expire_before(decisions[3].id) == (decisions[0].id, decisions[2].id)
    assert asked.pending == (decisions[3].id, decisions[4].id)
    assert asked.expire_before(decisions[1].id) == ()
    with pytest.raises(kb.InputError, match="expire_before: decision 5 was never asked for"):
        asked.expire_before(5)
    assert len(asked.pending) == 2


def test_a_kernel_that_fails_expires_no_decision():
    class Failing:
        answers = float("inf")

        def __call__(self, X, Y=None):
            self.answers -= 1
            if self.answers < 0:
                raise RuntimeError("kernel failed")
            return kb.Gaussian(0.2)(X, Y)

        def diag(self, X):
            return np.ones(len(X))

    kernel = Failing()
    asked = kb.ek_ucb(kernel, seed=0)
    decisions = [asked.ask([0.2 * number], PROBE[1][:, :1]) for number in range(5)]
    kernel.answers = 0
    with pytest.raises(RuntimeError, match="kernel failed"):
        asked.expire_before(decisions[3].id)
    assert asked.pending == (0, 1, 2, 3, 4)
    kernel.answers = float("inf")
    assert asked.expire_before(decisions[3].id) == (0, 1, 2)


def test_a_decision_goes_into_a_log_and_comes_back():
    asked = kb.thompson_sampling(kb.Gaussian(0.3), seed=0)
    decision = asked.ask([0.2, 0.4], PROBE[1])
    kept = json.loads(json.dumps(decision.to_dict()))
    arrays = {name: np.array(kept.pop(name)) for name in ("action", "context")}
    again = kb.Decision(**kept, **arrays)
    np.testing.assert_array_equal(again.action, decision.action)
    np.testing.assert_array_equal(again.context, [0.2, 0.4])
    assert (again.index, again.propensity, again.id) == (decision.index, decision.propensity, 0)
    assert again.upper_bound == decision.upper_bound


def test_old_decisions_are_known_to_be_settled_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(policy_module, "REMEMBERED", 5)
    policy = kb.uniform(seed=0)
    for _ in range(12):
        policy.tell(policy.ask([0.5], [[0.1], [0.2]]).id, 1.0)
    assert len(policy._state.fates) == 5
    with pytest.raises(kb.InputError, match="decision 3 was settled more than 5 decisions ago"):
        policy.tell(3, 1.0)


@pytest.mark.parametrize("history", ["all", "none"])
def test_pending_decisions_are_saved(tmp_path, history):
    policy = kb.ek_ucb(kb.Gaussian(0.3), dictionary=kb.Kors(history=history), seed=0)
    generator = np.random.default_rng(0)
    waiting = [policy.ask(generator.random(1), generator.random((5, 1))) for _ in range(40)]
    for decision in waiting[::2]:
        policy.tell(decision.id, reward_of(decision))
    policy.save(tmp_path / "policy.kb")
    resumed = kb.load(tmp_path / "policy.kb")
    offer = generator.random(1), generator.random((5, 1))
    for decision in waiting[1::2]:
        policy.tell(decision.id, reward_of(decision))
        resumed.tell(decision.id, reward_of(decision))
        one, other = policy.select(*offer), resumed.select(*offer)
        assert (one.index, one.upper_bound) == (other.index, other.upper_bound)
    with pytest.raises(kb.InputError, match="was told already"):
        resumed.tell(waiting[0].id, 0.0)


def test_a_decision_of_another_policy_is_refused():
    policy, other = (kb.ek_ucb(kb.Gaussian(0.3), seed=0) for _ in range(2))
    mine, theirs = policy.ask([0.1], [[0.2], [0.4]]), other.ask([0.7], [[0.2], [0.4]])
    assert mine.id == theirs.id == 0
    for call in (
        lambda: policy.tell(theirs, 1.0),
        lambda: policy.tell_many([theirs], [1.0]),
        lambda: policy.expire(theirs),
    ):
        with pytest.raises(kb.InputError, match="policy that made it"):
            call()
    assert policy.pending == (0,)
    with pytest.raises(kb.InputError, match="one of select"):
        policy.tell(policy.select([0.1], [[0.2]]), 1.0)
    policy.tell(mine, 1.0)
    assert (policy.round_index, policy.pending) == (1, ())


def test_a_named_decision_of_another_policy_is_refused():
    features = kb.Features({"age": kb.Numeric()}, actions=["red", "blue"])
    policy, other = (kb.ek_ucb(kb.Gaussian(0.3), features=features, seed=0) for _ in range(2))
    mine, theirs = policy.ask({"age": 3}), other.ask({"age": 5})
    with pytest.raises(kb.InputError, match="policy that made it"):
        policy.tell(theirs, 1.0)
    policy.tell_many([mine], [1.0])
    assert policy.round_index == 1


def test_decisions_of_several_columns_may_be_compared_and_searched_for():
    policy = kb.thompson_sampling(kb.Gaussian(0.3), seed=0)
    waiting = [policy.ask([0.1, 0.2 * number], np.eye(3)) for number in range(3)]
    assert [decision == waiting[1] for decision in waiting] == [False, True, False]
    assert waiting[0] == kb.Decision(**{name: getattr(waiting[0], name) for name in waiting[0].to_dict()})
    assert waiting[0] != waiting[0].to_dict()
    waiting.remove(waiting[1])
    assert [decision.id for decision in waiting] == [0, 2]


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)
def test_every_policy_refuses_decisions_of_others_and_takes_or_refuses_weights(variant):
    policy, other = (build(variant[0], **variant[1]) for _ in range(2))
    own, foreign = policy.ask([0.1, 0.2], [[0.3]]), other.ask([0.4, 0.2], [[0.3]])
    assert own.id == foreign.id
    for settle in (lambda: policy.tell(foreign, 1.0), lambda: policy.expire(foreign)):
        with pytest.raises(kb.InputError, match="of this policy is another one"):
            settle()
    assert policy.pending == (own.id,)
    if isinstance(policy.model, kb.posterior.Posterior):
        policy.tell(own, 0.5, weight=2.0)
    else:
        with pytest.raises(kb.InputError, match=r"weight: .* leave weight= and noise_variance= out"):
            policy.tell(own, 0.5, weight=2.0)
        assert policy.pending == (own.id,)
        policy.tell(own, 0.5)
    assert (policy.pending, policy.round_index) == ((), 1)
