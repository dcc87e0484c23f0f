"""Run control: `POST /v1/pipelines/{name}/run|pause|resume|cancel|retry`, its state, and the runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from etl_assets.control.records import PipelineControl, PipelineRun
from etl_assets.control.routes.run_views import (
    EXAMPLE_RUN,
    EXAMPLE_STATE,
    RUN,
    STATE,
    run_as_json,
    state_as_json,
)
from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import Action
from etl_assets.errors import NotFound
from etl_assets.serve.access import Of, allow, token_of
from etl_assets.serve.description import JSON, NAME, described, object_schema, page_schema, problems
from etl_assets.serve.json_body import read_object
from etl_assets.serve.pagination import PARAMETERS, bad_cursor, cursor_of, cursor_to, limit_of
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

MAX_REASON_CHARACTERS = 500
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "a repeated request under this key gets the run of the first one",
    "schema": {"type": "string", "pattern": r"^[\x21-\x7e]+$", "maxLength": 255},
}
_REASON = {"type": "string", "maxLength": MAX_REASON_CHARACTERS, "description": "why, for the history"}
_BODY: dict[str, Any] = {
    "required": False,
    "content": {JSON: {"schema": object_schema({}, {"reason": _REASON}), "example": {"reason": "late data"}}},
}
_REFUSED = "the state does not allow it; `state` and `allowed` say what it is and what it allows"
router = APIRouter(tags=["runs"])


@router.post(
    "/v1/pipelines/{name}/run",
    status_code=202,
    summary="Ask for a run",
    operation_id="run",
    response_class=JSONResponse,
    dependencies=[allow(Scope.OPERATE, Of.PIPELINE)],
    openapi_extra=described(
        RUN,
        EXAMPLE_RUN,
        status=202,
        text="the run: a new one, or one that waits already and has not begun",
        parameters=[NAME, _IDEMPOTENCY_KEY],
        body=_BODY,
    ),
    responses=problems(400, 404, 408, 413, 415, 422, 504, s409="the declaration has problems"),
)
async def run(request: Request) -> Response:
    """Ask for a run. While one is under way the request is remembered, and a new run follows."""
    service, token, name = Service.of(request), token_of(request), str(request.path_params["name"])
    reason, key = await _reason(request), _key_of(request)
    expect_usable(service, name)
    found = await service.store_calls.call(
        lambda: service.control.runs.request_run(name, token.client, reason, key=key)
    )
    location = {"Location": f"/v1/pipelines/{name}/runs/{found.id}"}
    return JSONResponse(run_as_json(found), 202, location)


def expect_usable(service: Service, name: str) -> None:
    """Refuse a run of a pipeline whose declaration cannot be used.

    Raises:
        ProblemDetails: it has problems.
    """
    declared = service.installed().declaration(name)
    if declared is not None and declared.spec is None:
        raise ProblemDetails(
            409,
            "broken-pipeline",
            f"the declaration of {name} has problems; `GET /v1/pipelines/{name}` shows them",
        )


def _add_action(action: Action, summary: str, perform: Callable[..., PipelineControl]) -> None:
    @router.post(
        f"/v1/pipelines/{{name}}/{action}",
        summary=summary,
        operation_id=action.value,
        response_class=JSONResponse,
        dependencies=[allow(Scope.OPERATE, Of.PIPELINE)],
        openapi_extra=described(
            STATE, EXAMPLE_STATE, text="the state after it", parameters=[NAME], body=_BODY
        ),
        responses=problems(400, 404, 408, 413, 415, 422, 504, s409=_REFUSED),
    )
    async def act(request: Request) -> dict[str, Any]:
        service, token, name = Service.of(request), token_of(request), str(request.path_params["name"])
        reason = await _reason(request)
        return state_as_json(
            await service.store_calls.call(lambda: perform(service.control.runs, name, token.client, reason))
        )


_add_action(Action.PAUSE, "Stop all work on a pipeline after its batch", RunControls.pause)
_add_action(Action.RESUME, "End a pause or a cancellation", RunControls.resume)
_add_action(Action.CANCEL, "Give the run up", RunControls.cancel)
_add_action(Action.RETRY, "Let a failed run go on from its last commit", RunControls.retry)


@router.get(
    "/v1/pipelines/{name}/state",
    summary="Read the state of run control",
    operation_id="readState",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE)],
    openapi_extra=described(
        STATE, EXAMPLE_STATE, text="the state, since when and why, and what it allows", parameters=[NAME]
    ),
    responses=problems(404, 504),
)
async def read_state(request: Request) -> dict[str, Any]:
    """Return the state of a pipeline's run control; `IDLE` if it was never controlled."""
    service, name = Service.of(request), str(request.path_params["name"])

    def look() -> PipelineControl:
        if not service.control.is_in_use:
            return PipelineControl(pipeline=name)
        return service.control.runs.state_of(name)

    return state_as_json(await service.store_calls.call(look))


