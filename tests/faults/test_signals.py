"""Real signals while a policy learns."""

import copy
import signal
import threading
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from faults.injection import fingerprint, is_locked
from faults.scenes import CONTEXTS, OFFERS, POLICIES, played

QUICK, MANY = 6, 2000


class Signal(BaseException):
    """What the handler raises."""


def interrupted(call, delay):
    """Call, with a signal that comes after some seconds; whether it came in time."""

    def raises(*_):
        raise Signal

    before = signal.signal(signal.SIGALRM, raises)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
        call()
        return False
    except Signal:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def torn(name, repetitions):
    """How many of the policies that were interrupted in an update are in neither of the two states."""
    policy, generator, count = played(POLICIES[name], 20), np.random.default_rng(0), 0
    after = copy.deepcopy(policy)
    start = time.perf_counter()
    after.update(CONTEXTS[70], OFFERS[70, 0], 0.5)
    duration, states = time.perf_counter() - start, {fingerprint(policy), fingerprint(after)}
    for _ in range(repetitions):
        victim = copy.deepcopy(policy)
        # the signal may come after the call, before the timer is stopped
        with suppress(Signal):
            interrupted(partial(victim.update, CONTEXTS[70], OFFERS[70, 0], 0.5), generator.random() * duration)
        count += fingerprint(victim) not in states or is_locked(victim)
    return count


pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread(),
    reason="signals with a timer need the main thread of a Unix process",
)


@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "ek_ucb, learned", "lin_ucb"])
def test_a_signal_leaves_the_state_before_or_after(name):
    assert torn(name, QUICK) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_many_signals(name):
    assert torn(name, MANY // 10) == 0
