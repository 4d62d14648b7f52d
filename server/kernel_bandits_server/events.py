"""What happens in a loop, as events of a log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

# The most events that are taken into account together.
BLOCK = 1024

# decision: an action was chosen. activation: a deferred decision was played after all. reward: what it earned, or what
# a silent decision is learned with. expiry: nothing will be learned from it. late: a reward after that, kept but not
# learned. imported: a round of another log. change: an arm added or retired, or another share for the challenger.
Kind: TypeAlias = Literal["decision", "activation", "reward", "expiry", "late", "imported", "change"]


class Event(NamedTuple):
    """One event of a loop. There is at most one of each kind for a decision."""

    kind: Kind  # of event
    decision: str  # the id of the decision; of a change, one that no decision can have
    body: dict[str, Any]  # the rest, as JSON has it
    time: float = 0.0  # in seconds since 1970; never before that of an earlier event of the loop
    number: int = 0  # its place in the loop's log, from 1 without a gap; 0 until it is appended


def block_of(event: Event) -> tuple[float, int]:
    """Return what the events of one block share: the time of their transaction, and their place in the log.

    A policy learns a block at the speed of matrix products, which round otherwise than one event after the other. So
    that every process has the same bits, what a block is depends on the log alone.
    """
    return event.time, event.number // BLOCK


def blocks(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield events in order, block by block."""
    if events and block_of(events[0]) == block_of(events[-1]):
        # neither times nor numbers ever fall
        yield list(events)
        return
    for _, block in groupby(events, block_of):
        yield list(block)


def whole_blocks(events: Sequence[Event], limit: int) -> Sequence[Event]:
    """Return events that were read up to a limit, above ``BLOCK``, without a last block that may be cut off."""
    if len(events) < limit:
        return events
    cut, end = block_of(events[-1]), len(events)
    while end and block_of(events[end - 1]) == cut:
        end -= 1
    return events[:end]


def encode(body: Any) -> str:
    """Return a body whose numbers are finite as JSON that every database takes: ASCII."""
    text = _encoder.encode(body)
    return text.decode() if text.isascii() else json.dumps(_decoder.decode(text), separators=(",", ":"))


def _as_list(value: Any) -> Any:
    """Return an array, or a number of NumPy, as JSON has it."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder, _decoder = msgspec.json.Encoder(enc_hook=_as_list), msgspec.json.Decoder()
decode = _decoder.decode
