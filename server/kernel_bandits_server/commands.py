"""What callers ask of a loop, and how it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits_server.replica import Replica


class RefusedError(KernelBanditsError):
    """A request that is not carried out, and changes nothing.

    Args:
        status: of HTTP.
        code: a word for programs.
        message: a sentence for people.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def unknown_loop() -> RefusedError:
    """Return the refusal of a request to a loop that is not there."""
    return RefusedError(404, "unknown_loop", "there is no loop of this name.")


@dataclass(slots=True)
class Command:
    """A request to a loop; ``result`` or ``error`` is set once it is carried out.

    Attributes:
        result: what became of it.
        error: why it was refused.
        done: to be called afterwards, where an event loop waits for it.
        number: of the request on the channel that waits for it, otherwise.
        view: the reply of that request to a result.
    """

    result: Any = field(default=None, kw_only=True)
    error: Exception | None = field(default=None, kw_only=True)
    done: Callable[[], None] | None = field(default=None, kw_only=True)
    number: int = field(default=0, kw_only=True)
    view: Callable[[Any], Any] | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class Unread(Command):
    """A request that is yet to be read, by the thread that carries it out: two would wait for the interpreter's lock.

    Attributes:
        read: returns the command; the request itself, with an error, if it is refused.
    """

    read: Callable[[Unread], Command]
    name: str
    call: Any


@dataclass(slots=True)
class Decide(Command):
    """Choose an action.

    Attributes:
        id: of the decision; the caller's, or a fresh one.
        own_id: whether the caller gave the id, so that it may be a repetition.
        context: a row.
        actions: the offer; None for all known arms.
        box: ranges of the columns of actions, in place of an offer.
        excluded: names of arms that may not be chosen.
        active: whether it is played at once.
        played: the caller's action, for a loop that only watches.
        has_played: whether there is such an action.
        probability: with which the caller chose it.
        draft: the body of its event.
        vector: the encoded context, if it is encoded like this for good.
    """

    id: str
    own_id: bool
    context: dict[str, Any]
    actions: Any = None
    box: dict[str, Any] | None = None
    excluded: tuple[Any, ...] = ()
    active: bool = True
    played: Any = None
    has_played: bool = False
    probability: float | None = None
    draft: dict[str, Any] | None = None
    vector: FloatArray | None = None


@dataclass(slots=True)
class Reward(Command):
    """Say what decisions earned; each is refused or taken on its own."""

    rewards: list[tuple[str, float]]


@dataclass(slots=True)
class Activate(Command):
    """Say that a deferred decision was played."""

    id: str


@dataclass(slots=True)
class Expire(Command):
    """Give up on the reward of a decision."""

    id: str


@dataclass(slots=True)
class Query(Command):
    """Compute something from the state of the loop; writes nothing."""

    function: Callable[[Replica], Any]
