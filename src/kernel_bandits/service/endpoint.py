"""One operation of the service as an ASGI application: key, limits, body, handler, response, log and metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.service.bodies import parse_json, to_json
from kernel_bandits.service.commands import RefusedError
from kernel_bandits.service.keys import Keys, RateLimit
from kernel_bandits.service.metrics import Metrics
from kernel_bandits.service.runtime import Runtime

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
_log = logging.getLogger("kernel_bandits.service")
# A body that is too long by up to this factor is read to its end before it is refused.
DRAINED = 4
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


@dataclass(slots=True)
class Call:
    """A request that is allowed.

    Attributes:
        runtime: of the service.
        path: the parts of the path by name.
        query: of the address.
        body: as JSON has it; None where the operation takes none.
        caller: the name of the key.
    """

    runtime: Runtime
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    caller: str


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
    type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


Handler: TypeAlias = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True)
class Operation:
    """An operation, as the router and the OpenAPI document see it.

    Attributes:
        method: of HTTP.
        path: with ``{parts}``.
        name: in metrics, logs and the document.
        role: that the caller's key needs; None for everybody.
        handler: carries it out.
        summary: one line.
        request: the schema of the body; None for no body.
        responses: schemas by status, beside the errors that all operations have.
        parameters: of the query.
    """

    method: str
    path: str
    name: str
    role: str | None
    handler: Handler
    summary: str
    request: dict[str, Any] | None = None
    responses: dict[int, Any] = field(default_factory=dict)
    parameters: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Guards:
    """What all operations share."""

    runtime: Runtime
    keys: Keys
    rate: RateLimit
    metrics: Metrics


class Endpoint:
    """Carries out one operation.

    Args:
        operation: what to do.
        guards: what is checked and counted.
    """

    def __init__(self, operation: Operation, guards: Guards) -> None:
        self._operation = operation
        self._guards = guards
        self._limits = guards.runtime.settings.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        started = time.perf_counter()
        caller = ""
        try:
            call = await self._admit(scope, receive)
            caller = call.caller
            reply = await self._operation.handler(call)
        except Exception as reason:
            reply = error_reply(reason)
        seconds = time.perf_counter() - started
        self._guards.metrics.observe(self._operation.name, reply.status, seconds)
        refused = reply.status >= 400 and self._operation.name != "ready"
        if refused or _log.isEnabledFor(logging.DEBUG):
            log_request(self._operation.name, scope, reply, caller, seconds)
        await send_reply(receive, send, reply)

    async def _admit(self, scope: Scope, receive: Receive) -> Call:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        operation, guards = self._operation, self._guards
        caller = "anyone" if operation.role is None else guards.keys.require(operation.role, headers)
        if operation.role is not None:
            guards.rate.take(caller)
        body = None
        content = await read_body(receive, headers, self._limits.body_bytes)
        if operation.request is not None:
            body = parse_json(content)
        return Call(guards.runtime, scope.get("path_params", {}), _query(scope), body, caller)


def _query(scope: Scope) -> dict[str, str]:
    text = scope.get("query_string", b"")
    if not text:
        return {}
    try:
        return dict(parse_qsl(text.decode("ascii"), max_num_fields=20))
    except ValueError as reason:
        raise RefusedError(400, "bad_query", "the query: expected at most 20 fields in ASCII.") from reason


async def read_body(receive: Receive, headers: Mapping[str, str], most: int) -> bytes:
    """Return the body of a request; refuse one that is too long without keeping it."""
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise _too_long(most)
    if int(length[:20]) > most:
        if int(length[:20]) <= DRAINED * most:
            await _drain(receive)
        raise _too_long(most)
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "disconnected", "the body ended early.")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_long(most)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_long(most: int) -> RefusedError:
    return RefusedError(413, "too_long", f"the body: expected at most {most} bytes.")


async def _drain(receive: Receive) -> None:
    """Read a body and drop it: a client that is still sending does not see the refusal."""
    while (message := await receive())["type"] != "http.disconnect" and message.get("more_body"):
        pass


def error_reply(reason: Exception) -> Reply:
    """Return what a caller sees of an error: a code and a sentence, never a trace."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if isinstance(reason, RefusedError):
        status, code, message = reason.status, reason.code, str(reason)
        if status == 401:
            headers = ((b"www-authenticate", b"Bearer"),)
        if status in (429, 503):
            headers = ((b"retry-after", b"1"),)
    elif isinstance(reason, InputError):
        status, code, message = 422, "invalid", str(reason)
    elif isinstance(reason, KernelBanditsError):
        status, code, message = 422, "refused", str(reason)
    else:
        _log.exception("an operation failed", exc_info=reason)
        status, code, message = 500, "internal", "the service failed; the reason is in its log."
    return Reply({"error": {"code": code, "message": message[:1000]}}, status, headers=headers)


async def send_reply(receive: Receive, send: Send, reply: Reply) -> None:
    """Send a reply; an iterator is sent as it comes, until its end or until the caller is gone."""
    content = reply.content
    headers = [(b"content-type", reply.type), *SAFE_HEADERS, *reply.headers]
    start = {"type": "http.response.start", "status": reply.status, "headers": headers}
    if not isinstance(content, AsyncIterator):
        if not isinstance(content, bytes):
            content = b"" if content is None else to_json(content)
        headers.append((b"content-length", str(len(content)).encode()))
        await send(start)
        await send({"type": "http.response.body", "body": content})
        return
    await send(start)
    # the body was read, so that the next message says that the caller is gone
    gone = asyncio.ensure_future(receive())
    try:
        async for part in content:
            if gone.done():
                return
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


def log_request(name: str, scope: Scope, reply: Reply, caller: str, seconds: float) -> None:
    """Write a request to the log: what was asked, by whom, and what came of it."""
    details: dict[str, Any] = {
        "operation": name,
        "status": reply.status,
        "key": caller,
        "client": (scope.get("client") or ("",))[0],
        "milliseconds": round(1000.0 * seconds, 2),
    }
    if isinstance(reply.content, dict) and "error" in reply.content:
        details["code"] = reply.content["error"]["code"]
    level = logging.ERROR if reply.status >= 500 else logging.WARNING if reply.status >= 400 else logging.DEBUG
    _log.log(level, "request", extra=details)
