"""`GET /v1/pipelines` and `GET /v1/pipelines/{name}`: the pipelines of a tenant, and their declarations."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from etl_assets.control.routes.pipeline_views import (
    DETAIL,
    EXAMPLE,
    SUMMARY,
    detail,
    summaries,
    tag_of_detail,
)
from etl_assets.serve.access import Of, allow, token_of
from etl_assets.serve.description import IF_NONE_MATCH, NAME, described, page_schema, problems
from etl_assets.serve.entity_tags import tagged_answer
from etl_assets.serve.pagination import PARAMETERS, page_by_name
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

router = APIRouter(tags=["pipelines"])


@router.get(
    "/v1/pipelines",
    summary="List the pipelines",
    operation_id="listPipelines",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ)],
    openapi_extra=described(
        page_schema(SUMMARY),
        {"data": [{key: EXAMPLE[key] for key in SUMMARY["required"]}], "next": None},
        text="a page of the tenant's pipelines, by name",
        parameters=PARAMETERS,
    ),
    responses=problems(422),
)
async def list_pipelines(request: Request) -> dict[str, Any]:
    """Return the pipelines of the token's tenant that the token is bound to."""
    token = token_of(request)
    found = summaries(Service.of(request).installed(), token.tenant)
    return page_by_name(request, [each for each in found if token.covers(each["name"])])


@router.get(
    "/v1/pipelines/{name}",
    summary="Read a pipeline",
    operation_id="readPipeline",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE)],
    openapi_extra=described(
        DETAIL,
        EXAMPLE,
        text="its declaration with all defaults, and its tables",
        parameters=[NAME, IF_NONE_MATCH],
        also={"304": {"description": "it is as `If-None-Match` has it"}},
    ),
    responses=problems(404),
)
async def read_pipeline(request: Request) -> Response:
    """Return the declaration of a pipeline. Texts that name environment variables are as declared."""
    found = detail(Service.of(request).installed(), str(request.path_params["name"]))
    return tagged_answer(request, found, tag_of_detail(found))
