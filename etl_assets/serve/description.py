"""Parts of OpenAPI descriptions that routes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etl_assets.pipelines.spec_fields import MAX_NAME_CHARACTERS, NAME_PATTERN
from etl_assets.serve.problems import problem_responses

JSON = "application/json"
NAME: dict[str, Any] = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "the pipeline",
    "schema": {"type": "string", "pattern": f"^{NAME_PATTERN}$", "maxLength": MAX_NAME_CHARACTERS},
    "example": "film_ratings",
}
IF_NONE_MATCH: dict[str, Any] = {
    "name": "If-None-Match",
    "in": "header",
    "description": "the `ETag` that is known: an answer that did not change is 304",
    "schema": {"type": "string"},
}
PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["line", "field", "message", "fix", "value", "allowed"],
    "properties": {
        "line": {"type": ["integer", "null"], "description": "the line of the file; null over REST"},
        "field": {"type": "string", "description": "its place, such as `columns.stars.type`"},
        "message": {"type": "string"},
        "fix": {"type": "string", "description": "what to do"},
        "value": {"type": ["string", "null"], "description": "the value found, if one value is wrong"},
        "allowed": {
            "type": "array",
            "items": {"type": "string"},
            "description": "the values that it may have",
        },
    },
}


def object_schema(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of an object by its fields."""
    return {
        "type": "object",
        "required": [*required],
        "properties": {**required, **(optional or {})},
    }


def page_schema(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a page of a list."""
    cursor = {
        "type": ["string", "null"],
        "description": "the `cursor` of the next page; null: this is the last",
    }
    return object_schema({"data": {"type": "array", "items": entry}, "next": cursor})


def described(
    schema: Mapping[str, Any],
    example: Any,
    *,
    status: int = 200,
    text: str = "done",
    parameters: Sequence[Mapping[str, Any]] = (),
    body: Mapping[str, Any] | None = None,
    also: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the description of a route.

    Args:
        schema: The schema of its answer.
        example: An answer.
        status: The status of that answer.
        text: What the answer is.
        parameters: Its parameters.
        body: Its `requestBody`.
        also: Its other answers without problems, by status.
    """
    return {
        "parameters": [*parameters],
        **({} if body is None else {"requestBody": body}),
        "responses": {
            str(status): {"description": text, "content": {JSON: {"schema": schema, "example": example}}},
            **(also or {}),
        },
    }


def problems(*more: int, **texts: str) -> dict[int | str, dict[str, Any]]:
    """Return the problems of a route that needs a token.

    Args:
        more: Statuses of `PROBLEM_TEXTS`.
        texts: Others, as `s409="…"`.
    """
    found = {status: PROBLEM_TEXTS[status] for status in (401, 403, 503, *more)}
    return problem_responses(found | {int(name[1:]): text for name, text in texts.items()})


PROBLEM_TEXTS = {
    400: "the body is not JSON, or a header is not of its form",
    401: "no valid token",
    403: "the token has not the scope, or is not bound to the pipeline",
    404: "the tenant has nothing of that name",
    408: "the body took too long",
    409: "it is not as the request needs it",
    413: "the body is too long",
    415: "an unknown media type or encoding",
    422: "a parameter or the body is not valid; `errors` says where",
    503: "the server, the tables or a database cannot answer now",
    504: "the tables or a database are slow",
}
