"""`GET /v1/pipelines/{name}/revisions` and `…/revisions/{revision}`: how a declaration over REST changed."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from etl_assets.control.revisions import Revision
from etl_assets.control.routes.validation import EXAMPLE_DECLARATION
from etl_assets.errors import NotFound
from etl_assets.serve.access import Of, allow
from etl_assets.serve.description import NAME, described, object_schema, page_schema, problems
from etl_assets.serve.pagination import PARAMETERS, bad_cursor, cursor_of, cursor_to, limit_of
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

_FIELDS: dict[str, Any] = {
    "revision": {"type": "integer"},
    "at": {"type": "string"},
    "actor": {"type": "string", "description": "the client"},
    "deleted": {"type": "boolean", "description": "whether it deleted the pipeline"},
}
_DECLARATION = {"type": ["object", "null"], "description": "as it was sent; null: deleted"}
_EXAMPLE = {"revision": 2, "at": "2026-02-01T12:00:03+00:00", "actor": "robot", "deleted": False}
_MAX_REVISION = 2**62
router = APIRouter(tags=["pipelines"])


@router.get(
    "/v1/pipelines/{name}/revisions",
    summary="List the revisions of a declaration",
    operation_id="listRevisions",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE)],
    openapi_extra=described(
        page_schema(object_schema(_FIELDS)),
        {"data": [_EXAMPLE], "next": None},
        text="a page of its revisions, the newest first; none of one that is not declared over REST",
        parameters=[NAME, *PARAMETERS],
    ),
    responses=problems(404, 422, 504),
)
async def list_revisions(request: Request) -> dict[str, Any]:
    """Return who changed a declaration over REST, and when."""
    service, name = Service.of(request), str(request.path_params["name"])
    limit, before = limit_of(request), cursor_of(request)
    if before is not None and (type(before) is not int or not 0 < before < _MAX_REVISION):
        raise bad_cursor()
    found = await _revisions(service, name, before, limit + 1)
    return {
        "data": [each.as_json() for each in found[:limit]],
        "next": cursor_to(found[limit - 1].revision) if len(found) > limit else None,
    }


@router.get(
    "/v1/pipelines/{name}/revisions/{revision}",
    summary="Read a revision of a declaration",
    operation_id="readRevision",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE)],
    openapi_extra=described(
        object_schema({**_FIELDS, "declaration": _DECLARATION}),
        {**_EXAMPLE, "declaration": EXAMPLE_DECLARATION},
        text="the revision, with the declaration as it was sent",
        parameters=[
            NAME,
            {"name": "revision", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1}},
        ],
    ),
    responses=problems(404, 504),
)
async def read_revision(request: Request) -> dict[str, Any]:
    """Return one revision. To go back to it, send its declaration with `PUT`."""
    service, name = Service.of(request), str(request.path_params["name"])
    given = str(request.path_params["revision"])
    wanted = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else 0
    found = await _revisions(service, name, wanted + 1, 1)
    if not found or found[0].revision != wanted:
        raise NotFound(
            f"{name} has no revision {given!r}", fix=f"`GET /v1/pipelines/{name}/revisions` lists them"
        )
    return {**found[0].as_json(), "declaration": found[0].declaration}


async def _revisions(service: Service, name: str, before: int | None, limit: int) -> tuple[Revision, ...]:
    def look() -> tuple[Revision, ...]:
        if not service.control.is_in_use:
            return ()
        return service.control.revisions.of_pipeline(name, before=before, limit=limit)

    return await service.store_calls.call(look)
