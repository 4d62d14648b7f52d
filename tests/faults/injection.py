"""Interrupts at any line of the library, and the state of a policy as one number."""

import hashlib
import json
import sys
from linecache import getline
from pathlib import Path

import numpy as np

import kernel_bandits as kb
from kernel_bandits.persistence import Encoder

LIBRARY = str(Path(kb.__file__).parent)


class Injected(BaseException):
    """Like KeyboardInterrupt, not an Exception; unlike it, nobody else raises it."""


def fingerprint(policy) -> str:
    """Everything that ``policy.save`` would write of the state, bit for bit."""
    encoder = Encoder()
    tree = encoder.encode(policy)
    digest = hashlib.sha256(json.dumps(tree).encode())
    for block in encoder.arrays:
        digest.update(f"{block.dtype} {block.shape}".encode() + block.tobytes())
    return digest.hexdigest()


def run_with_interrupt(call, line: int | None, error: type[BaseException] = Injected) -> int:
    """Call, and raise from the given line of the library on, counted as they are executed; None for never.

    Returns the number of lines executed.
    """
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        del argument
        file = frame.f_code.co_filename
        if not file.startswith(LIBRARY):
            return None
        if event == "line":
            count += 1
            if line is not None and count > line and not is_uninterruptible(getline(file, frame.f_lineno)):
                raise error
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except error:
        return count
    finally:
        sys.settrace(before)
    return count


def is_uninterruptible(line: str) -> bool:
    """Whether no signal can come at a line: on the way out of a lock, or where nothing is done."""
    return "with self._lock" in line or line.strip() == "try:"


def lines_of(make, act) -> int:
    """How many lines of the library a call executes."""
    policy = make()
    return run_with_interrupt(lambda: act(policy), None)


def some_lines(make, act, count: int) -> list[int]:
    """Some lines of a call, chosen at random; the same each time."""
    lines = lines_of(make, act)
    return np.random.default_rng(lines).choice(lines, min(count, lines), replace=False).tolist()


def torn_lines(make, act, lines, error: type[BaseException] = Injected) -> list[int]:
    """The lines at which an interrupt leaves neither the state before a call nor the one after it.

    Nor may it leave a lock that is held, draws that a later refusal takes back, or a call that cannot be tried again.
    """
    twin, torn = make(), []
    before = {fingerprint(twin), fingerprint(with_features(make()))}
    act(twin)
    after = fingerprint(twin)
    for line in lines:
        victim = make()
        run_with_interrupt(lambda: act(victim), line, error)  # noqa: B023 (called at once)
        left = fingerprint(victim)
        refuse(victim)
        is_whole = left in {*before, after} and fingerprint(victim) == left and not is_locked(victim)
        if is_whole and left in before:
            act(victim)
            is_whole = fingerprint(victim) == after
        if not is_whole:
            torn.append(line)
    return torn


def with_features(policy):
    """The policy once it has drawn its random features, which it does by their seed when they are first used."""
    if not policy.round_index and not isinstance(policy, kb.tables.TablePolicy):
        for posterior in policy.posteriors[:1]:
            posterior.evaluate(np.zeros((1, 3)))
    return policy


def refuse(policy) -> None:
    """Offer what no policy takes."""
    try:
        policy.select(None, None)
    except kb.InputError:
        return
    raise AssertionError("a context that is none was taken")


def is_locked(policy) -> bool:
    """Whether a call has kept the lock of a policy."""
    return getattr(policy, "inner", policy)._lock._is_owned()
