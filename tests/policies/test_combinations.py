"""Everything at once: a learned kernel, a box, a constraint, forgetting, late rewards, and a file in the middle."""

import threading

import numpy as np
import pytest

import kernel_bandits as kb

BOX = kb.Box([150.0, 1.0], [250.0, 5.0], names=["temperature", "pressure"])
RULES = [None, kb.Discount(16.0), kb.Window(24), kb.Restart(limit=4.0)]


def build(forgetting):
    policy = kb.ek_ucb(forgetting=forgetting, seed=0)
    # a kernel of sensor, temperature and pressure, in their units
    kernel = 4.0 * kb.Matern([3.0, 40.0, 2.0])
    limit = kb.Below(2.0, kernel, regularization=0.01)
    return policy.constrained({"heat": limit}, safe_actions=[[160.0, 1.5]])


def measured(context, action, t):
    fractions = BOX.fractions(action[None, :])[0]
    peak = 0.3 if t < 30 else 0.7
    reward = 50.0 + 40.0 * np.exp(-((fractions - peak) ** 2).sum() / 0.1) + 0.1 * context[0]
    return float(reward), {"heat": float(3.0 * fractions.mean() + 0.1 * context[0])}


def play(policy, generator, start, stop, late):
    """Rewards come in another order than decisions were made in; some never do."""
    actions = []
    for t in range(start, stop):
        decision = policy.ask(generator.standard_normal(1), BOX)
        late.append((t, decision))
        actions.append(decision.action)
        if len(late) > 5:
            when, past = late.pop(int(generator.integers(4)))
            if when % 11 == 0:
                policy.expire(past.id)
            else:
                reward, outputs = measured(past.context, past.action, when)
                policy.tell(past.id, reward, outputs={} if when % 7 == 0 else outputs)
    return np.array(actions)


@pytest.mark.parametrize("forgetting", RULES, ids=["nothing", "discount", "window", "restart"])
def test_a_policy_from_a_file_goes_on_as_the_one_that_was_saved(forgetting, tmp_path):
    policy, generator, late = build(forgetting), np.random.default_rng(0), []
    first = play(policy, generator, 0, 40, late)
    assert BOX.contains(first).all()
    policy.save(tmp_path / "policy.kb")
    twin, other = kb.load(tmp_path / "policy.kb"), np.random.default_rng()
    other.bit_generator.state = generator.bit_generator.state
    assert twin.pending == policy.pending
    waiting = list(late)
    np.testing.assert_array_equal(play(policy, generator, 40, 55, late), play(twin, other, 40, 55, waiting))
    for mine, theirs in zip(
        policy.predict_outputs([0.3], BOX.sample(np.random.default_rng(1), 5)).values(),
        twin.predict_outputs([0.3], BOX.sample(np.random.default_rng(1), 5)).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(mine.mean, theirs.mean)
        np.testing.assert_array_equal(mine.std, theirs.std)


@pytest.mark.parametrize("forgetting", RULES[1:], ids=["discount", "window", "restart"])
def test_a_failed_reward_changes_nothing(forgetting):
    policy, generator, late = build(forgetting), np.random.default_rng(0), []
    play(policy, generator, 0, 20, late)
    where = BOX.sample(np.random.default_rng(1), 5)
    before = policy.predict([0.3], where), policy.predict_outputs([0.3], where)["heat"], policy.pending
    _, decision = late[0]
    for reward, outputs in ((np.nan, {"heat": 1.0}), (1.0, {"heat": np.nan}), (1.0, {"cold": 1.0}), (1.0, None)):
        with pytest.raises(kb.InputError):
            policy.tell(decision.id, reward, outputs=outputs)
    after = policy.predict([0.3], where), policy.predict_outputs([0.3], where)["heat"], policy.pending
    np.testing.assert_array_equal(before[0].mean, after[0].mean)
    np.testing.assert_array_equal(before[0].std, after[0].std)
    np.testing.assert_array_equal(before[1].mean, after[1].mean)
    assert before[2] == after[2]


def test_threads_share_a_policy_under_a_lock_while_it_is_saved(tmp_path):
    policy, lock, failures = build(kb.Discount(16.0)), threading.Lock(), []

    def reactor(seed):
        generator = np.random.default_rng(seed)
        try:
            for number in range(4):
                with lock:
                    batch = policy.ask_many(generator.standard_normal((2, 1)), BOX)
                for decision in batch:
                    reward, outputs = measured(decision.context, decision.action, 0)
                    with lock:
                        policy.tell(decision, reward, outputs=outputs, weight=2.0 if number % 2 else None)
                with lock:
                    policy.save(tmp_path / "policy.kb")
                    kb.load(tmp_path / "policy.kb")
        except Exception as reason:
            failures.append(reason)

    threads = [threading.Thread(target=reactor, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert policy.round_index == 24
    assert policy.pending == ()
    twin = kb.load(tmp_path / "policy.kb")
    where = BOX.sample(np.random.default_rng(1), 5)
    np.testing.assert_array_equal(twin.predict([0.3], where).mean, policy.predict([0.3], where).mean)


@pytest.mark.parametrize("forgetting", RULES, ids=["nothing", "discount", "window", "restart"])
def test_a_batch_in_one_context_plays_different_actions_that_are_all_allowed(forgetting):
    policy, generator = build(forgetting), np.random.default_rng(0)
    for _ in range(6):
        batch = policy.ask_many(generator.standard_normal((4, 1)), BOX)
        told = [measured(each.context, each.action, 0) for each in batch]
        heats = [outputs["heat"] for _, outputs in told]
        policy.tell_many(batch, [reward for reward, _ in told], outputs={"heat": heats})
    batch = policy.ask_many(np.zeros((4, 1)), BOX)
    actions = np.array([each.action for each in batch])
    assert len(np.unique(actions.round(6), axis=0)) == 4
    assert BOX.contains(actions).all()
    for each in batch:
        assert each.safe
        prediction = policy.predict_outputs(each.context, each.action[None, :])["heat"]
        assert prediction.mean[0] + 2.0 * prediction.std[0] <= 2.0 + 1e-9 or np.array_equal(each.action, [160.0, 1.5])
