"""Frames on a socket between the process of HTTP and that of the models: many requests or replies in one write.

Bodies cross as the bytes that came from a caller, or go to one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kernel_bandits.errors import needs
from kernel_bandits_server.bodies import to_json
from kernel_bandits_server.exchange import JSON, Call, Reply

with needs("orjson", "kernel-bandits-server"):
    import orjson

# The number of the request, the status of a reply, and the lengths of the two parts that follow.
_HEADER = struct.Struct("<IHII")
LARGEST_NUMBER = 2**32 - 1
# Bytes to read at once.
CHUNK = 2**18


class Frame(NamedTuple):
    """One request or reply.

    Attributes:
        number: of the request, by which its reply is known.
        status: of the reply.
        details: JSON: name, path and query of a request; type and headers of a reply that is not plain JSON.
        content: the body.
    """

    number: int
    status: int
    details: bytes
    content: bytes


class Frames:
    """Takes bytes as they arrive, and returns the frames that are complete."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size, self._needed = 0, _HEADER.size

    def take(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete."""
        found: list[Frame] = []
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return found
        if len(self._parts) > 1:
            data = b"".join(self._parts)
        start, end = 0, len(data)
        self._needed = _HEADER.size
        while end - start >= _HEADER.size:
            number, status, middle, length = _HEADER.unpack_from(data, start)
            middle += start + _HEADER.size
            after = middle + length
            if after > end:
                self._needed = after - start
                break
            found.append(Frame(number, status, data[start + _HEADER.size : middle], data[middle:after]))
            start = after
        self._parts = [data[start:]] if start < end else []
        self._size = end - start
        return found


def request_frame(number: int, name: str, call: Call) -> bytes:
    """Return the frame of a request."""
    details = orjson.dumps((name, call.path, call.query))
    return _HEADER.pack(number, 0, len(details), len(call.content)) + details + call.content


def read_request(frame: Frame) -> tuple[str, Call]:
    """Return the name of an operation and its request."""
    name, path, query = orjson.loads(frame.details)
    return name, Call(path, query, frame.content)


def reply_frame(number: int, reply: Reply) -> bytes:
    """Return the frame of a reply; its content is encoded if it is not bytes."""
    content, details = reply.content, b""
    if not isinstance(content, bytes):
        content = b"" if content is None else to_json(content)
    if reply.headers or reply.type != JSON:
        details = orjson.dumps([one.decode("latin-1") for one in (reply.type, *sum(reply.headers, ()))])
    return _HEADER.pack(number, reply.status, len(details), len(content)) + details + content


def read_reply(frame: Frame) -> Reply:
    """Return the reply of a frame; its content is bytes."""
    if not frame.details:
        return Reply(frame.content, frame.status)
    kind, *others = (one.encode("latin-1") for one in orjson.loads(frame.details))
    return Reply(frame.content, frame.status, kind, tuple(zip(others[::2], others[1::2], strict=True)))
