"""What happens in a loop, as events of a log."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

# decision: an action was chosen. activation: a deferred decision was played after all. reward: what it earned, or what
# a silent decision is learned with. expiry: nothing will be learned from it. late: a reward after that, kept but not
# learned.
Kind: TypeAlias = Literal["decision", "activation", "reward", "expiry", "late"]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a loop. There is at most one of each kind for a decision.

    Attributes:
        kind: of event.
        decision: the id of the decision.
        body: the rest, as JSON has it.
        time: in seconds since 1970; never before that of an earlier event of the loop.
        number: its place in the loop's log, from 1 without a gap; 0 until it is appended.
    """

    kind: Kind
    decision: str
    body: dict[str, Any]
    time: float = 0.0
    number: int = 0

    def at(self, number: int, time: float) -> Event:
        """Return the event with its place in the log and its time."""
        return replace(self, number=number, time=time)


def encode(body: dict[str, Any]) -> str:
    """Return a body as JSON that every database takes: ASCII, without NaN."""
    return json.dumps(body, allow_nan=False, separators=(",", ":"))
