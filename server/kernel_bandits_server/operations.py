"""Every operation of the service: its address, the role it needs, who carries it out, and its description."""

from __future__ import annotations

from kernel_bandits_server import front
from kernel_bandits_server.endpoint import Operation
from kernel_bandits_server.openapi import reference

LOOP = "/v1/loops/{loop}"
DECISION = LOOP + "/decisions/{id}"


def operations() -> list[Operation]:
    """Return every operation; the most frequent first, since the router tries them in order."""
    return [
        *_deciding(),
        *_reading(),
        *_running(),
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
            "decide",
            "Choose an action",
            reference("DecisionRequest"),
            {201: "Decision", 200: "Decision"},
        ),
        Operation(
            "POST",
            f"{one}/reward",
            "reward",
            "reward",
            "reward",
            "Say what a decision earned",
            reference("RewardRequest"),
            outcome,
        ),
        Operation(
            "POST",
            f"{loop}/rewards",
            "rewards",
            "reward",
            "rewards",
            "Say what many decisions earned",
            reference("RewardsRequest"),
            {200: "Outcomes"},
        ),
        Operation(
            "POST",
            f"{one}/activate",
            "activate",
            "decide",
            "activate",
            "Say that a deferred decision was played",
            None,
            outcome,
        ),
        Operation("POST", f"{one}/expire", "expire", "reward", "expire", "Give up on a reward", None, outcome),
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
            "GET", one, "decision", "read", "decision", "A decision and what became of it", None, {200: "Decision"}
        ),
        Operation(
            "GET",
            f"{one}/explanation",
            "explanation",
            "read",
            "explanation",
            "Why the action looks good",
            None,
            {200: "Any"},
        ),
        Operation("GET", "/v1/loops", "loops", "read", "loops", "The names of the loops", None, {200: "Any"}),
        Operation(
            "GET", loop, "loop", "read", "loop", "Rewards, arms, model and warnings of a loop", None, {200: "Any"}
        ),
        Operation(
            "GET",
            f"{loop}/response",
            "response",
            "read",
            "response",
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
            front.watch,
            "The state of a loop whenever it changes, and at times while decisions wait",
            None,
            {200: stream},
        ),
        Operation(
            "GET",
            f"{loop}/log",
            "log",
            "read",
            front.log,
            "Decisions and rewards, a JSON object a line",
            None,
            {200: lines},
            (after, rewarded),
        ),
        Operation(
            "GET", f"{loop}/digest", "digest", "administer", "digest", "A digest of the state", None, {200: "Any"}
        ),
    ]


def _running() -> list[Operation]:
    return [
        Operation("GET", "/healthz", "health", None, front.health, "Whether the process runs", None, {200: "Any"}),
        Operation("GET", "/readyz", "ready", None, front.ready, "Whether every loop decides", None, {200: "Any"}),
        Operation(
            "GET",
            "/metrics",
            "metrics",
            "read",
            front.metrics,
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
            "personalizer_rank",
            "Rank actions, as Azure Personalizer did",
            reference("RankRequest"),
            {201: "Ranking"},
        ),
        Operation(
            "POST",
            f"{event}/reward",
            f"personalizer_reward{suffix}",
            "reward",
            "personalizer_reward",
            "Reward an event",
            reference("ValueRequest"),
            {204: None},
        ),
        Operation(
            "POST",
            f"{event}/activate",
            f"personalizer_activate{suffix}",
            "decide",
            "personalizer_activate",
            "Activate an event",
            None,
            {204: None},
        ),
        Operation(
            "GET",
            f"{prefix}/configurations/service",
            f"personalizer_configuration{suffix}",
            "read",
            front.configuration,
            "The loop's settings",
            None,
            {200: "Any"},
        ),
    ]
