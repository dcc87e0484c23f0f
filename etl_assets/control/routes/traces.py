"""`GET /v1/events/{id}/trace`: what became of a record."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from etl_assets.observability.find_history import histories_of, json_value
from etl_assets.serve.access import allow, no_such_pipeline, token_of
from etl_assets.serve.description import described, object_schema, problems
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

router = APIRouter(tags=["events"])


@router.get(
    "/v1/events/{id:path}/trace",
    summary="Trace an event",
    operation_id="traceEvent",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ)],
    openapi_extra=described(
        object_schema({"happenings": {"type": "array", "items": {"type": "object"}}}),
        {"happenings": [{"stage": "film_ratings_source", "outcome": "accepted", "offset": 1}]},
        text="its history, as `etl-assets trace --json` has it",
        parameters=[
            {
                "name": "id",
                "in": "path",
                "required": True,
                "description": "the event's id, or the value of the declared `id`",
                "schema": {"type": "string"},
            },
            {
                "name": "pipeline",
                "in": "query",
                "description": "look in this pipeline alone",
                "schema": {"type": "string"},
            },
        ],
    ),
    responses=problems(404, 504, s409="several pipelines have a record of that id; name one with `pipeline`"),
)
async def trace_event(request: Request) -> Response:
    """Return what every stage and sink made of a record, and when."""
    service, token = Service.of(request), token_of(request)
    record_id, pipeline = str(request.path_params["id"]), request.query_params.get("pipeline")
    names = [each for each in service.names_of(token.tenant) if token.covers(each)]
    if pipeline is not None:
        if pipeline not in names:
            raise no_such_pipeline(service, token, pipeline)
        names = [pipeline]

    def look() -> dict[str, Any]:
        return {
            name: each.as_json() for name, each in histories_of(service.settings, record_id, names).items()
        }

    found = await service.reads.read(("trace", record_id, *names), look)
    if len(found) > 1:
        raise ProblemDetails(
            409,
            "several-records",
            f"{len(found)} pipelines have a record {record_id!r}: name one, as in"
            f" ?pipeline={next(iter(found))}",
            pipelines=[*found],
        )
    content = json.dumps(next(iter(found.values())), default=json_value)
    return Response(content, media_type="application/json")
