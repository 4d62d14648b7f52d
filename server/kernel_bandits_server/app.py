"""The service over HTTP: every operation, the page, and what is refused on the way."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from litestar import Litestar, MediaType, Request, Response, delete, get, post, put
from litestar.config.compression import CompressionConfig
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.middleware.rate_limit import RateLimitConfig
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.plugins.prometheus import PrometheusConfig
from litestar.response import Stream
from prometheus_client import REGISTRY, CollectorRegistry, Gauge, generate_latest

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms
from kernel_bandits.tables.values import is_number, number_of, shown
from kernel_bandits_server import insight, messages, planning
from kernel_bandits_server.access import Gate, Keys
from kernel_bandits_server.choosing import Asked, arm_of, choose, spread
from kernel_bandits_server.events import Event, encode
from kernel_bandits_server.messages import Body
from kernel_bandits_server.planning import Command, Query, RefusedError
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import Limits
from kernel_bandits_server.store import StoreError
from kernel_bandits_server.worker import Runtime

_log = logging.getLogger("kernel_bandits_server")
LOOP, DECISION = "/v1/loops/{loop:str}", "/v1/loops/{loop:str}/decisions/{id:str}"
PAGE = Path(__file__).with_name("page")
PAGE_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
SAFE_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    # nothing on the page comes from elsewhere, and no script stands in the page itself
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
REFUSALS = {
    400: ("not_json", "Not JSON"),
    401: ("no_key", "No key"),
    403: ("refused", "Not allowed"),
    404: ("unknown_path", "Unknown"),
    405: ("wrong_method", "Another method"),
    409: ("conflict", "Conflict"),
    413: ("too_long", "Too much"),
    422: ("invalid", "Invalid"),
    429: ("too_fast", "Too fast"),
    503: ("database", "Repeat it later"),
}
LOG_PAGE = 1_000
GAUGES = {
    "ready": "Whether the loop decides.",
    "events": "Events that the loop has taken into account.",
    "waiting": "Requests that wait for the loop.",
    "pending": "Decisions that await their reward.",
    "matured": "Decisions that count in the averages.",
    "dictionary_size": "Points or features that carry the model.",
    "leads": "Whether this process settles silent decisions and writes snapshots.",
}
Json = dict[str, Any]


def fresh_id() -> str:
    """Return an id that no other decision has; later ones sort after earlier ones, which databases like."""
    return f"{time.time_ns() // 1_000_000:011x}-{secrets.token_hex(10)}"


@post(
    f"{LOOP}/decisions",
    dto=Body[messages.DecisionRequest],
    return_dto=None,
    role="decide",
    responses={200: ResponseSpec(messages.Decision, description="Made by an earlier request")},
)
async def decide(
    loop: FromPath[str], data: JSONBody[messages.DecisionRequest], state: State
) -> Response[messages.Decision]:
    """Choose an action."""
    runtime: Runtime = state.runtime
    settings, service = runtime.worker(loop).settings, runtime.settings.service
    _check(data, service.limits, isinstance(settings.features.actions, Arms))
    command = planning.Decide(data.id or fresh_id(), data.id is not None, data)
    if settings.control is not None and settings.control.rule == "loop":
        command.other = await runtime.carry_out(str(settings.control.loop), Query(partial(_plays, data)))
    event, repeated = await runtime.carry_out(loop, command)
    if service.log_contexts:
        facts = {"loop": loop, "id": event.decision, "context": event.body["context"]}
        _log.info("decision", extra={**facts, "action": event.body["action"]})
    found = _decision(event, data.details)
    found.repeated = repeated
    return Response(found, status_code=200 if repeated else 201)


def _check(data: messages.DecisionRequest, limits: Limits, has_arms: bool) -> None:
    for name, given in (("actions", data.actions), ("excluded", data.excluded)):
        _require_few(given or (), name, limits.actions)
    if data.box is not None and data.actions is not None:
        raise InputError("box: expected an object with a range for each column, and no actions beside it.")
    if data.actions is not None and not data.actions:
        raise InputError("actions: expected at least one action, got none.")
    seen: set[Any] = set()
    for action in data.actions if isinstance(data.actions, list) else ():
        # 1 and 1.0 are one arm, whatever its features are this time
        key = arm_of(action) if has_arms else None
        if key is None or isinstance(key, (dict, list)):
            row = action if isinstance(action, dict) else {"": action}
            key = repr(sorted((name, number_of(one) if is_number(one) else one) for name, one in row.items()))
        if key in seen:
            # each place would have a part of its probability
            raise InputError(f"actions: expected each action once, got {shown(action)} again; leave the repeats out.")
        seen.add(key)


def _require_few(items: Sequence[Any] | dict[str, Any], place: str, most: int) -> None:
    if len(items) > most:
        raise RefusedError(413, "too_many", f"{place}: expected at most {most}, got {len(items)}.")


def _plays(data: messages.DecisionRequest, replica: Replica) -> dict[Any, float]:
    """Return the probability of each arm in the loop that a control group follows."""
    offer = replica.offer(data.actions)
    asked = Asked(data.context, offer, data.excluded)
    table = spread(choose(replica.policy, asked), asked)
    return {arm_of(action): share for action, share in zip(offer, table, strict=True)}


def _decision(event: Event, details: bool) -> messages.Decision:
    body = event.body
    found = messages.Decision(
        event.decision,
        body["action"],
        body["arm"],
        body["propensity"],
        body["probabilities"],
        body.get("group", "policy"),
        not body["active"],
    )
    if "played" in body:
        found.played = body["played"]
    if details:
        found.mean, found.std, found.model, found.time = body["mean"], body["std"], body["model"], event.time
    return found


@post(f"{DECISION}/reward", dto=Body[messages.RewardRequest], return_dto=None, role="reward", status_code=200)
async def reward(
    loop: FromPath[str], id: FromPath[str], data: JSONBody[messages.RewardRequest], state: State
) -> messages.Outcome:
    """Say what a decision earned."""
    _require_range(state.runtime, loop, data.reward, "reward")
    return await _outcome(state, loop, planning.Reward([(id, data.reward)]))


@post(f"{LOOP}/rewards", dto=Body[messages.RewardsRequest], return_dto=None, role="reward", status_code=200)
async def rewards(loop: FromPath[str], data: JSONBody[messages.RewardsRequest], state: State) -> messages.Outcomes:
    """Say what many decisions earned, each on its own; a malformed body is refused whole."""
    runtime: Runtime = state.runtime
    _require_few(data.rewards, "rewards", runtime.settings.service.limits.batch)
    for place, one in enumerate(data.rewards):
        _require_range(runtime, loop, one.reward, f"rewards[{place}].reward")
    results = await runtime.carry_out(loop, planning.Reward([(one.id, one.reward) for one in data.rewards]))
    return messages.Outcomes(Counter(one["status"] for one in results), results)


def _require_range(runtime: Runtime, loop: str, number: float, place: str) -> None:
    ends = runtime.worker(loop).settings.range
    if ends is not None and not ends[0] <= number <= ends[1]:
        advice = "say rewards = [low, high] in the loop's file."
        raise InputError(f"{place}: expected {ends[0]:g} to {ends[1]:g}, got {number:g}; {advice}")


async def _outcome(state: State, loop: str, command: Command) -> messages.Outcome:
    """Return what became of one decision."""
    found = await state.runtime.carry_out(loop, command)
    result: Json = found[0] if isinstance(found, list) else found
    status = {"unknown": 404, "conflict": 409}.get(result["status"])
    if status is not None:
        raise RefusedError(status, result["status"], result["message"])
    return messages.Outcome(**result)


@post(f"{DECISION}/activate", role="decide", status_code=200)
async def activate(loop: FromPath[str], id: FromPath[str], state: State) -> messages.Outcome:
    """Say that a deferred decision was played."""
    return await _outcome(state, loop, planning.Activate(id))


@post(f"{DECISION}/expire", role="reward", status_code=200)
async def expire(loop: FromPath[str], id: FromPath[str], state: State) -> messages.Outcome:
    """Give up on the reward of a decision."""
    return await _outcome(state, loop, planning.Expire(id))


@post(f"{LOOP}/import", dto=Body[messages.ImportRequest], return_dto=None, role="administer", status_code=200)
async def import_rows(loop: FromPath[str], data: JSONBody[messages.ImportRequest], state: State) -> messages.Imported:
    """Learn rounds of another log, for a warm start; all of them or none."""
    runtime: Runtime = state.runtime
    _require_few(data.rows, "rows", runtime.settings.service.limits.batch)
    for place, row in enumerate(data.rows):
        _require_range(runtime, loop, row.reward, f"rows[{place}].reward")
    rows = [{name: getattr(row, name) for name in row.__struct_fields__} for row in data.rows]
    return messages.Imported(**await runtime.carry_out(loop, planning.Import(rows)))


@put(f"{LOOP}/arms/{{arm:str}}", dto=Body[messages.ArmRequest], return_dto=None, role="administer")
async def add_arm(loop: FromPath[str], arm: FromPath[str], data: JSONBody[messages.ArmRequest], state: State) -> Json:
    """Add an arm, describe it anew, or bring a retired one back."""
    if len(arm) > 256:
        raise InputError(f"arm: expected a name of at most 256 characters, got {len(arm)}.")
    return dict(await state.runtime.carry_out(loop, planning.SetArm(arm, data.features)))


@delete(f"{LOOP}/arms/{{arm:str}}", role="administer", status_code=200)
async def retire_arm(
    loop: FromPath[str], arm: FromPath[str], state: State, pending: FromQuery[Literal["keep", "expire"]] = "keep"
) -> Json:
    """Retire an arm: it is no longer offered. Its pending decisions are kept, or expire."""
    return dict(await state.runtime.carry_out(loop, planning.RetireArm(arm, pending == "expire")))


@put(f"{LOOP}/challenger", dto=Body[messages.ShareRequest], return_dto=None, role="administer")
async def promote(loop: FromPath[str], data: JSONBody[messages.ShareRequest], state: State) -> Json:
    """Give the challenger a share of the traffic: 0.1, 0.25, 0.5, 1; or 0 to step back."""
    return dict(await state.runtime.carry_out(loop, planning.SetShare(data.share)))


async def _events(runtime: Runtime, loop: str, id: str) -> dict[str, Event]:
    runtime.worker(loop)
    events = (await asyncio.to_thread(runtime.store.find, loop, [id])).get(id, {})
    if "decision" not in events:
        raise RefusedError(404, "unknown", f"decision {id} was not made in this loop.")
    return events


@get(DECISION, role="read")
async def decision(loop: FromPath[str], id: FromPath[str], state: State) -> messages.Decision:
    """Return a decision and what became of it."""
    events = await _events(state.runtime, loop, id)
    found, rewarded = _decision(events["decision"], True), events.get("reward")
    found.reward = None if rewarded is None else rewarded.body["reward"]
    found.events = {kind: event.time for kind, event in events.items()}
    return found


@get(f"{DECISION}/explanation", role="read")
async def explanation(loop: FromPath[str], id: FromPath[str], state: State) -> Json:
    """Explain a decision by past rounds."""
    event = (await _events(state.runtime, loop, id))["decision"]
    return dict(await state.runtime.carry_out(loop, Query(lambda replica: insight.explanation(replica, event))))


@get("/v1/loops", role="read")
async def loops(state: State) -> Json:
    """List the loops."""
    return {"loops": list(state.runtime.workers)}


@get(LOOP, role="read")
async def one_loop(loop: FromPath[str], state: State) -> Json:
    """Return rewards, arms, groups, model and warnings of a loop."""
    runtime: Runtime = state.runtime
    found = insight.at(await runtime.view(loop, "summary", insight.summary, 0.5), runtime.worker(loop).clock())
    learned = await runtime.view(loop, "model", insight.model, 10.0)
    warnings = [*found["warnings"], *learned["warnings"]]
    return {**found, "warnings": warnings, "model": learned, "leads": runtime.leader.leads}


@get(f"{LOOP}/verdict", role="read")
async def verdict(loop: FromPath[str], state: State) -> Json:
    """Return whether the loop beats the rule of today, by an interval that may be looked at every day."""
    return dict(await state.runtime.view(loop, "verdict", insight.verdicts))


@get(f"{LOOP}/segments", role="read")
async def segments(loop: FromPath[str], state: State, column: FromQuery[str]) -> Json:
    """Return the share and the mean reward of each arm in each segment of a column."""
    return dict(await state.runtime.view(loop, f"by {column}", lambda replica: insight.segments(replica, column)))


@get(f"{LOOP}/response", role="read")
async def response(loop: FromPath[str], state: State, variable: FromQuery[str]) -> Json:
    """Return the expected reward of each arm over one variable."""
    return dict(await state.runtime.view(loop, f"over {variable}", insight.response(variable), 10.0))


@get(f"{LOOP}/digest", role="administer")
async def digest(loop: FromPath[str], state: State) -> Json:
    """Return a digest of all bits of a loop's state, to compare processes with each other and with a replay."""
    query = Query(lambda replica: {"events": replica.applied, "digest": replica.digest()})
    return dict(await state.runtime.carry_out(loop, query))


