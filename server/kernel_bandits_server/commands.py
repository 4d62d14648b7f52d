"""What callers ask of a loop, and how it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernel_bandits.errors import KernelBanditsError
from kernel_bandits_server.messages import DecisionRequest

if TYPE_CHECKING:
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


@dataclass(slots=True)
class Command:
    """A request to a loop; ``result`` or ``error`` is set once it is carried out, and ``done`` is called then."""

    result: Any = field(default=None, kw_only=True)
    error: Exception | None = field(default=None, kw_only=True)
    done: Callable[[], None] | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class Decide(Command):
    """Choose an action.

    Attributes:
        id: of the decision; the caller's, or a fresh one.
        own_id: whether the caller gave the id, so that it may be a repetition.
        request: what the caller asks for.
        other: the probability of each arm in the loop that the control group follows.
        draft: the body of its event.
    """

    id: str
    own_id: bool
    request: DecisionRequest
    other: Mapping[Any, float] | None = None
    draft: dict[str, Any] | None = None


@dataclass(slots=True)
class Reward(Command):
    """Say what decisions earned; each is refused or taken on its own."""

    rewards: Sequence[tuple[str, float]]


@dataclass(slots=True)
class Activate(Command):
    """Say that a deferred decision was played."""

    id: str


@dataclass(slots=True)
class Expire(Command):
    """Give up on the reward of a decision."""

    id: str


@dataclass(slots=True)
class Import(Command):
    """Learn rounds of another log; all of them or none. Each has an ``id``, and is taken once."""

    rows: Sequence[dict[str, Any]]


@dataclass(slots=True)
class Change(Command):
    """Change a loop while it runs.

    Attributes:
        body: ``arm`` and ``features`` of an arm that is added or described; or ``retire`` and ``pending``; or the
            ``share`` of the challenger.
    """

    body: dict[str, Any]


@dataclass(slots=True)
class Query(Command):
    """Compute something from the state of the loop; writes nothing."""

    function: Callable[[Replica], Any]
