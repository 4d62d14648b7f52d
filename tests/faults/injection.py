"""Interrupts at any line of the library, and the state of a policy as one number."""

import hashlib
import json
import sys
from pathlib import Path

import kernel_bandits as kb
from kernel_bandits.persistence import Encoder

LIBRARY = str(Path(kb.__file__).parent)


class Injected(BaseException):
    """Like KeyboardInterrupt, not an Exception; unlike it, nobody else raises it."""


def fingerprint(policy) -> str:
    """Everything that ``policy.save`` would write, bit for bit."""
    encoder = Encoder()
    tree = encoder.encode(policy, "policy")
    digest = hashlib.sha256(json.dumps(tree).encode())
    for block in encoder.arrays:
        digest.update(f"{block.dtype} {block.shape}".encode() + block.tobytes())
    return digest.hexdigest()


def run_with_interrupt(call, line: int | None, error: type[BaseException] = Injected) -> tuple[int, bool]:
    """Call, and raise at the given line of the library, counted as they are executed; None for never.

    Returns the number of lines executed, and whether the error was raised out of the call.
    """
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        del argument
        if not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        if event == "line":
            count += 1
            if count - 1 == line:
                raise error
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except error:
        return count, True
    finally:
        sys.settrace(before)
    return count, False
