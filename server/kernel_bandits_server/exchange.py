"""A request that was let in and its reply, as the process of HTTP and that of the models exchange them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits_server.bodies import parse_json
from kernel_bandits_server.commands import RefusedError
from kernel_bandits_server.store import StoreError

_log = logging.getLogger("kernel_bandits_server")
JSON = b"application/json"


@dataclass(slots=True)
class Call:
    """A request that is allowed.

    Attributes:
        path: the parts of the path by name.
        query: of the address.
        content: the body as it came.
        caller: the name of the key; the process of the models does not need it.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    content: bytes = b""
    caller: str = ""

    def json(self) -> Any:
        """Return what the body holds; refuse anything but strict JSON."""
        return parse_json(self.content)


@dataclass(slots=True)
class Reply:
    """What an operation returns.

    Attributes:
        content: JSON, or bytes, or an iterator over bytes that are sent as they come.
        status: of HTTP.
        type: of the content.
        headers: others.
    """

    content: Any
    status: int = 200
    type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


def error_reply(reason: Exception) -> Reply:
    """Return what a caller sees of an error: a code and a sentence, never a trace."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if isinstance(reason, RefusedError):
        status, code, message = reason.status, reason.code, str(reason)
        if status == 401:
            headers = ((b"www-authenticate", b"Bearer"),)
        if status in (429, 503):
            headers = ((b"retry-after", b"1"),)
    elif isinstance(reason, StoreError):
        status, code, message = 503, "database", f"{reason} Repeat the request later."
        headers = ((b"retry-after", b"1"),)
    elif isinstance(reason, InputError):
        status, code, message = 422, "invalid", str(reason)
    elif isinstance(reason, KernelBanditsError):
        status, code, message = 422, "refused", str(reason)
    else:
        _log.exception("an operation failed", exc_info=reason)
        status, code, message = 500, "internal", "the service failed; the reason is in its log."
    return Reply({"error": {"code": code, "message": message[:1000]}}, status, headers=headers)
