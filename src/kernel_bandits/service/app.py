"""The ASGI application: every operation of the service, and the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_bandits.errors import needs
from kernel_bandits.service import api, personalizer
from kernel_bandits.service.commands import RefusedError
from kernel_bandits.service.endpoint import Call, Endpoint, Guards, Operation, Reply, error_reply
from kernel_bandits.service.keys import Keys, RateLimit
from kernel_bandits.service.local import LocalOnly
from kernel_bandits.service.metrics import CONTENT_TYPE, Metrics
from kernel_bandits.service.openapi import document, reference
from kernel_bandits.service.runtime import Runtime

with needs("Starlette", "service"):
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


LOOP = "/v1/loops/{loop}"
DECISION = LOOP + "/decisions/{id}"


def operations(metrics: Metrics) -> list[Operation]:
    """Return every operation; the most frequent first, since the router tries them in order."""
    return [
        *_deciding(),
        *_reading(),
        *_running(metrics),
        *_personalizer("/personalizer/v1.0", ""),
        *_personalizer("/{loop}/personalizer/v1.0", "_of_loop"),
    ]


def _deciding() -> list[Operation]:
    loop, one, outcome = LOOP, DECISION, {200: "Outcome"}
    return [
        Operation(
            "POST",
            f"{loop}/decisions",
            "decide",
            "decide",
            api.decide,
            "Choose an action",
            reference("DecisionRequest"),
            {201: "Decision", 200: "Decision"},
        ),
        Operation(
            "POST",
            f"{one}/reward",
            "reward",
            "reward",
            api.reward,
            "Say what a decision earned",
            reference("RewardRequest"),
            outcome,
        ),
        Operation(
            "POST",
            f"{loop}/rewards",
            "rewards",
            "reward",
            api.rewards,
            "Say what many decisions earned",
            reference("RewardsRequest"),
            {200: "Outcomes"},
        ),
        Operation(
            "POST",
            f"{one}/activate",
            "activate",
            "decide",
            api.activate,
            "Say that a deferred decision was played",
            None,
            outcome,
        ),
        Operation("POST", f"{one}/expire", "expire", "reward", api.expire, "Give up on a reward", None, outcome),
    ]


def _reading() -> list[Operation]:
    loop, one = LOOP, DECISION
    variable = {"name": "variable", "in": "query", "required": True, "schema": {"type": "string"}}
    after = {"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0}}
    rewarded = {"name": "rewarded", "in": "query", "schema": {"type": "boolean"}}
    lines = ("application/x-ndjson", {"type": "string"})
    stream = ("text/event-stream", {"type": "string"})
    return [
        Operation(
            "GET", one, "decision", "read", api.decision, "A decision and what became of it", None, {200: "Decision"}
        ),
        Operation(
            "GET",
            f"{one}/explanation",
            "explanation",
            "read",
            api.explanation,
            "Why the action looks good",
            None,
            {200: "Any"},
        ),
        Operation("GET", "/v1/loops", "loops", "read", api.loops, "The names of the loops", None, {200: "Any"}),
        Operation(
            "GET", loop, "loop", "read", api.loop, "Rewards, arms, model and warnings of a loop", None, {200: "Any"}
        ),
        Operation(
            "GET",
            f"{loop}/response",
            "response",
            "read",
            api.response,
            "Expected rewards over one variable",
            None,
            {200: "Any"},
            (variable,),
        ),
        Operation(
            "GET",
            f"{loop}/watch",
            "watch",
            "read",
            api.watch,
            "The state of a loop whenever it changes, and at times while decisions wait",
            None,
            {200: stream},
        ),
        Operation(
            "GET",
            f"{loop}/log",
            "log",
            "read",
            api.log,
            "Decisions and rewards, a JSON object a line",
            None,
            {200: lines},
            (after, rewarded),
        ),
        Operation(
            "GET", f"{loop}/digest", "digest", "administer", api.digest, "A digest of the state", None, {200: "Any"}
        ),
    ]


def _running(metrics: Metrics) -> list[Operation]:
    async def numbers(_: Call) -> Reply:
        return Reply(metrics.text(), 200, CONTENT_TYPE.encode())

    return [
        Operation("GET", "/healthz", "health", None, api.health, "Whether the process runs", None, {200: "Any"}),
        Operation("GET", "/readyz", "ready", None, api.ready, "Whether every loop decides", None, {200: "Any"}),
        Operation(
            "GET",
            "/metrics",
            "metrics",
            "read",
            numbers,
            "Numbers for Prometheus",
            None,
            {200: ("text/plain", {"type": "string"})},
        ),
    ]


def _personalizer(prefix: str, suffix: str) -> list[Operation]:
    event = f"{prefix}/events/{{id}}"
    return [
        Operation(
            "POST",
            f"{prefix}/rank",
            f"personalizer_rank{suffix}",
            "decide",
            personalizer.rank,
            "Rank actions, as Azure Personalizer did",
            reference("RankRequest"),
            {201: "Ranking"},
        ),
        Operation(
            "POST",
            f"{event}/reward",
            f"personalizer_reward{suffix}",
            "reward",
            personalizer.reward,
            "Reward an event",
            reference("ValueRequest"),
            {204: None},
        ),
        Operation(
            "POST",
            f"{event}/activate",
            f"personalizer_activate{suffix}",
            "decide",
            personalizer.activate,
            "Activate an event",
            None,
            {204: None},
        ),
        Operation(
            "GET",
            f"{prefix}/configurations/service",
            f"personalizer_configuration{suffix}",
            "read",
            personalizer.configuration,
            "The loop's settings",
            None,
            {200: "Any"},
        ),
    ]


def build_app(runtime: Runtime, keys: Keys | None = None) -> Starlette:
    """Return the application of a service; it starts and stops the runtime."""
    metrics = Metrics(runtime)
    runtime.latency = metrics.quantiles
    # without keys everything is allowed, but for other machines and the pages of others
    outside = [] if keys else [Middleware(LocalOnly)]
    guards = Guards(runtime, keys or Keys(), RateLimit(runtime.settings.limits.requests_per_second), metrics)
    known = operations(metrics)
    description = json.dumps(document(known, list(runtime.workers))).encode()

    async def openapi(_: Call) -> Reply:
        return Reply(description)

    public = [
        Operation("GET", "/openapi.json", "openapi", None, openapi, "This document"),
        *(Operation("GET", f"/{path}", f"page {path}", None, _file(*file), "") for path, file in _FILES.items()),
    ]
    routes = [Route(one.path, Endpoint(one, guards), methods=[one.method]) for one in (*known, *public)]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        runtime.start()
        try:
            yield
        finally:
            runtime.stop()

    handlers: Any = {HTTPException: _http_error}
    return Starlette(routes=routes, middleware=outside, lifespan=lifespan, exception_handlers=handlers)


def _file(name: str, kind: bytes) -> Any:
    content = (PAGE / name).read_bytes()

    async def send(_: Call) -> Reply:
        return Reply(content, 200, kind, ((b"content-security-policy", _POLICY),))

    return send


async def _http_error(_: Request, reason: Exception) -> Response:
    assert isinstance(reason, HTTPException)
    code = {404: "unknown_path", 405: "wrong_method"}.get(reason.status_code, "refused")
    reply = error_reply(RefusedError(reason.status_code, code, str(reason.detail)))
    content = json.dumps(reply.content).encode()
    headers = {"x-content-type-options": "nosniff", **(reason.headers or {})}
    return Response(content, reason.status_code, headers, "application/json")
