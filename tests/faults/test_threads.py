"""Threads that share a policy: none corrupts it, and a lock makes it right."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from faults.scenes import POLICIES

import kernel_bandits as kb

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


class Unguarded:
    """A lock that locks nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        return False


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

    def update(thread):
        generator, done = np.random.default_rng(thread), 0
        for _ in range(ROUNDS):
            try:
                policy.update(generator.random(2), generator.random(1), float(generator.random()))
                done += 1
            except (kb.KernelBanditsError, ValueError, IndexError):
                # refused, or the model grew between two looks at it; nothing was changed
                continue
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        done = sum(pool.map(update, range(THREADS)))
    assert policy.round_index == done + 1
    found = policy.predict([0.1, 0.2], [[0.3]]).mean
    assert np.isfinite(found).all()
    if name == "k_ucb":
        # the model is that of the points it has learned
        again, points = POLICIES[name](), policy.observed_points
        again.update_many(points[:, :2], points[:, 2:], policy.posterior.observed_rewards)
        np.testing.assert_allclose(found, again.predict([0.1, 0.2], [[0.3]]).mean, atol=1e-8)
