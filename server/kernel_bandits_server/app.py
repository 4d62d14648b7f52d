"""The ASGI application: every operation of the service, and the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_bandits.errors import needs
from kernel_bandits_server.commands import RefusedError
from kernel_bandits_server.endpoint import Endpoint, Front, Operation
from kernel_bandits_server.exchange import Call, Reply, error_reply
from kernel_bandits_server.keys import Keys, RateLimit
from kernel_bandits_server.link import Link
from kernel_bandits_server.local import LocalOnly
from kernel_bandits_server.metrics import Metrics
from kernel_bandits_server.openapi import document
from kernel_bandits_server.operations import operations

with needs("Starlette", "kernel-bandits-server"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

PAGE = Path(__file__).with_name("page")
# Nothing on the page comes from elsewhere, and no script stands in the page itself.
_POLICY = b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"  # noqa: E501 (one header)
_FILES = {
    "": ("index.html", b"text/html; charset=utf-8"),
    "page.js": ("page.js", b"text/javascript; charset=utf-8"),
    "charts.js": ("charts.js", b"text/javascript; charset=utf-8"),
    "page.css": ("page.css", b"text/css; charset=utf-8"),
}


def build_app(link: Link, keys: Keys | None = None) -> Starlette:
    """Return the application of a service; it takes requests once the process behind ``link`` was launched."""
    # without keys everything is allowed, but for other machines and the pages of others
    outside = [] if keys else [Middleware(LocalOnly)]
    front = Front(link, keys or Keys(), RateLimit(link.settings.limits.requests_per_second), Metrics())
    known = operations()
    description = json.dumps(document(known, list(link.settings.loops))).encode()

    async def openapi(_: Front, __: Call) -> Reply:
        return Reply(description)

    public = [
        Operation("GET", "/openapi.json", "openapi", None, openapi, "This document"),
        *(Operation("GET", f"/{path}", f"page {path}", None, _file(*file), "") for path, file in _FILES.items()),
    ]
    routes = [Route(one.path, Endpoint(one, front), methods=[one.method]) for one in (*known, *public)]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await link.attach()
        try:
            yield
        finally:
            await link.stop()

    handlers: Any = {HTTPException: _http_error}
    return Starlette(routes=routes, middleware=outside, lifespan=lifespan, exception_handlers=handlers)


def _file(name: str, kind: bytes) -> Any:
    content = (PAGE / name).read_bytes()

    async def send(_: Front, __: Call) -> Reply:
        return Reply(content, 200, kind, ((b"content-security-policy", _POLICY),))

    return send


async def _http_error(_: Request, reason: Exception) -> Response:
    assert isinstance(reason, HTTPException)
    code = {404: "unknown_path", 405: "wrong_method"}.get(reason.status_code, "refused")
    reply = error_reply(RefusedError(reason.status_code, code, str(reason.detail)))
    content = json.dumps(reply.content).encode()
    headers = {"x-content-type-options": "nosniff", **(reason.headers or {})}
    return Response(content, reason.status_code, headers, "application/json")