@router.get(
    "/v1/pipelines/{name}/runs",
    summary="List the runs",
    operation_id="listRuns",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE)],
    openapi_extra=described(
        page_schema(RUN),
        {"data": [EXAMPLE_RUN], "next": None},
        text="a page of the runs, the newest first",
        parameters=[NAME, *PARAMETERS],
    ),
    responses=problems(404, 422, 504),
)
async def list_runs(request: Request) -> dict[str, Any]:
    """Return the runs that were asked for, with their figures and errors."""
    service, name = Service.of(request), str(request.path_params["name"])
    limit, before = limit_of(request), cursor_of(request)
    if before is not None and not isinstance(before, str):
        raise bad_cursor()

    def look() -> tuple[PipelineRun, ...]:
        if not service.control.is_in_use:
            return ()
        runs = service.control.runs
        if before is not None:
            _expect_of(runs, name, before)
        return runs.runs(name, before=before, limit=limit + 1)

    try:
        found = await service.store_calls.call(look)
    except NotFound:
        raise bad_cursor() from None
    return {
        "data": [run_as_json(each) for each in found[:limit]],
        "next": cursor_to(found[limit - 1].id) if len(found) > limit else None,
    }


@router.get(
    "/v1/pipelines/{name}/runs/{id}",
    summary="Read a run",
    operation_id="readRun",
    response_class=JSONResponse,
    dependencies=[allow(Scope.READ, Of.PIPELINE)],
    openapi_extra=described(RUN, EXAMPLE_RUN, text="the run", parameters=[NAME, _ID]),
    responses=problems(404, 504),
)
async def read_run(request: Request) -> dict[str, Any]:
    """Return what has become of a run."""
    service, name = Service.of(request), str(request.path_params["name"])
    run_id = str(request.path_params["id"])
    return run_as_json(await service.store_calls.call(lambda: _expect_of(service.control.runs, name, run_id)))


def _expect_of(runs: RunControls, name: str, run_id: str) -> PipelineRun:
    """Return a run of a pipeline.

    Raises:
        NotFound: the pipeline has none of this id.
    """
    missing = NotFound(
        f"{name} has no run {run_id!r}", fix=f"`GET /v1/pipelines/{name}/runs` lists them", id=run_id
    )
    if "\0" in run_id:
        raise missing
    try:
        found = runs.run(run_id)
    except NotFound:
        raise missing from None
    if found.pipeline != name:
        raise missing
    return found


async def _reason(request: Request) -> str:
    """Return why something is done, as the body says.

    Raises:
        ProblemDetails: the body has another field, or the reason is no short text.
    """
    body = await read_object(request, may_be_empty=True)
    unknown = [each for each in body if each != "reason"]
    reason = body.get("reason", "")
    if unknown or not isinstance(reason, str) or len(reason) > MAX_REASON_CHARACTERS or "\0" in reason:
        detail = f"a text of at most {MAX_REASON_CHARACTERS} characters, and no other field"
        pointer = f"/{unknown[0]}" if unknown else "/reason"
        raise ProblemDetails(
            422, "bad-reason", f"`reason` is {detail}", errors=[{"pointer": pointer, "detail": detail}]
        )
    return reason.strip()


def _key_of(request: Request) -> str:
    """Return the key of a request among those of all clients; empty without one.

    Raises:
        ProblemDetails: it is not one.
    """
    given = request.headers.get("idempotency-key")
    if given is None:
        return ""
    if not _KEY.fullmatch(given):
        raise ProblemDetails(400, "bad-key", "an Idempotency-Key has 1 to 255 visible ASCII characters")
    token, name = token_of(request), str(request.path_params["name"])
    return hashlib.sha256("\0".join((token.tenant, token.client, name, given)).encode()).hexdigest()
