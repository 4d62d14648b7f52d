"""The operations that read: a decision, the state of a loop, a page of its log, whether it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from kernel_bandits.errors import InputError
from kernel_bandits.tables.values import shown
from kernel_bandits_server import insight
from kernel_bandits_server.api import decision_view
from kernel_bandits_server.bodies import as_id
from kernel_bandits_server.commands import Query, RefusedError
from kernel_bandits_server.events import Event, encode
from kernel_bandits_server.exchange import Call, Reply
from kernel_bandits_server.runtime import Runtime

Reader: TypeAlias = Callable[[Runtime, Call], Awaitable[Reply]]
# Those who watch see a loop at most this many seconds late.
WATCH = 0.5
LOG_PAGE = 1_000
# What off-policy tools read of a rewarded decision.
REWARDED_KEYS = ("context", "action", "reward", "propensity")
# The header that says where the next page of a log begins.
NEXT = b"x-next"


async def decision(runtime: Runtime, call: Call) -> Reply:
    """Return a decision and what became of it."""
    events = await _events(runtime, call)
    view = decision_view(events["decision"], False, True)
    del view["repeated"]
    rewarded = events.get("reward")
    view["reward"] = None if rewarded is None else rewarded.body["reward"]
    view["events"] = {kind: event.time for kind, event in events.items()}
    return Reply(view)


async def _events(runtime: Runtime, call: Call) -> dict[str, Event]:
    name, id = call.path["loop"], as_id(call.path["id"])
    runtime.worker(name)
    events = await asyncio.to_thread(runtime.store.find, name, id)
    if "decision" not in events:
        raise RefusedError(404, "unknown", f"decision {id} was not made in this loop.")
    return events


async def explanation(runtime: Runtime, call: Call) -> Reply:
    """Explain a decision by past rounds."""
    event = (await _events(runtime, call))["decision"]
    query = Query(lambda replica: insight.explanation(replica, event))
    return Reply(await runtime.carry_out(call.path["loop"], query))


async def loops(runtime: Runtime, _: Call) -> Reply:
    """List the loops."""
    return Reply({"loops": list(runtime.workers)})


async def loop(runtime: Runtime, call: Call) -> Reply:
    """Return the state of a loop."""
    name = call.path["loop"]
    found = await _summary(runtime, name, 0.0)
    learned = await runtime.compute(name, "model", insight.model, 5.0)
    return Reply({**found, "model": learned, "leads": runtime.leader.leads})


async def _summary(runtime: Runtime, name: str, seconds: float) -> dict[str, Any]:
    found = await runtime.compute(name, "summary", insight.summary, seconds)
    return insight.at(found, runtime.worker(name).clock())


async def changes(runtime: Runtime, call: Call) -> Reply:
    """Return the state of a loop if it has changed after an event, and nothing (204) otherwise."""
    name = call.path["loop"]
    worker = runtime.worker(name)
    if not worker.ready or worker.applied == int(call.query["after"]):
        return Reply(None, 204)
    return Reply(await _summary(runtime, name, WATCH))


async def response(runtime: Runtime, call: Call) -> Reply:
    """Return the expected reward of each arm over one variable."""
    variable = call.query.get("variable", "")
    found = await runtime.compute(
        call.path["loop"], f"response {variable}", lambda replica: insight.response(replica, variable), 5.0
    )
    return Reply(found)


async def log_page(runtime: Runtime, call: Call) -> Reply:
    """Return some decisions of a loop, one JSON object a line, and where to go on; nothing (204) after the last."""
    name = call.path["loop"]
    runtime.worker(name)
    after = call.query.get("after", "0")
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise InputError(f"after: expected the number of an event, got {shown(after)}.")
    rewarded = call.query.get("rewarded", "false")
    if rewarded not in ("true", "false"):
        raise InputError(f"rewarded: expected true or false, got {shown(rewarded)}.")
    return await asyncio.to_thread(_page, runtime, name, int(after), rewarded == "true")


def _page(runtime: Runtime, name: str, after: int, rewarded: bool) -> Reply:
    events = runtime.store.read(name, after, LOG_PAGE)
    if not events:
        return Reply(None, 204)
    made = {event.decision: event for event in events if event.kind == "decision"}
    found = runtime.store.find_many(name, list(made))
    rows = [log_row(event, found[event.decision]) for event in made.values()]
    if rewarded:
        rows = [
            {key: row[key] for key in REWARDED_KEYS}
            for row in rows
            if row["active"] and row["reward"] is not None and row["propensity"] is not None
        ]
    lines = "".join(f"{encode(row)}\n" for row in rows).encode()
    return Reply(lines, 200, b"application/x-ndjson", ((NEXT, str(events[-1].number).encode()),))


def log_row(event: Event, events: dict[str, Event]) -> dict[str, Any]:
    """Return a decision as a row of a log for off-policy tools: what was played, how likely, and what it earned."""
    body = event.body
    watched = "played" in body
    rewarded = events.get("reward")
    return {
        "number": event.number,
        "time": event.time,
        "id": event.decision,
        "context": body["context"],
        "actions": body["actions"],
        "excluded": body["excluded"],
        "action": _by_name(body["played"] if watched else body["action"]),
        "arm": body["played_arm"] if watched else body["arm"],
        "propensity": body["played_probability"] if watched else body["propensity"],
        "probabilities": None if watched else body["probabilities"],
        "offered": body["offered"],
        "active": body["active"] or "activation" in events,
        "reward": None if rewarded is None else rewarded.body["reward"],
        "source": None if rewarded is None else rewarded.body["source"],
    }


def _by_name(action: Any) -> Any:
    """Return an action as a log has it: an arm without features is its name, however it was offered."""
    return action["arm"] if isinstance(action, dict) and set(action) == {"arm"} else action


async def ready(runtime: Runtime, _: Call) -> Reply:
    """Return whether every loop decides and the database takes events."""
    waiting = dict(runtime.state())
    if waiting:
        message = "; ".join(f"{name}: {reason}" for name, reason in waiting.items())
        raise RefusedError(503, "not_ready", message)
    await runtime.check_writing()
    return Reply({"status": "ready"})


async def numbers(runtime: Runtime, _: Call) -> Reply:
    """Return whether this process leads, and numbers of each loop."""
    gauges = {name: worker.gauges() for name, worker in runtime.workers.items()}
    return Reply({"leads": runtime.leader.leads, "loops": gauges})


READERS: dict[str, Reader] = {
    "decision": decision,
    "explanation": explanation,
    "loops": loops,
    "loop": loop,
    "changes": changes,
    "response": response,
    "log": log_page,
    "ready": ready,
    "numbers": numbers,
}
