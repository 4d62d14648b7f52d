"""A policy of a user's own: a model, one hook, and the defaults of the others."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest
from test_policy_contract import rounds

import kernel_bandits as kb
from kernel_bandits.policy import Choice, Policy
from kernel_bandits.posterior.base import Model

ACTIONS = np.linspace(0, 1, 4)[:, None]


@kb.register
class Notes(Model):
    """Keeps what it is given."""

    fails_at = ()

    def __init__(self, learned=()):
        self.notes = learned

    def learned(self, points, rewards, weights=None, evaluated=None):
        assert weights is None
        if set(rewards.tolist()) & set(self.fails_at):
            raise RuntimeError("it fails")
        given = zip(points.tolist(), rewards.tolist(), strict=True)
        return Notes((*self.notes, *((tuple(point), reward, evaluated) for point, reward in given)))


@kb.register
class Recorder(kb.Policy):
    """Chooses the largest last column."""

    def __init__(self, seed=0):
        super().__init__(Notes(), np.random.default_rng(seed))

    def choose(self, points):
        row = self.argmax(points[:, -1])
        return Choice(row, mean=float(points[row, -1]), computed=("computed", float(points[row, 0])))


@pytest.fixture
def policy():
    return Recorder()


def test_a_choice_is_passed_back_with_its_point(policy):
    decision = policy.select([0.5], ACTIONS)
    assert (decision.index, decision.mean, decision.std, decision.propensity) == (3, 1.0, 0.0, None)
    policy.update([0.5], decision.action, 2.0)
    assert policy.model.notes == (((0.5, 1.0), 2.0, ("computed", 0.5)),)


CHANGES = {
    "update": lambda policy: policy.update([0.1], [0.1], 0.0),
    "update_many": lambda policy: policy.update_many([[0.1]], [[0.1]], [0.0]),
    "ask": lambda policy: policy.ask([0.5], ACTIONS),
    "tell": lambda policy: policy.tell(policy.pending[0], 0.0),
    "expire": lambda policy: policy.expire(policy.pending[0]),
    "select": lambda policy: policy.select([0.2], ACTIONS),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_choice_is_not_passed_back_after(change, policy):
    policy.ask([0.9], ACTIONS)
    decision = policy.select([0.5], ACTIONS)
    CHANGES[change](policy)
    policy.update([0.5], decision.action, 2.0)
    assert policy.model.notes[-1] == ((0.5, 1.0), 2.0, None)


UNCHANGING = {
    "select_many": lambda policy: policy.select_many([[0.1], [0.2]], ACTIONS),
    "diagnostics": lambda policy: policy.diagnostics(),
    "preview": lambda policy: policy.preview([0.2], ACTIONS),
    "a bad update": lambda policy: policy.update([0.1], [0.1], np.nan),
    "a bad id": lambda policy: policy.tell(7, 1.0),
    "a bad select": lambda policy: policy.select([np.nan], ACTIONS),
}


@pytest.mark.parametrize("call", UNCHANGING)
def test_a_choice_is_still_passed_back_after(call, policy):
    policy.update([0.1], [0.1], 0.0)
    decision = policy.select([0.5], ACTIONS)
    with pytest.raises(kb.InputError) if "bad" in call else nullcontext():
        UNCHANGING[call](policy)
    policy.update([0.5], decision.action, 2.0)
    assert policy.model.notes[-1] == ((0.5, 1.0), 2.0, ("computed", 0.5))


def test_an_update_that_fails_may_be_tried_again(policy, monkeypatch):
    decision = policy.select([0.5], ACTIONS)
    before = pickle.dumps(policy)
    with monkeypatch.context() as patch:
        patch.setattr(Notes, "fails_at", (2.0,))
        with pytest.raises(RuntimeError, match="it fails"):
            policy.update([0.5], decision.action, 2.0)
    assert pickle.dumps(policy) == before
    policy.update([0.5], decision.action, 2.0)
    assert policy.model.notes == (((0.5, 1.0), 2.0, ("computed", 0.5)),)
    assert policy.round_index == 1


def test_late_rewards_are_learned_when_they_arrive(policy, monkeypatch):
    first, second, third = (policy.ask([x], ACTIONS) for x in (0.1, 0.2, 0.3))
    assert policy.model.notes == ()
    with monkeypatch.context() as patch:
        patch.setattr(Notes, "fails_at", (5.0,))
        with pytest.raises(RuntimeError, match="it fails"):
            policy.tell(second.id, 5.0)
        with pytest.raises(RuntimeError, match="it fails"):
            policy.tell_many([third.id, second.id], [6.0, 5.0])
    assert policy.pending == (0, 1, 2)
    policy.tell(second.id, 5.0)
    policy.expire(first.id)
    policy.tell(third.id, 6.0)
    assert policy.model.notes == (((0.2, 1.0), 5.0, None), ((0.3, 1.0), 6.0, None))
    assert policy.round_index == 2
    assert policy.pending == ()


def test_a_log_with_a_reward_that_fails_is_not_learned_at_all(policy, monkeypatch):
    monkeypatch.setattr(Notes, "fails_at", (-1.0,))
    with pytest.raises(RuntimeError, match="it fails"):
        policy.update_many([[0.1]] * 4, [[0.1]] * 4, [1.0, 1.0, -1.0, 1.0])
    assert (policy.round_index, policy.model.notes) == (0, ())


def test_many_rounds_are_chosen_one_by_one(policy):
    contexts = np.array([[0.1], [0.2]])
    one_by_one = [policy.select(context, ACTIONS) for context in contexts]
    for decision, same in zip(policy.select_many(contexts, ACTIONS), one_by_one, strict=True):
        np.testing.assert_array_equal(decision.action, same.action)
        np.testing.assert_array_equal(decision.context, same.context)
        assert (decision.index, decision.mean) == (same.index, same.mean)


def test_it_runs_and_is_diagnosed_and_saved(policy, tmp_path):
    result = kb.run(policy, kb.environments.Chessboard(), horizon=20, seed=0)
    assert len(result.regret) == 20
    decision = policy.ask([0.5], ACTIONS)
    policy.save(tmp_path / "policy.kb")
    resumed = kb.load(tmp_path / "policy.kb")
    resumed.tell(decision.id, 1.0)
    assert resumed.model.notes == (*policy.model.notes, ((0.5, 1.0), 1.0, None))
    diagnostics = policy.diagnostics()
    assert (diagnostics.observations, diagnostics.pending, diagnostics.dictionary_size) == (20, 1, 0)
    assert diagnostics.kernel is None


def test_a_box_needs_a_shortlist(policy):
    with pytest.raises(kb.InputError, match=r"Recorder chooses among finitely many .*box\.sample"):
        policy.select([0.5], kb.Box(0.0, 1.0))

    class Cornered(Recorder):
        def shortlist(self, context, box):
            return np.array([box.low, box.high + 0.0 * context])

    decision = Cornered().select([0.5], kb.Box(0.0, 2.0))
    assert (decision.index, decision.action.tolist()) == (-1, [2.0])


class Greedy(Policy):
    """Does not return its evaluation, so the update evaluates the point again."""

    def choose(self, points):
        prediction = self.posterior.predict(points)
        row = self.argmax(prediction.mean)
        return Choice(row, prediction.mean[row], prediction.std[row], prediction.mean[row])


def test_a_rule_need_not_return_what_it_computed():
    greedy = Greedy(kb.posterior.ExactPosterior(kb.Gaussian(0.3), 0.1), np.random.default_rng(0))
    same = kb.k_ucb(kb.Gaussian(0.3), regularization=0.1, seed=0)
    for context, actions, noise in rounds(15):
        decision = greedy.select(context, actions)
        greedy.update(context, decision.action, noise)
        same.update(context, decision.action, noise)
    np.testing.assert_array_equal(greedy.predict(context, actions).mean, same.predict(context, actions).mean)
