"""One operation of the service as an ASGI application: key, limits, body, handler, response, log and metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from kernel_bandits_server.bodies import parse_json, to_json
from kernel_bandits_server.commands import RefusedError
from kernel_bandits_server.exchange import Call, Reply, error_reply
from kernel_bandits_server.keys import Keys, RateLimit
from kernel_bandits_server.link import Link
from kernel_bandits_server.metrics import Metrics

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
_log = logging.getLogger("kernel_bandits_server")
# A body that is too long by up to this factor is read to its end before it is refused.
DRAINED = 4
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True)
class Front:
    """What all operations share in the process of HTTP.

    Attributes:
        link: to the process of the models.
        keys: that let callers in.
        rate: how often.
        metrics: what is counted.
    """

    link: Link
    keys: Keys
    rate: RateLimit
    metrics: Metrics


Handler: TypeAlias = Callable[[Front, Call], Awaitable[Reply]]


@dataclass(frozen=True)
class Operation:
    """An operation, as the router and the OpenAPI document see it.

    Attributes:
        method: of HTTP.
        path: with ``{parts}``.
        name: in metrics, logs and the document.
        role: that the caller's key needs; None for everybody.
        handler: carries it out in this process; or the name under which the process of the models does.
        summary: one line.
        request: the schema of the body; None for no body.
        responses: schemas by status, beside the errors that all operations have.
        parameters: of the query.
    """

    method: str
    path: str
    name: str
    role: str | None
    handler: Handler | str
    summary: str
    request: dict[str, Any] | None = None
    responses: dict[int, Any] = field(default_factory=dict)
    parameters: tuple[dict[str, Any], ...] = ()


class Endpoint:
    """Carries out one operation.

    Args:
        operation: what to do.
        front: what is checked and counted, and who is asked.
    """

    def __init__(self, operation: Operation, front: Front) -> None:
        self._operation = operation
        self._front = front
        self._limits = front.link.settings.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        started = time.perf_counter()
        caller = ""
        try:
            call = await self._admit(scope, receive)
            caller = call.caller
            handler = self._operation.handler
            if isinstance(handler, str):
                reply = await self._front.link.ask(handler, call)
            else:
                reply = await handler(self._front, call)
        except Exception as reason:
            reply = error_reply(reason)
        seconds = time.perf_counter() - started
        self._front.metrics.observe(self._operation.name, reply.status, seconds)
        refused = reply.status >= 400 and self._operation.name != "ready"
        if refused or _log.isEnabledFor(logging.DEBUG):
            log_request(self._operation.name, scope, reply, caller, seconds)
        await send_reply(receive, send, reply)

    async def _admit(self, scope: Scope, receive: Receive) -> Call:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        operation, front = self._operation, self._front
        caller = "anyone" if operation.role is None else front.keys.require(operation.role, headers)
        if operation.role is not None:
            front.rate.take(caller)
        content = await read_body(receive, headers, self._limits.body_bytes)
        return Call(scope.get("path_params", {}), _query(scope), content, caller)


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
    if reply.status >= 400:
        found = parse_json(reply.content) if isinstance(reply.content, bytes) else reply.content
        details["code"] = found["error"]["code"]
    level = logging.ERROR if reply.status >= 500 else logging.WARNING if reply.status >= 400 else logging.DEBUG
    _log.log(level, "request", extra=details)
