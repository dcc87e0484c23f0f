"""Declare, replace and delete pipelines: `POST /v1/pipelines`, `PUT` and `DELETE /v1/pipelines/{name}`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from etl_assets.control.routes.pipeline_views import DETAIL, EXAMPLE, detail, tag_of_detail
from etl_assets.control.routes.validation import BODY
from etl_assets.serve.access import Of, allow, token_of
from etl_assets.serve.description import NAME, described, problems
from etl_assets.serve.entity_tags import expected_if_match, if_match
from etl_assets.serve.json_body import read_object
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

_IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "description": "the `ETag` of the declaration that the change is made on, or `*`",
    "schema": {"type": "string"},
}
_TAG = {"ETag": {"description": "its revision", "schema": {"type": "string"}}}
_EXAMPLE = EXAMPLE | {"origin": "rest", "read_only": False, "revision": 1}
_CONFLICTS = "it is declared in a file or in code, has changed, or others need it; `detail` says which"
router = APIRouter(tags=["pipelines"])


@router.post(
    "/v1/pipelines",
    status_code=201,
    summary="Declare a pipeline",
    operation_id="createPipeline",
    response_class=JSONResponse,
    dependencies=[allow(Scope.ADMIN)],
    openapi_extra=described(
        DETAIL,
        _EXAMPLE,
        status=201,
        text="it is declared",
        body=BODY,
        also={"200": {"description": "it was declared before, with the same declaration", "headers": _TAG}},
    ),
    responses=problems(400, 408, 413, 415, 422, 504, s409="the name is taken, or there are too many"),
)
async def create_pipeline(request: Request) -> Response:
    """Declare a pipeline. A declaration with problems is refused with all of them, and nothing is stored."""
    service, token = Service.of(request), token_of(request)
    content = await read_object(request)
    name = content.get("name")
    if isinstance(name, str) and not token.covers(name):
        raise ProblemDetails(
            403, "pipeline-not-allowed", f"the token {token.id} is not bound to the pipeline {name!r}"
        )
    made, is_new = await service.store_calls.call(
        lambda: service.control.definitions.create(content, token.tenant, token.client)
    )
    headers = {"Location": f"/v1/pipelines/{made.pipeline}"}
    return _shown(service, made.pipeline, 201 if is_new else 200, headers)


@router.put(
    "/v1/pipelines/{name}",
    summary="Replace the declaration of a pipeline",
    operation_id="replacePipeline",
    response_class=JSONResponse,
    dependencies=[allow(Scope.ADMIN, Of.PIPELINE)],
    openapi_extra=described(
        DETAIL, _EXAMPLE, text="it is declared so", body=BODY, parameters=[NAME, _IF_MATCH]
    ),
    responses=problems(
        400,
        404,
        408,
        413,
        415,
        422,
        504,
        s409=_CONFLICTS,
        s412="it is at another revision than `If-Match` names",
        s428="`If-Match` is missing",
    ),
)
async def replace_pipeline(request: Request) -> Response:
    """Replace a declaration that is still as `If-Match` has it. The same content again changes nothing."""
    service, token, name = Service.of(request), token_of(request), str(request.path_params["name"])
    matches = expected_if_match(request)
    content = await read_object(request)
    await service.store_calls.call(
        lambda: service.control.definitions.replace(name, content, token.tenant, token.client, matches)
    )
    return _shown(service, name)


@router.delete(
    "/v1/pipelines/{name}",
    status_code=204,
    summary="Delete a pipeline",
    operation_id="deletePipeline",
    response_class=Response,
    dependencies=[allow(Scope.ADMIN, Of.PIPELINE)],
    openapi_extra={
        "parameters": [NAME, _IF_MATCH],
        "responses": {"204": {"description": "it is deleted; its tables stay"}},
    },
    responses=problems(404, 504, s409=_CONFLICTS, s412="it is at another revision than `If-Match` names"),
)
async def delete_pipeline(request: Request) -> Response:
    """Delete a pipeline that was declared over REST. Its tables, its revisions and its name stay."""
    service, token, name = Service.of(request), token_of(request), str(request.path_params["name"])
    matches = if_match(request)
    await service.store_calls.call(
        lambda: service.control.definitions.delete(name, token.tenant, token.client, matches)
    )
    service.look_again()
    return Response(status_code=204)


def _shown(
    service: Service, name: str, status: int = 200, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return a pipeline as `GET` does."""
    service.look_again()
    found = detail(service.installed(), name)
    return JSONResponse(found, status, {"ETag": tag_of_detail(found), **(headers or {})})
