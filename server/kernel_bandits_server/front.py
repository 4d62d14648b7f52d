"""The operations that the process of HTTP carries out itself: streams, health, numbers, settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from kernel_bandits_server import personalizer, reading
from kernel_bandits_server.bodies import parse_json
from kernel_bandits_server.commands import RefusedError, unknown_loop
from kernel_bandits_server.endpoint import Front
from kernel_bandits_server.exchange import Call, Reply
from kernel_bandits_server.link import Link
from kernel_bandits_server.metrics import CONTENT_TYPE

# Seconds between two looks at whether a loop has changed, for those who watch.
WATCH = reading.WATCH
KEEP_ALIVE = 15.0
# Seconds after which the process of the models counts as one that does not respond; of whoever asks whether HTTP runs.
PATIENCE, SHORT_PATIENCE = 10.0, 0.5


async def watch(front: Front, call: Call) -> Reply:
    """Send the state of a loop whenever it changes, and now and then while decisions wait, as server-sent events."""
    if call.path["loop"] not in front.link.settings.loops:
        raise unknown_loop()
    return Reply(_changes(front, call.path["loop"]), 200, b"text/event-stream; charset=utf-8")


async def _changes(front: Front, name: str) -> AsyncIterator[bytes]:
    sent, waits, quiet = -1, False, 0.0
    while not front.link.is_stopping():
        idle = quiet >= KEEP_ALIVE
        # those that wait have grown older
        found = await _changed(front.link, name, -1 if idle and waits else sent)
        if found is not None:
            sent, waits, quiet = found["events"], found["pending"] > 0, 0.0
            text = json.dumps({**found, "latency": front.metrics.quantiles("decide")}, allow_nan=False)
            yield f"event: state\ndata: {text}\n\n".encode()
        elif idle:
            quiet = 0.0
            yield b": alive\n\n"
        await asyncio.sleep(WATCH)
        quiet += WATCH


async def _changed(link: Link, name: str, after: int) -> dict[str, Any] | None:
    """Return the state of a loop if it has changed after an event, and None if nobody can tell."""
    try:
        reply = await link.ask("changes", Call({"loop": name}, {"after": str(after)}))
    except RefusedError:
        return None
    return dict(parse_json(reply.content)) if reply.status == 200 else None


async def log(front: Front, call: Call) -> Reply:
    """Export the log of a loop: one JSON object a line for each decision, with its reward where it is known."""
    first = await front.link.ask("log", call)
    if first.status >= 400:
        return first
    return Reply(_pages(front.link, call, first), 200, b"application/x-ndjson")


async def _pages(link: Link, call: Call, page: Reply) -> AsyncIterator[bytes]:
    while page.status == 200:
        if page.content:
            yield page.content
        after = dict(page.headers)[reading.NEXT].decode()
        page = await link.ask("log", Call(call.path, {**call.query, "after": after}))
    if page.status >= 400:
        # the caller sees a stream that was cut off, and not a log that is complete
        raise RefusedError(page.status, "log", "the log could not be read to its end.")


async def configuration(front: Front, call: Call) -> Reply:
    """Return the settings of a loop in Personalizer's words."""
    return personalizer.configuration(front.link.settings, call)


async def health(front: Front, _: Call) -> Reply:
    """Return that the process runs, and whether the process of the models leads."""
    try:
        numbers = await _numbers(front.link, SHORT_PATIENCE)
    except RefusedError:
        return Reply({"status": "alive", "leads": False})
    return Reply({"status": "alive", "leads": numbers["leads"]})


async def ready(front: Front, call: Call) -> Reply:
    """Return whether every loop decides and the database takes events."""
    return await _soon(front.link, "ready", call)


async def metrics(front: Front, _: Call) -> Reply:
    """Return numbers for Prometheus; a loop of which nothing is known is not ready."""
    try:
        numbers = await _numbers(front.link)
        loops = {name: {**found, "leads": float(numbers["leads"])} for name, found in numbers["loops"].items()}
    except RefusedError:
        loops = {name: {"ready": 0.0} for name in front.link.settings.loops}
    return Reply(front.metrics.text(loops), 200, CONTENT_TYPE.encode())


async def _numbers(link: Link, patience: float = PATIENCE) -> dict[str, Any]:
    reply = await _soon(link, "numbers", Call({}, {}), patience)
    if reply.status != 200:
        raise RefusedError(reply.status, "no_numbers", "the process of the models has no numbers.")
    return dict(parse_json(reply.content))


async def _soon(link: Link, name: str, call: Call, patience: float = PATIENCE) -> Reply:
    try:
        return await asyncio.wait_for(link.ask(name, call), patience)
    except TimeoutError as reason:
        raise RefusedError(503, "no_response", "the process of the models does not respond.") from reason