@get(f"{LOOP}/log", role="read", media_type="application/x-ndjson")
async def export_log(
    loop: FromPath[str],
    state: State,
    after: Annotated[int, QueryParameter(ge=0, lt=2**62)] = 0,
) -> Stream:
    """Export the log of a loop, a JSON object a line: every decision and imported round, with all that is known."""
    runtime: Runtime = state.runtime
    runtime.worker(loop)
    first = await asyncio.to_thread(runtime.store.read, loop, after, LOG_PAGE)
    return Stream(_pages(runtime, loop, first), media_type="application/x-ndjson")


async def _pages(runtime: Runtime, loop: str, events: list[Event]) -> AsyncIterator[bytes]:
    while events:
        yield await asyncio.to_thread(_lines, runtime, loop, events)
        events = await asyncio.to_thread(runtime.store.read, loop, events[-1].number, LOG_PAGE)


def _lines(runtime: Runtime, loop: str, events: list[Event]) -> bytes:
    made = [event for event in events if event.kind in ("decision", "imported")]
    found = runtime.store.find(loop, [event.decision for event in made])
    return "".join(f"{encode(log_row(event, found[event.decision]))}\n" for event in made).encode()


def log_row(event: Event, events: dict[str, Event]) -> Json:
    """Return a decision as a row of a log: what was seen, offered and played, how likely, and what it earned."""
    body, watched, imported = event.body, "played" in event.body, event.kind == "imported"
    rewarded = events.get("reward")
    earned: Json = body if imported else {} if rewarded is None else rewarded.body
    action = body["played"] if watched else body["action"]
    return {
        "number": event.number,
        "time": event.time,
        "id": event.decision.removeprefix("#"),
        "visitor": body.get("visitor"),
        "group": "imported" if imported else body.get("group", "policy"),
        "context": body["context"],
        "actions": body.get("actions"),
        "excluded": body.get("excluded", []),
        # an arm without features is its name, however it was offered
        "action": action["arm"] if isinstance(action, dict) and set(action) == {"arm"} else action,
        "arm": body["played_arm"] if watched else body.get("arm", arm_of(action)),
        "propensity": body["played_probability"] if watched else body["propensity"],
        "probabilities": None if watched else body.get("probabilities"),
        "offered": body.get("offered"),
        "active": imported or body["active"] or "activation" in events,
        "reward": earned.get("reward"),
        "source": "imported" if imported else earned.get("source"),
        "settled": imported or bool({"reward", "expiry"} & events.keys()),
        "late_reward": events["late"].body["reward"] if "late" in events else None,
    }


