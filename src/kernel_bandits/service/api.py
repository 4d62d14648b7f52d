"""The operations of the service's own interface."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from operator import itemgetter
from typing import Any

from kernel_bandits.errors import InputError
from kernel_bandits.features.values import shown
from kernel_bandits.service import insight
from kernel_bandits.service.bodies import (
    as_action,
    as_flag,
    as_id,
    as_list,
    as_number,
    as_object,
    as_offer,
    as_rewards,
)
from kernel_bandits.service.commands import Activate, Decide, Expire, Query, RefusedError, Reward
from kernel_bandits.service.endpoint import Call, Reply
from kernel_bandits.service.events import Event, encode
from kernel_bandits.service.runtime import Runtime

_log = logging.getLogger("kernel_bandits.service")
DECISION_KEYS = (
    "id",
    "context",
    "actions",
    "box",
    "excluded",
    "deferred",
    "played",
    "played_probability",
    "details",
)
# Statuses of HTTP for what became of a reward, an activation or an expiry.
STATUS = {"unknown": 404, "conflict": 409}
# Seconds between two looks at whether a loop has changed, for those who watch.
WATCH = 0.5
KEEP_ALIVE = 15.0
LOG_PAGE = 1_000
# What off-policy tools read of a rewarded decision.
REWARDED_KEYS = ("context", "action", "reward", "propensity")


# Random parts of the next ids: the system is asked for many at a time. A copy of the process must not use them too.
_RANDOM_BYTES, _AT_A_TIME = 10, 256
_random_parts: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random_parts.clear)


def fresh_id() -> str:
    """Return an id that no other decision has; later ones sort after earlier ones, which databases like."""
    try:
        part = _random_parts.pop()
    except IndexError:
        digits, length = secrets.token_hex(_RANDOM_BYTES * _AT_A_TIME), 2 * _RANDOM_BYTES
        _random_parts.extend(digits[start : start + length] for start in range(length, len(digits), length))
        part = digits[:length]
    return f"{time.time_ns() // 1_000_000:011x}-{part}"


def as_decide(body: Any, most: int) -> tuple[Decide, bool]:
    """Return the command of a request for a decision, and whether details are wanted."""
    body = as_object(body, DECISION_KEYS, ("context",))
    context = body["context"]
    if len(body) == 1 and isinstance(context, dict):
        # as most are
        return Decide(fresh_id(), False, context), False
    if not isinstance(context, dict):
        raise InputError(f"context: expected an object with a value for each column, got {shown(context)}.")
    box = body.get("box")
    if box is not None and (not isinstance(box, dict) or body.get("actions") is not None):
        raise InputError("box: expected an object with a range for each column, and no actions beside it.")
    own = body.get("id") is not None
    probability = body.get("played_probability")
    if probability is not None:
        probability = as_number(probability, "played_probability")
        if not 0.0 < probability <= 1.0:
            raise InputError(f"played_probability: expected a probability above 0, got {probability!r}.")
    played = body.get("played")
    command = Decide(
        as_id(body["id"], is_new=True) if own else fresh_id(),
        own,
        context,
        as_offer(body.get("actions"), "actions", most),
        box,
        tuple(as_action(one, "excluded") for one in as_list(body.get("excluded", []), "excluded", most)),
        not as_flag(body.get("deferred", False), "deferred"),
        None if played is None else as_action(played, "played"),
        played is not None,
        probability,
    )
    return command, as_flag(body.get("details", False), "details")


async def decide(call: Call) -> Reply:
    """Choose an action."""
    command, details = as_decide(call.body, call.runtime.settings.limits.actions)
    event, repeated = await call.runtime.carry_out(call.path["loop"], command)
    if call.runtime.settings.log_contexts:
        facts = {"loop": call.path["loop"], "id": event.decision, "context": event.body["context"]}
        _log.info("decision", extra={**facts, "action": event.body["action"]})
    return Reply(decision_view(event, repeated, details), 200 if repeated else 201)


def decision_view(event: Event, repeated: bool, details: bool) -> dict[str, Any]:
    """Return a decision as callers see it."""
    body = event.body
    view = {
        "id": event.decision,
        "action": body["action"],
        "arm": body["arm"],
        "probability": body["propensity"],
        "probabilities": body["probabilities"],
        "deferred": not body["active"],
        "repeated": repeated,
    }
    if "played" in body:
        view["played"] = body["played"]
    if details:
        view |= {"mean": body["mean"], "std": body["std"], "model": body["model"], "time": event.time}
    return view


async def reward(call: Call) -> Reply:
    """Learn what a decision earned."""
    body = as_object(call.body, ("reward",), ("reward",))
    pairs = [(as_id(call.path["id"]), as_number(body["reward"], "reward"))]
    (result,) = await call.runtime.carry_out(call.path["loop"], Reward(pairs))
    return _outcome(result)


async def rewards(call: Call) -> Reply:
    """Learn what many decisions earned, each on its own; a malformed body is refused whole."""
    body = as_object(call.body, ("rewards",), ("rewards",))
    pairs = as_rewards(as_list(body["rewards"], "rewards", call.runtime.settings.limits.batch), "rewards")
    results = await call.runtime.carry_out(call.path["loop"], Reward(pairs))
    return Reply({"counts": Counter(map(itemgetter("status"), results)), "results": results})


async def activate(call: Call) -> Reply:
    """Count a deferred decision as played."""
    return _outcome(await call.runtime.carry_out(call.path["loop"], Activate(as_id(call.path["id"]))))


async def expire(call: Call) -> Reply:
    """Give up on the reward of a decision."""
    return _outcome(await call.runtime.carry_out(call.path["loop"], Expire(as_id(call.path["id"]))))


def _outcome(result: dict[str, Any]) -> Reply:
    status = STATUS.get(result["status"])
    if status is not None:
        raise RefusedError(status, result["status"], result["message"])
    return Reply(result)


async def decision(call: Call) -> Reply:
    """Return a decision and what became of it."""
    events = await _events(call)
    view = decision_view(events["decision"], False, True)
    del view["repeated"]
    rewarded = events.get("reward")
    view["reward"] = None if rewarded is None else rewarded.body["reward"]
    view["events"] = {kind: event.time for kind, event in events.items()}
    return Reply(view)


async def _events(call: Call) -> dict[str, Event]:
    name, id = call.path["loop"], as_id(call.path["id"])
    call.runtime.worker(name)
    events = await asyncio.to_thread(call.runtime.store.find, name, id)
    if "decision" not in events:
        raise RefusedError(404, "unknown", f"decision {id} was not made in this loop.")
    return events


async def explanation(call: Call) -> Reply:
    """Explain a decision by past rounds."""
    event = (await _events(call))["decision"]
    query = Query(lambda replica: insight.explanation(replica, event))
    return Reply(await call.runtime.carry_out(call.path["loop"], query))


async def loops(call: Call) -> Reply:
    """List the loops."""
    return Reply({"loops": list(call.runtime.workers)})


async def loop(call: Call) -> Reply:
    """Return the state of a loop."""
    name = call.path["loop"]
    found = await _summary(call.runtime, name, 0.0)
    learned = await call.runtime.compute(name, "model", insight.model, 5.0)
    return Reply({**found, "model": learned, "leads": call.runtime.leader.leads})


async def _summary(runtime: Runtime, name: str, seconds: float) -> dict[str, Any]:
    found = await runtime.compute(name, "summary", insight.summary, seconds)
    return insight.at(found, runtime.worker(name).clock())


async def digest(call: Call) -> Reply:
    """Return a digest of all bits of a loop's state, to compare processes with each other and with a replay."""
    query = Query(lambda replica: {"events": replica.applied, "digest": replica.digest()})
    return Reply(await call.runtime.carry_out(call.path["loop"], query))


