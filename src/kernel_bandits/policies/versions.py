"""The version of a policy's model, by which threads that change it or read it meanwhile are found."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import numpy as np

from kernel_bandits.commit import Step, Steps, attributes, carry_out
from kernel_bandits.errors import UnavailableError
from kernel_bandits.policies.hooks import Hooks

T = TypeVar("T")


class Versioned(Hooks):
    """Every change of the model has a number: a call under which another thread changes the model is refused.

    Args:
        generator: as of :class:`Hooks`.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator)
        # The version of the model, alone in a dict: a commit takes it out first and puts the next one in last, so that
        # of two threads that change the model at once one is refused.
        self._versions: dict[int, None] = {0: None}

    def _version(self) -> int:
        """Return the version of the model."""
        for version in self._versions:
            return version
        raise changed_meanwhile()

    def _blame_others(self, version: int, reason: BaseException) -> None:
        """Raise if a call failed while another changed the model under it: it may have seen half of the change."""
        is_own = isinstance(reason, (MemoryError, UnavailableError)) or not isinstance(reason, Exception)
        if not is_own and version not in self._versions:
            raise changed_meanwhile() from reason

    @contextmanager
    def _reading(self) -> Iterator[Callable[[], None]]:
        """Raise if another thread changes the model meanwhile; yields what raises if it has been changed so far."""
        version = self._version()

        def require_unchanged() -> None:
            if version not in self._versions:
                raise changed_meanwhile()

        try:
            yield require_unchanged
        except Exception as reason:
            self._blame_others(version, reason)
            raise
        require_unchanged()

    def _commit(self, version: int, planned: Steps | None, steps: Sequence[Step]) -> None:
        """Carry out the steps of the model, then those of the policy, the last of which stores the next version."""
        try:
            carry_out([(self._versions.pop, version), *(planned or ()), *steps])
        except KeyError as reason:
            if reason.args != (version,):
                raise
            raise changed_meanwhile() from None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self._reading():
            return deep_copy(self, memo)

    def __getstate__(self) -> object:
        # for pickle and copy.copy, neither of which can look at the version after it has read the last part
        return object.__getstate__(copy.deepcopy(self))


def deep_copy(thing: T, memo: dict[int, Any]) -> T:
    """Return a copy of an object, all of its attributes copied, as ``copy.deepcopy`` makes it by default."""
    twin = object.__new__(type(thing))
    memo[id(thing)] = twin
    for name, value in attributes(thing).items():
        setattr(twin, name, copy.deepcopy(value, memo))
    return twin


def changed_meanwhile() -> UnavailableError:
    """Return the error of a call under which another thread changed the model."""
    return UnavailableError(
        "The policy was changed meanwhile by another thread, and this call has changed nothing. A policy serves one "
        "thread at a time: hold a threading.Lock around its calls, or let one thread or a service own it."
    )