@get("/healthz")
async def health(state: State) -> Json:
    """Return that the process runs, and whether it leads."""
    return {"status": "alive", "leads": state.runtime.leader.leads}


@get("/readyz", responses={503: ResponseSpec(messages.Refusal, description="Not ready")})
async def ready(state: State) -> Json:
    """Return whether every loop decides and the database takes events."""
    runtime: Runtime = state.runtime
    waiting = {name: worker.failure for name, worker in runtime.workers.items() if not worker.ready}
    if waiting:
        raise RefusedError(503, "not_ready", "; ".join(f"{name}: {reason}" for name, reason in waiting.items()))
    await runtime.check()
    return {"status": "ready"}


@get("/metrics", role="read", media_type=MediaType.TEXT)
async def prometheus(state: State) -> Response[bytes]:
    """Return numbers for Prometheus: requests, which Litestar's middleware counts, and the state of each loop."""
    registry = CollectorRegistry()
    gauges = {name: Gauge(f"kernel_bandits_{name}", text, ["loop"], registry=registry) for name, text in GAUGES.items()}
    for loop, worker in state.runtime.workers.items():
        for name, value in worker.gauges().items():
            gauges[name].labels(loop).set(value)
    text = generate_latest(REGISTRY) + generate_latest(registry)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@get("/openapi.json", include_in_schema=False)
