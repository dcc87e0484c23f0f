"""`GET /v1/pipelines/{name}/dead-letters`: the records that stages and sinks of a pipeline refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from etl_assets.contracts.reasons import DeadLetterReason, DeadLetterState
from etl_assets.control.routes.pipeline_of import pipeline_of
from etl_assets.observability.dead_letters import DeadLetterFilter, list_letters
from etl_assets.serve.access import Of, allow
from etl_assets.serve.description import NAME, described, page_schema, problems
from etl_assets.serve.pagination import PARAMETERS, bad_cursor, cursor_of, cursor_to, limit_of
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

_ALL = "all"
_STATES = [*(each.value for each in DeadLetterState), _ALL]
_REASONS = [each.value for each in DeadLetterReason]
_EXAMPLE = {
    "dead_letter_id": "3795bfb3a1c04c1f0e6d3c2ab8f5d9e77b0d0f7e5f4f0c9e6a5b4c3d2e1f0a9b",
    "stage": "film_ratings",
    "reason": "InvalidValue",
    "error": "stars is 7, and at most 5 is allowed",
    "source": "http",
    "source_position": "2026-02-01/20260201T120000000000-1f2e3d4c-000001k.jsonl:2",
    "state": "open",
    "failed_at": "2026-02-01T12:00:03+00:00",
}
router = APIRouter(tags=["dead letters"])


@router.get(
    "/v1/pipelines/{name}/dead-letters",
    summary="List the dead letters",
    operation_id="listDeadLetters",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE)],
    openapi_extra=described(
        page_schema(
            {"type": "object", "required": ["dead_letter_id", "stage", "reason", "state", "failed_at"]}
        ),
        {"data": [_EXAMPLE], "next": None},
        text="a page of the dead letters, the newest first, without their records",
        parameters=[
            NAME,
            {
                "name": "state",
                "in": "query",
                "schema": {"type": "string", "enum": _STATES, "default": DeadLetterState.OPEN.value},
            },
            {"name": "reason", "in": "query", "schema": {"type": "string", "enum": _REASONS}},
            *PARAMETERS,
        ],
    ),
    responses=problems(404, 422, 504),
)
async def list_dead_letters(request: Request) -> dict[str, Any]:
    """Return dead letters of a pipeline; `etl-assets dead-letters show` has one with its record."""
    service, name = Service.of(request), str(request.path_params["name"])
    state = _one_of(request, "state", _STATES) or DeadLetterState.OPEN.value
    reason = _one_of(request, "reason", _REASONS)
    limit, before = limit_of(request), _before(request)

    def page() -> dict[str, Any]:
        domain = service.settings.placement().reader()
        pipeline = pipeline_of(domain.catalog, name)
        stages = () if pipeline is None else pipeline.stages
        wanted = DeadLetterFilter(
            state=None if state == _ALL else DeadLetterState(state),
            stages=tuple(each.name_in_rejects for each in stages if each.rejects is not None),
            reason=None if reason is None else DeadLetterReason(reason),
            before=before,
        )
        found, total = list_letters(domain, wanted, limit=limit)
        last = cursor_to([found[-1].failed_at.isoformat(), found[-1].dead_letter_id]) if found else None
        shown = [each.as_json() for each in found]
        for each in shown:
            del each["record"]
        return {"data": shown, "next": last if len(found) < total else None}

    return await service.reads.read(("dead letters", name, state, reason, limit, before), page)


def _before(request: Request) -> tuple[dt.datetime, str] | None:
    """Return time and id of the last dead letter of the page before."""
    given = cursor_of(request)
    if given is None:
        return None
    try:
        at, letter = given
        found = dt.datetime.fromisoformat(at)
    except (TypeError, ValueError):
        raise bad_cursor() from None
    if not isinstance(letter, str) or found.tzinfo is None:
        raise bad_cursor()
    return found, letter


def _one_of(request: Request, parameter: str, allowed: list[str]) -> str | None:
    given = request.query_params.get(parameter)
    if given is not None and given not in allowed:
        raise ProblemDetails(
            422,
            f"unknown-{parameter}",
            f"{parameter}={given!r} is not known; use one of {', '.join(allowed)}",
            errors=[{"parameter": parameter, "allowed": allowed}],
        )
    return given
