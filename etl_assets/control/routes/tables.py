"""`GET /v1/pipelines/{name}/tables`: the state of a pipeline's tables."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from etl_assets.captures import captured_tables
from etl_assets.control.routes.pipeline_of import pipeline_of
from etl_assets.observability.table_states import table_states
from etl_assets.serve.access import Of, allow
from etl_assets.serve.description import NAME, described, object_schema, problems
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

_STATE = object_schema(
    {
        "name": {"type": "string"},
        "domain": {"type": "string"},
        "uri": {"type": "string"},
        "version": {"type": ["integer", "null"]},
        "rows": {"type": "integer"},
        "cursor": {"type": "object"},
        "last_commit_at": {"type": ["string", "null"]},
        "taken_back": {"type": "array", "items": {"type": "string"}},
        "lag_rows": {"type": ["integer", "null"]},
        "lag_seconds": {"type": ["number", "null"]},
        "asset": {"type": ["string", "null"]},
        "captured": {"type": ["object", "null"]},
    }
)
_EXAMPLE = {
    "name": "film_ratings",
    "domain": "local",
    "uri": "/srv/etl/data/tables/film_ratings",
    "version": 7,
    "rows": 1_200,
    "cursor": {"film_ratings_source/*": 7},
    "last_commit_at": "2026-02-01T12:00:03+00:00",
    "taken_back": [],
    "lag_rows": 0,
    "lag_seconds": 0.0,
    "asset": None,
    "captured": None,
}
router = APIRouter(tags=["tables"])


@router.get(
    "/v1/pipelines/{name}/tables",
    summary="Read the state of the tables",
    operation_id="listTables",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE)],
    openapi_extra=described(
        object_schema({"data": {"type": "array", "items": _STATE}}),
        {"data": [_EXAMPLE]},
        text="version, rows, cursors and lag of each, as `etl-assets tables --json` has them",
        parameters=[NAME],
    ),
    responses=problems(404, 504),
)
async def list_tables(request: Request) -> dict[str, Any]:
    """Return the state of a pipeline's tables. One that does not exist yet has no version."""
    service, name = Service.of(request), str(request.path_params["name"])

    def states() -> list[dict[str, Any]]:
        domain = service.settings.placement().reader()
        pipeline = pipeline_of(domain.catalog, name)
        names = () if pipeline is None else {each.name for stage in pipeline.stages for each in stage.tables}
        captured = captured_tables(service.settings, (name,))
        return [each.as_json() for each in table_states(domain, service.clock(), names, captured=captured)]

    return {"data": await service.reads.read(("tables", name), states)}
