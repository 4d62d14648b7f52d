"""Threads that share a policy: none corrupts it, and a lock makes it right."""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from faults.injection import fingerprint
from faults.scenes import CALLS, CONTEXTS, KERNEL, LOG, NEWER, OFFERS, POLICIES, constrained, played, table

import kernel_bandits as kb
from kernel_bandits.numerics.blas_threads import one_thread

ROUNDS, THREADS = 30, 4


@pytest.fixture
def eager_switches():
    """Let the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def play(policy, thread, guard):
    """Play rounds; return how many were refused."""
    generator, refused = np.random.default_rng(thread), 0
    for _ in range(ROUNDS):
        context, actions = generator.random(2), generator.random((4, 1))
        try:
            with guard:
                decision = policy.select(context, actions)
                policy.update(context, decision.action, float(generator.random()))
        except kb.UnavailableError:
            refused += 1
    return refused


def served(call, rounds):
    """Call from several threads, each with a generator of its own; return how many calls were not refused."""

    def calls(thread):
        generator, done = np.random.default_rng(thread), 0
        for _ in range(rounds):
            with suppress(kb.UnavailableError):
                call(thread, generator)
                done += 1
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(calls, range(THREADS)))


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "lin_ucb", "thompson_sampling", "uniform"])
def test_a_lock_makes_threads_safe(name):
    policy, lock = POLICIES[name](), threading.Lock()
    with ThreadPoolExecutor(THREADS) as pool:
        refused = list(pool.map(lambda thread: play(policy, thread, lock), range(THREADS)))
    assert refused == [0] * THREADS
    assert policy.round_index == ROUNDS * THREADS


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "lin_ucb"])
def test_without_a_lock_what_is_learned_is_counted(name):
    policy = POLICIES[name]()
    policy.update([0.1, 0.2], [0.3], 0.5)

    def update(thread, generator):
        del thread
        policy.update(generator.random(2), generator.random(1), float(generator.random()))

    done = served(update, ROUNDS)
    assert policy.round_index == 1 + done
    found = policy.predict([0.1, 0.2], [[0.3]]).mean
    assert np.isfinite(found).all()
    if name == "k_ucb":
        # the model is that of the points it has learned
        again, points = POLICIES[name](), policy.observed_points
        again.update_many(points[:, :2], points[:, 2:], policy.posterior.observed_rewards)
        np.testing.assert_allclose(found, again.predict([0.1, 0.2], [[0.3]]).mean, atol=1e-8)


class Intruder(kb.kernels.Kernel):
    """A kernel that changes the policy that evaluates it, once, as another thread might."""

    def __init__(self):
        self.intrude = None

    def __call__(self, X, Y=None):
        intrude, self.intrude = self.intrude, None
        if intrude is not None:
            intrude()
        return KERNEL(X, Y)

    def diag(self, X):
        return KERNEL.diag(X)


MUTATING = ["update", "update while pending", "update_many", "ask", "ask while pending", "tell", "expire"]
INTRUSIONS = {
    "update": lambda p: p.update(CONTEXTS[72], [0.9], 0.25),
    "ask": lambda p: p.ask(CONTEXTS[72], OFFERS[72]),
    "update_many": lambda p: p.update_many(*LOG),
}


@pytest.mark.parametrize("intrusion", INTRUSIONS)
@pytest.mark.parametrize("call", MUTATING)
@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb], ids=["ek_ucb", "k_ucb"])
def test_a_call_under_which_the_model_changes_is_refused_and_changes_nothing(make, call, intrusion):
    prepare, pending, act, _ = CALLS[call]
    kernel = Intruder()
    policy = played(lambda: make(kernel, seed=0), 15, pending)
    assert prepare is None
    done = []
    kernel.intrude = lambda: (done.append(None), INTRUSIONS[intrusion](policy))
    try:
        act(policy)
    except kb.UnavailableError:
        assert done
        # only what came between is learned; all but the coins of the call that was refused
        alone = played(lambda: make(KERNEL, seed=0), 15, pending)
        INTRUSIONS[intrusion](alone)
        np.testing.assert_array_equal(policy.observed_points, alone.observed_points)
        assert policy.pending == alone.pending
        prediction, expected = (one.predict(CONTEXTS[75], OFFERS[75]) for one in (policy, alone))
        np.testing.assert_allclose(prediction.mean, expected.mean, atol=1e-12)
        np.testing.assert_allclose(prediction.std, expected.std, atol=1e-12)
    else:
        # a call that evaluates no kernel is not interrupted
        assert not done


READS = {
    "predict": lambda p, _: p.predict(CONTEXTS[70], OFFERS[70]),
    "explain": lambda p, decision: p.explain(decision),
    "predict_outputs": lambda p, _: p.predict_outputs(CONTEXTS[70], OFFERS[70]),
}


@pytest.mark.parametrize("read", READS)
def test_a_model_that_changes_while_it_is_read_is_not_read(read):
    kernel = Intruder()
    policy = kb.ek_ucb(kernel, seed=0)
    policy.constrained({"pressure": kb.Below(8.0, kernel)}, safe_actions=[[0.1]], if_unsafe="flag")
    for context, offered in zip(CONTEXTS[:10], OFFERS[:10], strict=True):
        policy.update(context, offered[0], 0.5, outputs={"pressure": 5.0})
    decision = policy.select(CONTEXTS[70], OFFERS[70])
    kernel.intrude = lambda: policy.update(CONTEXTS[72], [0.9], 0.25, outputs={})
    with pytest.raises(kb.UnavailableError, match="another thread"):
        READS[read](policy, decision)
    assert policy.round_index == 11


def test_two_changes_are_not_taken_for_none():
    kernel = Intruder()
    policy = played(lambda: kb.ek_ucb(kernel, seed=0), 15)

    def change_twice():
        policy.update(CONTEXTS[72], [0.9], 0.25)
        policy.ask(CONTEXTS[73], OFFERS[73])

    kernel.intrude = change_twice
    with pytest.raises(kb.UnavailableError, match="another thread"):
        policy.predict(CONTEXTS[70], OFFERS[70])


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "table"])
def test_a_policy_that_is_saved_while_another_thread_changes_it_is_saved_whole_or_not_at_all(name, tmp_path):
    policy = table() if name == "table" else played(POLICIES[name], 15)
    saved = threading.Event()

    def change():
        for number in range(300):
            if saved.is_set():
                return
            with suppress(kb.UnavailableError):
                if name == "table":
                    policy.update({"age": 0.5, "town": str(number)}, "red", 0.5)
                else:
                    policy.update(CONTEXTS[number % 80], OFFERS[number % 80, 0], 0.5)

    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(change)
        while not changes.done() and not saved.is_set():
            with suppress(kb.UnavailableError):
                policy.save(tmp_path / "policy.kb")
                # plays a round or two, and refuses a policy that cannot
                kb.load(tmp_path / "policy.kb")
                if policy.round_index > 60:
                    saved.set()
    changes.result()


@pytest.mark.parametrize("libraries", [[], [(lambda: 1, lambda _threads: None)]], ids=["one thread", "threads"])
def test_an_error_of_a_model_that_changes_underneath_is_blamed_on_the_change(libraries, monkeypatch):
    monkeypatch.setattr(one_thread, "libraries", libraries)
    kernel = Intruder()
    policy = played(lambda: kb.ek_ucb(kernel, seed=0), 15)

    def change_and_fail():
        policy.update(CONTEXTS[72], [0.9], 0.25)
        raise IndexError("half of a change")

    kernel.intrude = change_and_fail
    with pytest.raises(kb.UnavailableError, match="another thread"):
        policy.update(CONTEXTS[70], OFFERS[70, 0], 0.5)
    assert policy.round_index == 16


def test_select_under_which_the_model_changes_decides_or_is_refused():
    kernel = Intruder()
    policy = played(lambda: kb.ek_ucb(kernel, seed=0), 15)
    kernel.intrude = lambda: policy.update(CONTEXTS[72], [0.9], 0.25)
    with suppress(kb.UnavailableError):
        policy.select(CONTEXTS[70], OFFERS[70])
    # the choice is not used for an update, since the model is another one
    policy.update(CONTEXTS[70], OFFERS[70, 0], 0.5)
    again = kb.k_ucb(KERNEL, seed=0)
    assert policy.round_index == 17
    again.update_many(policy.observed_points[:, :2], policy.observed_points[:, 2:], policy.posterior.observed_rewards)
    exact, found = again.predict(CONTEXTS[75], OFFERS[75]), policy.predict(CONTEXTS[75], OFFERS[75])
    np.testing.assert_allclose(found.mean, exact.mean, atol=0.2)


@pytest.mark.usefixtures("eager_switches")
def test_threads_that_share_a_table_without_a_lock_learn_levels_with_their_rewards():
    policy = table()

    def update(thread, generator):
        number = int(generator.integers(10**9))
        policy.update({"age": 0.5, "town": f"{thread}-{number}"}, f"arm {number % 3}", 0.5)

    done = served(update, ROUNDS // 2)
    assert policy.round_index == 3 + done
    assert len(policy.codec.levels["town"]) == 2 + done
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
    async def together(policies):
        await asyncio.gather(*(rounds(policy, n, asyncio.Lock()) for n, policy in enumerate(policies)))

    async def alone(policy, number):
        await rounds(policy, number, asyncio.Lock())

    policies = [POLICIES[name]() for _ in range(4)]
    asyncio.run(together(policies))
    for number, policy in enumerate(policies):
        expected = POLICIES[name]()
        asyncio.run(alone(expected, number))
        assert fingerprint(policy) == fingerprint(expected)


@pytest.mark.parametrize("name", ["ek_ucb", "ek_ucb, learned", "lin_ucb"])
def test_coroutines_that_share_a_policy_with_a_lock_learn_every_round(name):
    policy = POLICIES[name]()

    async def together():
        lock = asyncio.Lock()
        await asyncio.gather(*(rounds(policy, number, lock) for number in range(4)))

    asyncio.run(together())
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

    async def together():
        await asyncio.gather(*(ask_and_tell(number) for number in range(6)))

    asyncio.run(together())
    assert (policy.round_index, policy.pending) == (30, ())


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", [*NEWER, "constrained"])
def test_threads_without_a_lock_are_refused_or_served(name):
    is_guarded = name == "constrained"
    policy = constrained() if is_guarded else NEWER[name]()
    measured = {"outputs": {"pressure": 5.0}} if is_guarded else {}

    def play(thread):
        generator, learned = np.random.default_rng(thread), 0
        for number in range(ROUNDS // 2):
            context, actions, reward = generator.random(2), generator.random((3, 1)), float(generator.random())
            with suppress(kb.UnavailableError):
                if number % 3 == 0:
                    policy.update(context, actions[0], reward, **measured)
                elif number % 3 == 1:
                    policy.update(context, policy.select(context, actions).action, reward, **measured)
                else:
                    policy.tell(policy.ask(context, actions), reward, **measured)
                learned += 1
        return learned

    with ThreadPoolExecutor(THREADS) as pool:
        learned = sum(pool.map(play, range(THREADS)))
    assert policy.round_index == learned
    decision = policy.select([0.1, 0.2], [[0.3], [0.4]])
    assert np.isfinite([decision.mean, decision.std]).all()


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("seed", range(5))
def test_threads_that_ask_first_lose_no_decision(seed):
    # a first call looks at the columns, and starts the model anew for them
    policy = kb.ek_ucb(seed=seed)

    def ask(thread):
        asked = []
        for offered in np.random.default_rng(thread).random((5, 3, 1)):
            with suppress(kb.UnavailableError):
                asked.append(policy.ask([0.1, 0.2], offered))
        return asked

    with ThreadPoolExecutor(THREADS) as pool:
        asked = [decision for each in pool.map(ask, range(THREADS)) for decision in each]
    for decision in asked:
        policy.tell(decision, 0.5)
    assert (policy.round_index, policy.pending) == (len(asked), ())


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("name", ["uniform", "ek_ucb", "thompson_sampling"])
def test_threads_that_tell_one_decision_tell_it_once(name):
    policy = POLICIES[name]()
    ids = [policy.ask(context, offered).id for context, offered in zip(CONTEXTS[:20], OFFERS[:20], strict=True)]

    def tell_all(_):
        told = 0
        for id in ids:
            with suppress(kb.KernelBanditsError):
                policy.tell(id, 0.5)
                told += 1
        return told

    with ThreadPoolExecutor(THREADS) as pool:
        told = sum(pool.map(tell_all, range(THREADS)))
    assert policy.round_index == told
    assert policy.round_index + len(policy.pending) == len(ids)
