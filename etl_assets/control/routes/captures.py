"""`GET /v1/captures/{name}/tables`: the tables of a capture, with phase, rows, lag and error."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from etl_assets.captures import table_views
from etl_assets.errors import NotFound
from etl_assets.pipelines.capture_files import find_capture
from etl_assets.pipelines.origin import DEFAULT_TENANT
from etl_assets.serve.access import allow, token_of
from etl_assets.serve.description import described, object_schema, problems
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope
from etl_assets.sources.captures.connect import capture_reader
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.table_retries import TableRetry

_TEXT, _COUNT = {"type": "string"}, {"type": ["integer", "null"]}
_NAME: dict[str, Any] = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "the capture",
    "schema": _TEXT,
    "example": "shop",
}
_ERROR = object_schema(
    {
        "reason": _TEXT,
        "solution": _TEXT,
        "retry_policy": {"enum": [each.value for each in TableRetry]},
        "next_attempt_at": {"type": ["string", "null"], "format": "date-time"},
        "attempts": {"type": "integer"},
        "ended_by": _TEXT,
        "needs_copy": {"type": "boolean"},
    }
)
_TRANSACTION = object_schema(
    {"commit_lsn": _TEXT, "parts": {"type": "integer"}, "changes": {"type": "integer"}}
)
_TABLE = object_schema(
    {
        "capture": _TEXT,
        "table": _TEXT,
        "pipeline": _TEXT,
        "phase": {"enum": [each.value for each in TablePhase]},
        "rows_copied": {"type": "integer"},
        "rows_total": _COUNT,
        "committed_lsn": _TEXT,
        "transaction": {"anyOf": [_TRANSACTION, {"type": "null"}]},
        "lag_bytes": _COUNT,
        "lag_seconds": {"type": ["number", "null"]},
        "error": {"anyOf": [_ERROR, {"type": "null"}]},
    }
)
_EXAMPLE = {
    "capture": "shop",
    "table": "public.film",
    "pipeline": "shop_film",
    "phase": "ready",
    "rows_copied": 1_000,
    "rows_total": 1_000,
    "committed_lsn": "0/16B3748",
    "transaction": None,
    "lag_bytes": 0,
    "lag_seconds": 0.0,
    "error": None,
}
router = APIRouter(tags=["tables"])


@router.get(
    "/v1/captures/{name}/tables",
    summary="Read the tables of a capture",
    operation_id="listCapturedTables",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ)],
    openapi_extra=described(
        object_schema({"data": {"type": "array", "items": _TABLE}}),
        {"data": [_EXAMPLE]},
        text="those that the token may see, as `etl-assets cdc tables --json` has them; `lag_bytes` is null"
        " if the source's server does not answer",
        parameters=[_NAME],
    ),
    responses=problems(404, 504),
)
async def list_captured_tables(request: Request) -> dict[str, Any]:
    """Return the tables of a capture. Captures are the operator's files: other tenants have none."""
    service, name, token = Service.of(request), str(request.path_params["name"]), token_of(request)
    if token.tenant != DEFAULT_TENANT:
        raise NotFound(f"there is no capture {name!r}", fix="see `etl-assets cdc tables`")

    def tables() -> list[dict[str, Any]]:
        capture = find_capture(service.settings.home, name)
        with closing(capture_reader(service.settings, capture)):
            return [each.as_json() for each in table_views(service.settings, capture.name)]

    found = await service.reads.read(("captured tables", name), tables)
    return {"data": [each for each in found if token.allows(Scope.READ, each["pipeline"])]}
