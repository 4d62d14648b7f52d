"""Threads that share a policy: none corrupts it, and a lock makes it right."""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from faults.injection import fingerprint, is_locked
from faults.scenes import CALLS, CONTEXTS, KERNEL, LOG, OFFERS, POLICIES, constrained, played, table

import kernel_bandits as kb

ROUNDS, THREADS = 30, 4


@pytest.fixture
def eager_switches():
    """Let the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(call, rounds):
    """Call from several threads, each with a generator of its own, and raise what any of them raises."""

    def calls(thread):
        generator = np.random.default_rng(thread)
        for _ in range(rounds):
            call(thread, generator)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(calls, range(THREADS)))


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "lin_ucb", "thompson_sampling", "uniform"])
def test_a_lock_around_rounds_makes_them_whole(name):
    policy, lock = POLICIES[name](), threading.Lock()

    def play(thread, generator):
        del thread
        context, actions = generator.random(2), generator.random((4, 1))
        with lock:
            decision = policy.select(context, actions)
            # of the same moment, so the update finds what was computed
            assert policy.round_index == 0 or policy._last[0] is policy._state
            policy.update(context, decision.action, float(generator.random()))

    together(play, ROUNDS)
    assert policy.round_index == ROUNDS * THREADS


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "lin_ucb"])
def test_without_a_lock_every_reward_is_learned_once(name):
    policy = POLICIES[name]()
    policy.update([0.1, 0.2], [0.3], 0.5)
    together(lambda _, own: policy.update(own.random(2), own.random(1), float(own.random())), ROUNDS)
    assert policy.round_index == 1 + ROUNDS * THREADS
    found = policy.predict([0.1, 0.2], [[0.3]]).mean
    assert np.isfinite(found).all()
    if name == "k_ucb":
        # the model is that of the points it has learned, and they are those that were told
        told = [np.random.default_rng(thread).random(4 * ROUNDS).reshape(-1, 4) for thread in range(THREADS)]
        rows = np.sort(np.vstack([[[0.1, 0.2, 0.3, 0.5]], *told]), axis=0)
        points, rewards = policy.observed_points, policy.posterior.observed_rewards
        np.testing.assert_array_equal(np.sort(np.column_stack([points, rewards]), axis=0), rows)
        again = POLICIES[name]()
        again.update_many(points[:, :2], points[:, 2:], rewards)
        np.testing.assert_allclose(found, again.predict([0.1, 0.2], [[0.3]]).mean, atol=1e-8)


class Intruder(kb.kernels.Kernel):
    """A kernel that changes the policy that evaluates it, once, as a signal handler might."""

    def __init__(self):
        self.intrude = None

    def __call__(self, X, Y=None):
        intrude, self.intrude = self.intrude, None
        if intrude is not None:
            intrude()
        return KERNEL(X, Y)

    def diag(self, X):
        return KERNEL.diag(X)


COMPUTING = ["select", "ask", "ask while pending", "update", "update while pending", "update_many", "tell", "expire"]
INTRUSIONS = {
    "update": lambda p: p.update(CONTEXTS[72], [0.9], 0.25),
    "ask": lambda p: p.ask(CONTEXTS[72], OFFERS[72]),
    "update_many": lambda p: p.update_many(*LOG),
}


def assert_alike(policy, other):
    np.testing.assert_array_equal(policy.observed_points, other.observed_points)
    assert policy.pending == other.pending
    prediction, expected = (one.predict(CONTEXTS[75], OFFERS[75]) for one in (policy, other))
    np.testing.assert_allclose(prediction.mean, expected.mean, atol=1e-12)
    np.testing.assert_allclose(prediction.std, expected.std, atol=1e-12)


@pytest.mark.parametrize("intrusion", INTRUSIONS)
@pytest.mark.parametrize("call", COMPUTING)
@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb], ids=["ek_ucb", "k_ucb"])
def test_a_call_under_which_the_model_changes_is_refused_and_changes_nothing(make, call, intrusion):
    prepare, pending, act = CALLS[call]
    assert prepare is None
    kernel = Intruder()
    policy, alone = played(lambda: make(kernel, seed=0), 15, pending), played(lambda: make(KERNEL, seed=0), 15, pending)
    done = []
    kernel.intrude = lambda: (done.append(None), INTRUSIONS[intrusion](policy))
    try:
        act(policy)
    except kb.UnavailableError:
        assert done
        # a choice is taken back with all that came after its beginning; otherwise what came between is kept
        if call.split()[0] not in ("select", "ask"):
            INTRUSIONS[intrusion](alone)
        assert_alike(policy, alone)
        assert not is_locked(policy)
    else:
        # a call that evaluates no kernel is not interrupted
        assert not done


def test_an_error_after_a_change_leaves_the_change():
    kernel = Intruder()
    policy, alone = (played(lambda used=used: kb.ek_ucb(used, seed=0), 15) for used in (kernel, KERNEL))

    def change_and_fail():
        INTRUSIONS["update"](policy)
        raise IndexError("half of a change")

    kernel.intrude = change_and_fail
    with pytest.raises(IndexError, match="half of a change"):
        policy.update(CONTEXTS[70], OFFERS[70, 0], 0.5)
    INTRUSIONS["update"](alone)
    assert_alike(policy, alone)


READS = {
    "predict": lambda p, _: p.predict(CONTEXTS[70], OFFERS[70]).mean,
    "explain": lambda p, decision: p.explain(decision).contributions,
    "predict_outputs": lambda p, _: p.predict_outputs(CONTEXTS[70], OFFERS[70])["pressure"].mean,
}


@pytest.mark.parametrize("read", READS)
def test_a_policy_that_changes_while_it_is_read_is_read_as_it_was(read):
    kernel = Intruder()
    policy = kb.ek_ucb(kernel, seed=0)
    policy.constrained({"pressure": kb.Below(8.0, kernel)}, safe_actions=[[0.1]], if_unsafe="flag")
    for context, offered in zip(CONTEXTS[:10], OFFERS[:10], strict=True):
        policy.update(context, offered[0], 0.5, outputs={"pressure": 5.0})
    decision = policy.select(CONTEXTS[70], OFFERS[70])
    before = READS[read](policy, decision)
    kernel.intrude = lambda: policy.update(CONTEXTS[72], [0.9], 0.25, outputs={"pressure": 7.0})
    np.testing.assert_array_equal(READS[read](policy, decision), before)
    assert policy.round_index == 11
    assert not np.array_equal(READS[read](policy, decision), before)


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "table"])
def test_a_policy_that_is_saved_while_another_thread_changes_it_is_saved_whole(name, tmp_path):
    policy = table() if name == "table" else played(POLICIES[name], 15)
    first = policy.round_index

    def change():
        for number in range(40):
            if name == "table":
                policy.update({"age": 0.5, "town": str(number)}, "red", 0.5)
            else:
                policy.update(CONTEXTS[number], OFFERS[number, 0], 0.5)

    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(change)
        while not changes.done():
            policy.save(tmp_path / "policy.kb")
            # plays a round or two, and refuses a policy that cannot
            loaded = kb.load(tmp_path / "policy.kb")
            assert first <= loaded.round_index == len(loaded.observed_points)
            if name == "table":
                assert {"Graz", "Linz", *map(str, range(loaded.round_index - first))} <= {*loaded.codec.levels["town"]}
    changes.result()


@pytest.mark.usefixtures("eager_switches")
def test_threads_that_share_a_table_without_a_lock_learn_levels_with_their_rewards():
    policy, towns = table(), {"Graz", "Linz"}

    def update(thread, generator):
        town = f"{thread}-{generator.integers(10**9)}"
        towns.add(town)
        policy.update({"age": 0.5, "town": town}, f"arm {len(town) % 3}", 0.5)

    together(update, ROUNDS // 2)
    assert policy.round_index == 3 + THREADS * (ROUNDS // 2)
    assert {*policy.codec.levels["town"]} == towns
    assert np.isfinite(policy.predict({"age": 0.5, "town": "Graz"}).mean).all()


async def rounds(policy, number, lock):
    """Play rounds, letting other coroutines go on wherever a service would wait."""
    generator = np.random.default_rng(number)
    for _ in range(10):
        async with lock:
            decision = policy.select(generator.random(2), generator.random((4, 1)))
            await asyncio.sleep(0)
            policy.update(decision.context, decision.action, float(generator.random()))
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["ek_ucb", "ek_ucb, learned", "thompson_sampling"])
def test_coroutines_with_a_policy_each_play_as_if_they_were_alone(name):
    async def play_all(policies):
        await asyncio.gather(*(rounds(policy, n, asyncio.Lock()) for n, policy in enumerate(policies)))

    async def alone(policy, number):
        await rounds(policy, number, asyncio.Lock())

    policies = [POLICIES[name]() for _ in range(4)]
    asyncio.run(play_all(policies))
    for number, policy in enumerate(policies):
        expected = POLICIES[name]()
        asyncio.run(alone(expected, number))
        assert fingerprint(policy) == fingerprint(expected)


@pytest.mark.parametrize("name", ["ek_ucb", "ek_ucb, learned", "lin_ucb"])
def test_coroutines_that_share_a_policy_with_a_lock_learn_every_round(name):
    policy = POLICIES[name]()

    async def play_all():
        lock = asyncio.Lock()
        await asyncio.gather(*(rounds(policy, number, lock) for number in range(4)))

    asyncio.run(play_all())
    assert policy.round_index == 40


def test_coroutines_without_a_lock_may_ask_and_tell_in_any_order():
    policy = POLICIES["ek_ucb"]()

    async def ask_and_tell(number):
        generator = np.random.default_rng(number)
        for _ in range(5):
            decision = policy.ask(generator.random(2), generator.random((4, 1)))
            for _ in range(generator.integers(4)):
                await asyncio.sleep(0)
            policy.tell(decision, float(generator.random()))

    async def play_all():
        await asyncio.gather(*(ask_and_tell(number) for number in range(6)))

    asyncio.run(play_all())
    assert (policy.round_index, policy.pending) == (30, ())


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", [*POLICIES, "constrained"])
def test_threads_without_a_lock_lose_no_reward(name):
    is_guarded = name == "constrained"
    policy = constrained() if is_guarded else POLICIES[name]()
    measured = {"outputs": {"pressure": 5.0}} if is_guarded else {}

    def play(thread, generator):
        del thread
        context, actions, reward = generator.random(2), generator.random((3, 1)), float(generator.random())
        policy.update(context, actions[0], reward, **measured)
        policy.update(context, policy.select(context, actions).action, reward, **measured)
        policy.tell(policy.ask(context, actions), reward, **measured)

    together(play, ROUNDS // 6)
    assert (policy.round_index, policy.pending) == (THREADS * 3 * (ROUNDS // 6), ())
    decision = policy.select([0.1, 0.2], [[0.3], [0.4]])
    assert np.isfinite([decision.mean, decision.std]).all()


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("seed", range(5))
def test_threads_that_ask_first_lose_no_decision(seed):
    # a first call looks at the columns, and starts the model anew for them
    policy, asked = kb.ek_ucb(seed=seed), []
    together(lambda _, own: asked.append(policy.ask([0.1, 0.2], own.random((3, 1)))), 5)
    assert sorted(decision.id for decision in asked) == list(range(5 * THREADS))
    for decision in asked:
        policy.tell(decision, 0.5)
    assert (policy.round_index, policy.pending) == (5 * THREADS, ())


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", ["uniform", "ek_ucb", "thompson_sampling"])
def test_threads_that_tell_one_decision_tell_it_once(name):
    policy, told = POLICIES[name](), []
    ids = [policy.ask(context, offered).id for context, offered in zip(CONTEXTS[:20], OFFERS[:20], strict=True)]

    def tell_all(_thread, _generator):
        for id in ids:
            with suppress(kb.InputError):
                policy.tell(id, 0.5)
                told.append(id)

    together(tell_all, 1)
    assert sorted(told) == ids
    assert (policy.round_index, policy.pending) == (len(ids), ())
