"""The routes of Azure Personalizer v1.0, so that its orphaned clients keep working.

A context is the union of the objects in ``contextFeatures``, and the features of an action the union of those of the
action; nested objects become ``outer.inner``. The columns have to be described in the loop's file.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kernel_bandits.errors import InputError
from kernel_bandits.tables import Arms
from kernel_bandits.tables.values import shown
from kernel_bandits_server.api import Maker, Task, fresh_id, loop_of
from kernel_bandits_server.bodies import as_flag, as_id, as_list, as_number, as_object, require_distinct
from kernel_bandits_server.commands import Activate, Decide, RefusedError, Reward
from kernel_bandits_server.events import Event
from kernel_bandits_server.exchange import Call, Reply
from kernel_bandits_server.settings import ServiceSettings

RANK_KEYS = ("contextFeatures", "actions", "excludedActions", "eventId", "deferActivation")
DEEPEST = 20


def rank(settings: ServiceSettings, call: Call) -> Task:
    """Rank actions: the first is to be played."""
    body = as_object(call.json(), RANK_KEYS, ("actions",))
    loop, most = settings.loops[loop_of(settings, call)], settings.limits.actions
    actions = [as_object(one, ("id", "features"), ("id",)) for one in as_list(body["actions"], "actions", most)]
    names = [_name(one["id"]) for one in actions]
    if not names or len(set(names)) < len(names):
        raise InputError("actions: expected at least one action, each with an id of its own.")
    described = isinstance(loop.features.actions, Arms) and loop.features.actions.columns is not None
    offer: Any = names
    if described:
        offer = {key: _flat(one.get("features")) for key, one in zip(names, actions, strict=True)}
    elif not isinstance(loop.features.actions, Arms):
        offer = [_flat(one.get("features")) for one in actions]
        require_distinct(offer, "actions", has_arms=False)
    excluded = tuple(_name(one) for one in as_list(body.get("excludedActions") or [], "excludedActions", most))
    given = body.get("eventId")
    command = Decide(
        fresh_id() if given is None else as_id(given, "eventId", is_new=True),
        given is not None,
        _flat(body.get("contextFeatures")),
        offer,
        None,
        excluded,
        not as_flag(body.get("deferActivation") or False, "deferActivation"),
    )
    return Task(command, partial(_ranked, names, offer))


def _ranked(names: list[str], offer: Any, result: tuple[Event, bool]) -> Reply:
    event = result[0]
    best = _chosen(event.body, names, offer)
    # the model knows the probability of what it chose, and where it can those of all
    known = event.body["probabilities"]
    ranking = []
    for place, key in enumerate(names):
        probability = event.body["propensity"] if key == best else None
        if known is not None and len(known) == len(names):
            probability = known[place]
        ranking.append({"id": key, **({} if probability is None else {"probability": probability})})
    ranking.sort(key=lambda one: one["id"] != best)
    return Reply({"ranking": ranking, "eventId": event.decision, "rewardActionId": best}, 201)


def reward(_: ServiceSettings, call: Call) -> Task:
    """Learn what an event earned."""
    body = as_object(call.json(), ("value",), ("value",))
    pairs = [(as_id(call.path["id"], "eventId"), as_number(body["value"], "value"))]
    return Task(Reward(pairs), lambda results: _done(results[0]))


def activate(_: ServiceSettings, call: Call) -> Task:
    """Count a deferred event as played."""
    return Task(Activate(as_id(call.path["id"], "eventId")), _done)


def configuration(settings: ServiceSettings, call: Call) -> Reply:
    """Return the settings of the loop in Personalizer's words; they are changed in the loop's file."""
    loop = settings.loops[loop_of(settings, call)]
    return Reply(
        {
            "rewardWaitTime": _duration(loop.silence.after),
            "defaultReward": loop.silence.reward or 0.0,
            "rewardAggregation": "earliest",
            "explorationPercentage": loop.exploration_floor,
            "modelExportFrequency": "PT0S",
            "logRetentionDays": -1,
            "learningMode": "Apprentice" if loop.apprentice else "Online",
        }
    )


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 256:
        raise InputError(f"actions: expected an id of 1 to 256 characters, got {shown(value)}.")
    return value


def _flat(features: Any) -> dict[str, Any]:
    """Return the union of a list of objects, with nested ones under dotted names."""
    flat: dict[str, Any] = {}
    waiting = [
        ("", one, 0) for one in (features if isinstance(features, list) else [] if features is None else [features])
    ]
    while waiting:
        prefix, value, depth = waiting.pop(0)
        if not isinstance(value, dict) or depth > DEEPEST:
            raise InputError(
                f"features: expected a list of objects, nested at most {DEEPEST} deep, got {shown(value)}."
            )
        for key, item in value.items():
            if isinstance(item, dict):
                waiting.append((f"{prefix}{key}.", item, depth + 1))
            elif f"{prefix}{key}" in flat:
                raise InputError(f"features: {shown(prefix + key)} stands there twice.")
            else:
                flat[f"{prefix}{key}"] = item
    return flat


def _chosen(body: dict[str, Any], names: list[str], offer: Any) -> str:
    """Return the id of the action that was chosen."""
    if body["arm"] is not None:
        return str(body["arm"])
    place = offer.index(body["action"]) if body["action"] in offer else 0
    return names[place]


def _done(result: dict[str, Any]) -> Reply:
    # Personalizer takes rewards for events that it does not know, and ignores them; saying so is of more use
    if result["status"] == "unknown":
        raise RefusedError(404, "EventNotFound", result["message"])
    if result["status"] == "conflict":
        raise RefusedError(409, "RewardConflict", result["message"])
    return Reply(None, 204)


def _duration(seconds: float) -> str:
    return f"PT{seconds:g}S"


MAKERS: dict[str, Maker] = {
    "personalizer_rank": rank,
    "personalizer_reward": reward,
    "personalizer_activate": activate,
}
