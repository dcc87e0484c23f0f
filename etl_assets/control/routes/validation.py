"""`POST /v1/pipelines/validate` and `POST /v1/pipelines/{name}/validate`: a dry run; nothing is stored."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from etl_assets.control.declarations import Verdict, declaration_of, judged
from etl_assets.installed import contract_in
from etl_assets.pipelines.json_schema import pipeline_schema
from etl_assets.pipelines.resolved import resolved
from etl_assets.serve.access import Of, allow, token_of
from etl_assets.serve.description import JSON, NAME, PROBLEM, described, object_schema, problems
from etl_assets.serve.json_body import read_object
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

EXAMPLE_DECLARATION: dict[str, Any] = {
    "name": "film_ratings",
    "source": {"type": "http", "id": ["rating_id"]},
    "columns": {"rating_id": "bigint", "film": {"type": "string", "required": True}},
    "table": {"keys": ["rating_id"]},
}
BODY: dict[str, Any] = {
    "required": True,
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "description": "a pipeline file as JSON: `GET /v1/schema` has its schema",
            },
            "example": EXAMPLE_DECLARATION,
        }
    },
}
_ANSWER = object_schema(
    {
        "valid": {"type": "boolean"},
        "problems": {"type": "array", "items": PROBLEM},
        "declaration": {"type": ["object", "null"], "description": "with all defaults; null with problems"},
        "tables": {"type": "array", "items": {"type": "object"}},
    }
)
_EXAMPLE = {
    "valid": False,
    "problems": [
        {
            "line": None,
            "field": "source.type",
            "message": "`type`: `htp` is not known",
            "fix": "did you mean `http`? use one of `files`, `http`, `kafka`, `sql`",
            "value": "htp",
            "allowed": ["files", "http", "kafka", "sql"],
        }
    ],
    "declaration": None,
    "tables": [],
}
_PROBLEMS = problems(400, 408, 413, 415, 422)
router = APIRouter(tags=["pipelines"])


@router.get(
    "/v1/schema",
    summary="The JSON Schema of a declaration",
    operation_id="readSchema",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ)],
    openapi_extra=described(
        {"type": "object"}, {"title": "Pipeline of etl-assets"}, text="JSON Schema 2020-12"
    ),
    responses=problems(),
)
async def read_schema() -> JSONResponse:
    """Return the schema of a pipeline file and of a declaration over REST."""
    return JSONResponse(pipeline_schema())


@router.post(
    "/v1/pipelines/validate",
    summary="Validate a declaration",
    operation_id="validate",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ)],
    openapi_extra=described(_ANSWER, _EXAMPLE, text="what is wrong with it", body=BODY),
    responses=_PROBLEMS,
)
async def validate(request: Request) -> dict[str, Any]:
    """Say what is wrong with a declaration. Nothing is stored, and no database is asked."""
    return await _validated(request, None)


@router.post(
    "/v1/pipelines/{name}/validate",
    summary="Validate a declaration for a name",
    operation_id="validateNamed",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE_NAME)],
    openapi_extra=described(_ANSWER, _EXAMPLE, text="what is wrong with it", body=BODY, parameters=[NAME]),
    responses=_PROBLEMS,
)
async def validate_named(request: Request) -> dict[str, Any]:
    """Say what is wrong with a declaration that is to be, or to replace, the pipeline of the name."""
    return await _validated(request, str(request.path_params["name"]))


async def _validated(request: Request, name: str | None) -> dict[str, Any]:
    service, token = Service.of(request), token_of(request)
    body = await read_object(request)

    def judge() -> dict[str, Any]:
        return shown(judged(service.settings, declaration_of(service.settings, body, name, token.tenant)))

    return await service.reads.read(("validate", id(body)), judge)


def shown(verdict: Verdict) -> dict[str, Any]:
    """Return what is said of a declaration."""
    file = verdict.file
    found: dict[str, Any] = {"declaration": None, "tables": []}
    if file.spec is not None:
        found = resolved(file, contract_in(verdict.contracts))
    return {
        "valid": file.spec is not None,
        "problems": [each.as_json() for each in file.problems],
        **found,
    }
