"""A body that is one JSON object, for all but events: read within limits."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request

from etl_assets.pipelines.yaml_tree import MAX_BYTES, MAX_DEPTH, MAX_VALUES
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.small_body import read_small_body

JSON_TYPES = ("application/json", "application/merge-patch+json")


async def read_object(request: Request, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Return the object that a body is. A declaration may have no more than a pipeline file.

    Args:
        request: The request.
        may_be_empty: Whether no body stands for `{}`.

    Raises:
        ProblemDetails: it is no JSON object, or too large.
    """
    body = await read_small_body(request, min(MAX_BYTES, Service.of(request).limits.max_bytes))
    if may_be_empty and not body.strip():
        return {}
    kind = request.headers.get("content-type", JSON_TYPES[0]).partition(";")[0].strip().lower()
    if kind not in JSON_TYPES:
        raise ProblemDetails(415, "unsupported-media-type", f"Content-Type {kind!r}; use {JSON_TYPES[0]}")
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProblemDetails(400, "not-json", f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ProblemDetails(422, "not-an-object", "the body is to be one JSON object")
    _expect_small(found)
    return found


def _expect_small(content: dict[str, Any]) -> None:
    level, values = [content], 0
    for _ in range(MAX_DEPTH):
        values += len(level)
        if values > MAX_VALUES:
            raise ProblemDetails(413, "too-many-values", f"the body has more than {MAX_VALUES:,} values")
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise ProblemDetails(422, "too-deep", f"the body has more than {MAX_DEPTH} levels")
