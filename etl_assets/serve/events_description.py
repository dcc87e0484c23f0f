"""The OpenAPI description of `POST /v1/pipelines/{name}/events`: parameters, forms of the body, answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from etl_assets.contracts.reasons import EXCEPTIONAL_OUTCOMES, Outcome
from etl_assets.pipelines.spec_fields import MAX_NAME_CHARACTERS, NAME_PATTERN
from etl_assets.serve.problems import problem_responses
from etl_assets.serve.request_body import JSON_TYPE, LINES_TYPES


class Ack(StrEnum):
    """What a request is answered for."""

    DURABLE = "durable"
    COMMITTED = "committed"


MAX_KEY_CHARACTERS = 255
_EVENTS = {"type": "integer", "minimum": 1}
_POSITION = {"type": "string", "description": "`source_position` of the first event in `<name>_source`"}
_OUTCOME = {
    "type": "object",
    "required": ["outcome", "position"],
    "properties": {
        "outcome": {"enum": [each.value for each in (Outcome.ACCEPTED, *EXCEPTIONAL_OUTCOMES)]},
        "offset": {
            "type": "integer",
            "description": "offset in `<name>_source`; for a duplicate or a conflict that of the first event",
        },
        "position": {"type": "string", "description": "`source_position` of the event"},
        "id": {"type": "string", "description": "the event's id, for `etl-assets trace`"},
        "reason": {"type": "string", "description": "why it is a dead letter"},
        "error": {"type": "string", "description": "what exactly is wrong"},
    },
}
_FILE = "2026-02-01/20260201T120000000000-1f2e3d4c-000001k.jsonl"
DESCRIPTION: dict[str, Any] = {
    "security": [{"bearer": []}],
    "parameters": [
        {
            "name": "name",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^{NAME_PATTERN}$", "maxLength": MAX_NAME_CHARACTERS},
        },
        {
            "name": "ack",
            "in": "query",
            "description": (
                "`durable`: answer once the events are stored; `committed`: answer with what became of each, "
                "once the pipeline has read them"
            ),
            "schema": {"type": "string", "enum": [each.value for each in Ack], "default": Ack.DURABLE.value},
        },
        {
            "name": "timeout",
            "in": "query",
            "description": (
                "seconds to wait with `ack=committed`, at most and by default `serve.commit_timeout_seconds`"
            ),
            "schema": {"type": "number", "minimum": 0},
        },
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "a repeated request under this key gets the first one's answer",
            "schema": {"type": "string", "pattern": r"^[\x21-\x7e]+$", "maxLength": MAX_KEY_CHARACTERS},
        },
        {"name": "traceparent", "in": "header", "schema": {"type": "string"}},
    ],
    "requestBody": {
        "required": True,
        "content": {
            JSON_TYPE: {
                "schema": {
                    "anyOf": [
                        {"type": "object"},
                        {"type": "array", "minItems": 1, "items": {"type": "object"}},
                    ]
                },
                "example": {"id": 1, "film": "Metropolis"},
            },
            LINES_TYPES[0]: {"schema": {"type": "string"}},
        },
    },
    "responses": {
        "200": {
            "description": "`ack=committed`: what became of each event, in the order of the request",
            "content": {
                JSON_TYPE: {
                    "schema": {
                        "type": "object",
                        "required": ["status", "events", "position", "outcomes"],
                        "properties": {
                            "status": {"const": Ack.COMMITTED.value},
                            "events": _EVENTS,
                            "position": _POSITION,
                            "outcomes": {"type": "array", "minItems": 1, "items": _OUTCOME},
                        },
                    },
                    "example": {
                        "status": Ack.COMMITTED.value,
                        "events": 2,
                        "position": f"{_FILE}:2",
                        "outcomes": [
                            {"outcome": "accepted", "offset": 7, "position": f"{_FILE}:2", "id": "1"},
                            {
                                "outcome": "rejected",
                                "position": f"{_FILE}:3",
                                "reason": "MissingField",
                                "error": "rating_id is missing",
                            },
                        ],
                    },
                }
            },
        },
        "202": {
            "description": "the events are durable in a majority of the ingest domains",
            "content": {
                JSON_TYPE: {
                    "schema": {
                        "type": "object",
                        "required": ["status", "events", "position"],
                        "properties": {
                            "status": {"const": Ack.DURABLE.value},
                            "events": _EVENTS,
                            "position": _POSITION,
                            "detail": {
                                "type": "string",
                                "description": "`ack=committed`: why there are no outcomes yet",
                            },
                        },
                    },
                    "examples": {
                        "durable": {
                            "value": {"status": Ack.DURABLE.value, "events": 1, "position": f"{_FILE}:2"}
                        },
                        "not committed": {
                            "value": {
                                "status": Ack.DURABLE.value,
                                "events": 1,
                                "position": f"{_FILE}:2",
                                "detail": "the events are stored, and not committed yet: no worker runs; …",
                            }
                        },
                    },
                }
            },
        },
    },
}
PROBLEMS = problem_responses(
    {
        400: "the body is not what its headers say",
        401: "no valid token",
        403: "the token does not allow the pipeline",
        404: "no such pipeline",
        408: "the body took too long",
        413: "too many bytes or events",
        415: "an unknown media type or encoding",
        409: "`ack=committed`, one object: its id was accepted before with other content",
        422: (
            "events that are no objects, a wrong parameter, a key that was used for other content, or with"
            " `ack=committed` one object that was rejected"
        ),
        429: "too many events of this token",
        503: "too much is waiting, or no majority of the domains stored the events",
    }
)