async def document(request: Request[Any, Any, Any]) -> Json:
    """Return the description of every operation."""
    return request.app.openapi_schema.to_schema()


@get(["/", "/page.js", "/charts.js", "/page.css"], include_in_schema=False)
async def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return a file of the page."""
    name = request.scope["path"].strip("/") or "index.html"
    return Response((PAGE / name).read_bytes(), media_type=PAGE_TYPES[Path(name).suffix])


def refuse(request: Request[Any, Any, Any], reason: Exception) -> Response[messages.Refusal]:
    """Return the response to a request that is refused or failed; it says nothing of the inside."""
    path = request.scope["path"]
    status, code, message = 500, "internal", "the request failed inside the service; nothing was lost."
    if isinstance(reason, RefusedError):
        status, code, message = reason.status, reason.code, str(reason)
    elif isinstance(reason, StoreError):
        status, code, message = 503, "database", f"{reason} Repeat the request later."
    elif isinstance(reason, KernelBanditsError):
        status, code, message = 422, "invalid", str(reason)
    elif isinstance(reason, HTTPException):
        status, message = reason.status_code, str(reason.detail)
        parameters = reason.extra if isinstance(reason.extra, list) else []
        if status == 400 and (parameters or message.startswith("Missing required")):
            # what stands in the address, or a body that is missing
            status = 422
            message = (
                "; ".join(f"{one.get('key', 'the body')}: {one.get('message', '')}" for one in parameters) or message
            )
        code = REFUSALS.get(status, ("refused",))[0]
    else:
        _log.error("a request failed", exc_info=reason, extra={"path": path})
    if path != "/readyz":
        facts = {
            "path": path,
            "status": status,
            "code": code,
            "key": request.app.state.callers.name_of(request.headers),
        }
        _log.log(logging.ERROR if status >= 500 else logging.WARNING, "refused", extra=facts)
    headers = {**SAFE_HEADERS, **(getattr(reason, "headers", None) or {})}
    return Response(
        messages.Refusal(messages.Problem(code, message)),
        status_code=status,
        headers=headers,
        media_type=MediaType.JSON,
    )


def build_app(runtime: Runtime, keys: Keys | None = None) -> Litestar:
    """Return the application of a service."""
    limits, keys = runtime.settings.service.limits, keys or Keys()

    def caller(request: Request[Any, Any, Any]) -> str:
        return keys.name_of(request.headers) or (request.client.host if request.client else "")

    middleware: list[Any] = [
        Gate(keys),
        PrometheusConfig("kernel_bandits", "kernel_bandits", group_path=True).middleware,
    ]
    if limits.requests_per_second:
        rate = RateLimitConfig(
            ("second", limits.requests_per_second), identifier_for_request=caller, exclude=["/healthz", "/readyz"]
        )
        middleware.append(rate.middleware)
    operations: list[Any] = [
        decide, reward, rewards, activate, expire, import_rows, add_arm, retire_arm, promote, decision, explanation,
        loops, one_loop, verdict, segments, response, digest, export_log, health, ready, prometheus, document,
    ]  # fmt: skip
    refusals = {status: ResponseSpec(messages.Refusal, description=text) for status, (_, text) in REFUSALS.items()}
    for operation in operations:
        operation.responses = {**refusals, **(operation.responses or {})}

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        runtime.start()
        try:
            yield
        finally:
            await asyncio.to_thread(runtime.stop)

    return Litestar(
        route_handlers=[*operations, page],
        state=State({"runtime": runtime, "callers": keys}),
        lifespan=[lifespan],
        middleware=middleware,
        plugins=_tracing(),
        exception_handlers={Exception: refuse},
        response_headers=SAFE_HEADERS,
        request_max_body_size=limits.body_bytes,
        compression_config=CompressionConfig(backend="gzip", minimum_size=2_000),
        openapi_config=OpenAPIConfig("Decision service", "1", path="/schema", render_plugins=[JsonRenderPlugin()]),
        logging_config=None,
    )


def _tracing() -> list[Any]:
    """Return the plugin that traces requests, where OpenTelemetry is installed."""
    try:
        from litestar.plugins.opentelemetry import OpenTelemetryConfig, OpenTelemetryPlugin
    except ImportError:
        return []
    return [OpenTelemetryPlugin(OpenTelemetryConfig())]
