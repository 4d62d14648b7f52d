"""Changes of state that an interrupt cannot tear.

A change is prepared first: every value is computed and nothing is written. What is left are steps, plain assignments
and products in place, which :func:`carry_out` runs one after the other from C. The interpreter delivers a signal
between two byte codes, and there are none between two steps: Ctrl-C finds all of them done, or none.
"""

from collections import deque
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from itertools import repeat, starmap
from operator import call
from typing import Any, TypeAlias

# A function and its arguments. The function is written in C, such as ``setattr``, ``operator.setitem`` or ``dict.pop``,
# or may be repeated: an interrupt can enter a Python function, which is then called once more.
Step: TypeAlias = tuple[Any, ...]
Steps: TypeAlias = list[Step]
# An interrupt in the middle of a commit is unlikely, and one in each of several repetitions does not happen.
REPETITIONS = 10
# The names of the slots of classes that were asked for.
_slots: dict[type, tuple[str, ...]] = {}


def carry_out(steps: Sequence[Step]) -> None:
    """Run all steps, or none if the first raises an error.

    A later step fails only for want of memory, or if an interrupt enters a Python function. It is then repeated, the
    others follow, and the error is raised in the end.
    """
    done: list[Any] = []
    try:
        # a list grows by each result before the next step begins, so its length is the number of steps done
        done.extend(starmap(call, steps))
    except BaseException:
        if done:
            _roll_forward(steps[len(done) :])
        raise


def _roll_forward(steps: Sequence[Step]) -> None:
    """Run all steps, through errors."""
    for _ in range(REPETITIONS):
        done: list[Any] = []
        try:
            done.extend(starmap(call, steps))
            return
        except BaseException:
            steps = steps[len(done) :]


def finish(work: Callable[[], None]) -> None:
    """Call what must not be left out; if an interrupt enters it, call it again before the interrupt is raised."""
    try:
        work()
    except Exception:
        raise
    except BaseException:
        work()
        raise


def attributes(thing: object) -> dict[str, Any]:
    """Return the attributes that make up an object's state, those in slots included."""
    state, cls = dict(getattr(thing, "__dict__", {})), type(thing)
    if cls not in _slots:
        _slots[cls] = _slots_of(cls)
    for name in _slots[cls]:
        if hasattr(thing, name):
            state[name] = getattr(thing, name)
    return state


def _slots_of(cls: type) -> tuple[str, ...]:
    """Return the names of all slots of a class, its own first."""
    names: list[str] = []
    for one in cls.__mro__:
        slots = one.__dict__.get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def replace_state(thing: object, other: object) -> Step:
    """Return the step that gives an object all attributes another one of its class then has.

    Objects that every round looks at have slots: once ``vars`` was asked for an object without them, Python 3.11 takes
    several times as long to look up its attributes.
    """
    return take_over(thing, other, list(attributes(other)))


def drop_step(mapping: MutableMapping[Any, Any], keys: Iterable[Any]) -> Step:
    """Return the step that takes keys out of a dict."""
    return deque, map(mapping.pop, keys, repeat(None)), 0


def take_over(thing: object, other: object, names: Sequence[str]) -> Step:
    """Return the step that gives an object these attributes of another one."""
    values = map(getattr, repeat(other), names)
    return deque, map(setattr, repeat(thing), names, values), 0
