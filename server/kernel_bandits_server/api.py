"""The operations that a loop carries out: each request becomes one command."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from kernel_bandits.errors import InputError
from kernel_bandits.tables import Arms
from kernel_bandits.tables.values import shown
from kernel_bandits_server.bodies import (
    as_action,
    as_flag,
    as_id,
    as_list,
    as_number,
    as_object,
    as_offer,
    as_rewards,
)
from kernel_bandits_server.commands import Activate, Command, Decide, Expire, Query, RefusedError, Reward, unknown_loop
from kernel_bandits_server.events import Event
from kernel_bandits_server.exchange import Call, Reply
from kernel_bandits_server.settings import ServiceSettings

_log = logging.getLogger("kernel_bandits_server")
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
# Random parts of the next ids: the system is asked for many at a time. A copy of the process must not use them too.
_RANDOM_BYTES, _AT_A_TIME = 10, 256
_random_parts: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random_parts.clear)


class Task(NamedTuple):
    """What a request asks of a loop.

    Attributes:
        command: to carry out.
        view: the reply to its result; may refuse.
    """

    command: Command
    view: Callable[[Any], Reply]


Maker: TypeAlias = Callable[[ServiceSettings, Call], Task]


def loop_of(settings: ServiceSettings, call: Call) -> str:
    """Return the loop that an address names, or the only one."""
    name = call.path.get("loop")
    if name is None:
        names = list(settings.loops)
        if len(names) != 1:
            message = "there are several loops; use the endpoint http://host/LOOP instead of http://host."
            raise RefusedError(404, "unknown_loop", message)
        name = names[0]
    if name not in settings.loops:
        raise unknown_loop()
    return name


def fresh_id() -> str:
    """Return an id that no other decision has; later ones sort after earlier ones, which databases like."""
    try:
        part = _random_parts.pop()
    except IndexError:
        digits, length = secrets.token_hex(_RANDOM_BYTES * _AT_A_TIME), 2 * _RANDOM_BYTES
        _random_parts.extend(digits[start : start + length] for start in range(length, len(digits), length))
        part = digits[:length]
    return f"{time.time_ns() // 1_000_000:011x}-{part}"


def as_decide(body: Any, most: int, has_arms: bool = True) -> tuple[Decide, bool]:
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
        as_offer(body.get("actions"), "actions", most, has_arms),
        box,
        tuple(as_action(one, "excluded") for one in as_list(body.get("excluded", []), "excluded", most)),
        not as_flag(body.get("deferred", False), "deferred"),
        None if played is None else as_action(played, "played"),
        played is not None,
        probability,
    )
    return command, as_flag(body.get("details", False), "details")


def decide(settings: ServiceSettings, call: Call) -> Task:
    """Choose an action."""
    has_arms = isinstance(settings.loops[call.path["loop"]].features.actions, Arms)
    command, details = as_decide(call.json(), settings.limits.actions, has_arms)
    view = _decided_in_detail if details else _decided
    if settings.log_contexts:
        view = partial(_logged, call.path["loop"], view)
    return Task(command, view)


def _decided(result: tuple[Event, bool]) -> Reply:
    event, repeated = result
    return Reply(decision_view(event, repeated, False), 200 if repeated else 201)


def _decided_in_detail(result: tuple[Event, bool]) -> Reply:
    event, repeated = result
    return Reply(decision_view(event, repeated, True), 200 if repeated else 201)


def _logged(loop: str, view: Callable[[Any], Reply], result: tuple[Event, bool]) -> Reply:
    event = result[0]
    facts = {"loop": loop, "id": event.decision, "context": event.body["context"]}
    _log.info("decision", extra={**facts, "action": event.body["action"]})
    return view(result)


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


def reward(_: ServiceSettings, call: Call) -> Task:
    """Learn what a decision earned."""
    body = as_object(call.json(), ("reward",), ("reward",))
    pairs = [(as_id(call.path["id"]), as_number(body["reward"], "reward"))]
    return Task(Reward(pairs), lambda results: outcome(results[0]))


def rewards(settings: ServiceSettings, call: Call) -> Task:
    """Learn what many decisions earned, each on its own; a malformed body is refused whole."""
    body = as_object(call.json(), ("rewards",), ("rewards",))
    pairs = as_rewards(as_list(body["rewards"], "rewards", settings.limits.batch), "rewards")
    return Task(Reward(pairs), _rewarded)


def _rewarded(results: list[dict[str, Any]]) -> Reply:
    return Reply({"counts": Counter(map(itemgetter("status"), results)), "results": results})


def activate(_: ServiceSettings, call: Call) -> Task:
    """Count a deferred decision as played."""
    return Task(Activate(as_id(call.path["id"])), outcome)


def expire(_: ServiceSettings, call: Call) -> Task:
    """Give up on the reward of a decision."""
    return Task(Expire(as_id(call.path["id"])), outcome)


def digest(_: ServiceSettings, __: Call) -> Task:
    """Return a digest of all bits of a loop's state, to compare processes with each other and with a replay."""
    query = Query(lambda replica: {"events": replica.applied, "digest": replica.digest()})
    return Task(query, Reply)


def outcome(result: dict[str, Any]) -> Reply:
    """Return the reply to what became of a reward, an activation or an expiry."""
    status = STATUS.get(result["status"])
    if status is not None:
        raise RefusedError(status, result["status"], result["message"])
    return Reply(result)


MAKERS: dict[str, Maker] = {
    "decide": decide,
    "reward": reward,
    "rewards": rewards,
    "activate": activate,
    "expire": expire,
    "digest": digest,
}