async def response(call: Call) -> Reply:
    """Return the expected reward of each arm over one variable."""
    variable = call.query.get("variable", "")
    found = await call.runtime.compute(
        call.path["loop"], f"response {variable}", lambda replica: insight.response(replica, variable), 5.0
    )
    return Reply(found)


async def watch(call: Call) -> Reply:
    """Send the state of a loop whenever it changes, and now and then while decisions wait, as server-sent events."""
    call.runtime.worker(call.path["loop"])
    return Reply(_changes(call.runtime, call.path["loop"]), 200, b"text/event-stream; charset=utf-8")


async def _changes(runtime: Runtime, name: str) -> AsyncIterator[bytes]:
    sent, waits, worker, quiet = -1, False, runtime.worker(name), 0.0
    while not runtime.is_stopping():
        idle = quiet >= KEEP_ALIVE
        # those that wait have grown older
        if worker.ready and (worker.applied != sent or (idle and waits)):
            try:
                found = await _summary(runtime, name, WATCH)
            except RefusedError:
                return
            sent, waits, quiet = found["events"], found["pending"] > 0, 0.0
            text = json.dumps({**found, "latency": runtime.latency("decide")}, allow_nan=False)
            yield f"event: state\ndata: {text}\n\n".encode()
        elif idle:
            quiet = 0.0
            yield b": alive\n\n"
        await asyncio.sleep(WATCH)
        quiet += WATCH


