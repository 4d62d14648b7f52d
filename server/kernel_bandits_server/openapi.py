"""The OpenAPI document, drawn from the operations themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kernel_bandits.version import __version__
from kernel_bandits_server.bodies import ID, NO_IDS
from kernel_bandits_server.endpoint import Operation

_NAME = {"type": "string", "maxLength": 256}
# An older service may have made a decision with any id; a new one may not.
_ANY_ID = {"type": "string", "pattern": f"^{ID.pattern}$"}
ID_SCHEMA = {**_ANY_ID, "not": {"enum": list(NO_IDS)}}
NUMBER = {"type": "number", "minimum": -1e100, "maximum": 1e100}
_PROBABILITY = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
ACTION = {
    "description": "The name of an arm, or a row of features.",
    "anyOf": [_NAME, {"type": "number"}, {"type": "object"}],
}
_OUTCOME = {
    "type": "object",
    "required": ["id", "status"],
    "properties": {
        "id": _ANY_ID,
        "status": {
            "enum": ["learned", "held", "late", "repeated", "activated", "expired", "conflict", "unknown"],
        },
        "message": {"type": "string"},
    },
}
_DECISION = {
    "type": "object",
    "required": ["id", "action", "probability", "deferred"],
    "properties": {
        "id": ID_SCHEMA,
        "action": ACTION,
        "arm": {"description": "The name of the arm; null where actions have none."},
        "probability": {**_PROBABILITY, "description": "With which it was chosen; null if it was not left to chance."},
        "probabilities": {"type": ["array", "null"], "items": _PROBABILITY},
        "deferred": {"type": "boolean"},
        "repeated": {"type": "boolean", "description": "Whether this id was used before; the first decision holds."},
        "played": ACTION,
        "mean": {"type": "number"},
        "std": {"type": "number"},
        "model": {"type": "integer", "description": "The number of the last event that the model had learned."},
        "time": {"type": "number"},
    },
}
SCHEMAS: dict[str, Any] = {
    "Decision": _DECISION,
    "Outcome": _OUTCOME,
    "DecisionRequest": {
        "type": "object",
        "required": ["context"],
        "additionalProperties": False,
        "properties": {
            "id": {**ID_SCHEMA, "description": "Yours, so that a repeated request is one decision."},
            "context": {"type": "object", "description": "A value for each column of the loop."},
            "actions": {
                "description": "Names of arms, rows of features, or rows by name; all known arms unless given.",
                "anyOf": [
                    {"type": "array", "items": ACTION, "minItems": 1},
                    {"type": "object", "additionalProperties": {"type": "object"}, "minProperties": 1},
                    {"type": "null"},
                ],
            },
            "box": {"type": ["object", "null"], "description": "A range [low, high] for each column of an action."},
            "excluded": {"type": "array", "items": ACTION},
            "deferred": {"type": "boolean", "description": "Whether it is played only once it is activated."},
            "played": {"anyOf": [ACTION, {"type": "null"}], "description": "What you played, for an apprentice."},
            "played_probability": _PROBABILITY,
            "details": {"type": "boolean", "description": "Whether mean and standard deviation are wanted."},
        },
    },
    "RewardRequest": {
        "type": "object",
        "required": ["reward"],
        "additionalProperties": False,
        "properties": {"reward": NUMBER},
    },
    "RewardsRequest": {
        "type": "object",
        "required": ["rewards"],
        "additionalProperties": False,
        "properties": {
            "rewards": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "reward"],
                    "additionalProperties": False,
                    "properties": {"id": ID_SCHEMA, "reward": NUMBER},
                },
            }
        },
    },
    "Outcomes": {
        "type": "object",
        "required": ["counts", "results"],
        "properties": {
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "results": {"type": "array", "items": _OUTCOME},
        },
    },
    "RankRequest": {
        "type": "object",
        "required": ["actions"],
        "additionalProperties": False,
        "properties": {
            "contextFeatures": {"type": ["array", "null"], "items": {"type": "object"}},
            "actions": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["id"],
                    "additionalProperties": False,
                    "properties": {
                        "id": {**_NAME, "minLength": 1},
                        "features": {"type": ["array", "null"], "items": {"type": "object"}},
                    },
                },
            },
            "excludedActions": {"type": ["array", "null"], "items": {**_NAME, "minLength": 1}},
            "eventId": {"anyOf": [ID_SCHEMA, {"type": "null"}]},
            "deferActivation": {"type": ["boolean", "null"]},
        },
    },
    "Ranking": {
        "type": "object",
        "required": ["ranking", "eventId", "rewardActionId"],
        "properties": {
            "ranking": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id"],
                    "properties": {"id": _NAME, "probability": {"type": "number", "minimum": 0, "maximum": 1}},
                },
            },
            "eventId": ID_SCHEMA,
            "rewardActionId": _NAME,
        },
    },
    "ValueRequest": {
        "type": "object",
        "required": ["value"],
        "additionalProperties": False,
        "properties": {"value": NUMBER},
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
            }
        },
    },
    "Any": {"type": "object"},
}
_ERRORS = {
    400: "The body is no JSON.",
    401: "A key is missing or not known.",
    403: "The key lacks the role or, without keys, the request is not from this machine or from another page.",
    404: "There is no such loop or decision.",
    409: "It was said otherwise before; the first holds.",
    413: "The body is too long, or there are too many actions or rewards.",
    422: "A value is invalid; the message names it.",
    429: "Too many requests, or too many pending decisions.",
    503: "The database or the loop cannot take it now; repeat the request.",
}


def reference(name: str) -> dict[str, str]:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def document(operations: Sequence[Operation], loops: Sequence[str]) -> dict[str, Any]:
    """Return the document of some operations on loops of these names."""
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, loops)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kernel-bandits decision service",
            "version": __version__,
            "description": "Decisions and rewards of kernelised contextual bandits; nothing acknowledged is lost.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation, loops: Sequence[str]) -> dict[str, Any]:
    error = {"application/json": {"schema": reference("Error")}}
    parts = {"id": ID_SCHEMA, "loop": {"type": "string", "enum": list(loops)}}
    responses: dict[str, Any] = {}
    for status, schema in operation.responses.items():
        responses[str(status)] = {"description": "Done."}
        if schema is not None:
            kind, shape = schema if isinstance(schema, tuple) else ("application/json", reference(schema))
            responses[str(status)]["content"] = {kind: {"schema": shape}}
    for status, meaning in _ERRORS.items():
        responses.setdefault(str(status), {"description": meaning, "content": error})
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": responses,
        "parameters": [
            *(
                {"name": part, "in": "path", "required": True, "schema": parts[part]}
                for part in re.findall(r"{(\w+)}", operation.path)
            ),
            *operation.parameters,
        ],
    }
    if operation.request is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": operation.request}},
        }
    if operation.role is not None:
        described["security"] = [{"key": []}]
        described["description"] = f"Role: {operation.role}."
    return described