async def log(call: Call) -> Reply:
    """Export the log of a loop: one JSON object a line for each decision, with its reward where it is known."""
    name = call.path["loop"]
    call.runtime.worker(name)
    after = call.query.get("after", "0")
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise InputError(f"after: expected the number of an event, got {shown(after)}.")
    rewarded = call.query.get("rewarded", "false")
    if rewarded not in ("true", "false"):
        raise InputError(f"rewarded: expected true or false, got {shown(rewarded)}.")
    return Reply(_lines(call.runtime, name, int(after), rewarded == "true"), 200, b"application/x-ndjson")


async def _lines(runtime: Runtime, name: str, after: int, rewarded: bool) -> AsyncIterator[bytes]:
    while True:
        events = await asyncio.to_thread(runtime.store.read, name, after, LOG_PAGE)
        if not events:
            return
        made = {event.decision: event for event in events if event.kind == "decision"}
        found = await asyncio.to_thread(runtime.store.find_many, name, list(made))
        rows = [log_row(event, found[event.decision]) for event in made.values()]
        if rewarded:
            rows = [
                {key: row[key] for key in REWARDED_KEYS}
                for row in rows
                if row["active"] and row["reward"] is not None and row["propensity"] is not None
            ]
        lines = [encode(row) for row in rows]
        if lines:
            yield ("\n".join(lines) + "\n").encode()
        after = events[-1].number


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
        "action": body["played"] if watched else body["action"],
        "arm": body["played_arm"] if watched else body["arm"],
        "propensity": body["played_probability"] if watched else body["propensity"],
        "probabilities": None if watched else body["probabilities"],
        "offered": body["offered"],
        "active": body["active"] or "activation" in events,
        "reward": None if rewarded is None else rewarded.body["reward"],
        "source": None if rewarded is None else rewarded.body["source"],
    }


async def health(call: Call) -> Reply:
    """Return that the process runs."""
    return Reply({"status": "alive", "leads": call.runtime.leader.leads})


async def ready(call: Call) -> Reply:
    """Return whether every loop decides and the database responds."""
    waiting = dict(call.runtime.state())
    if waiting:
        message = "; ".join(f"{name}: {reason}" for name, reason in waiting.items())
        raise RefusedError(503, "not_ready", message)
    await asyncio.to_thread(call.runtime.store.check)
    return Reply({"status": "ready"})
