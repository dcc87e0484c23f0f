"""Problem details for the platform's errors: one table from the kind of error to the status.

The caller's errors are 4xx. 502, 503 and 504 say that a system outside, such as the caller's database,
refuses, is down or is slow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response

from etl_assets import errors
from etl_assets.serve.problems import ProblemDetails

logger = logging.getLogger("etl_assets.serve")

STATUS: tuple[tuple[type[errors.EtlAssetsError], int, str], ...] = (
    (errors.NotFound, 404, "not-found"),
    (errors.InputError, 422, "invalid-request"),
    (errors.ContractError, 422, "invalid-request"),
    (errors.PipelinesBroken, 422, "invalid-request"),
    (errors.DeclarationRefused, 422, "invalid-declaration"),
    (errors.DeclarationConflict, 409, "conflict"),
    (errors.TransitionRefused, 409, "transition-refused"),
    (errors.CommitConflict, 409, "conflict"),
    (errors.TableBusy, 409, "conflict"),
    (errors.SourceRefused, 502, "outside-refuses"),
    (errors.SinkRefused, 502, "outside-refuses"),
    (errors.SourceUnavailable, 503, "outside-unavailable"),
    (errors.SinkUnavailable, 503, "outside-unavailable"),
    (errors.ControlStoreUnavailable, 503, "control-store-unavailable"),
    (errors.ControlStoreUnusable, 503, "control-store-unavailable"),
    (errors.MirrorError, 503, "tables-unavailable"),
    (errors.DomainUnavailable, 503, "tables-unavailable"),
    (errors.StorageFailed, 503, "tables-unavailable"),
    (errors.FilesGone, 503, "tables-unavailable"),
    (errors.Unanswered, 504, "tables-slow"),
)
"""The first that fits counts; any other error is 500."""
_KEPT = {
    "control-store-unavailable": "the control store cannot be used now; the server's log says why. Whether"
    " the request was done is unknown: send it again",
    "tables-slow": "the tables cannot be read now; the server's log says why",
    "tables-unavailable": "the tables cannot be read now; the server's log says why",
}
"""Kinds whose messages name paths of this machine, which are for its log, and what is said instead."""


def problem_of(error: errors.EtlAssetsError) -> ProblemDetails:
    """Return the problem that a client gets for an error."""
    found = next(((status, kind) for type_, status, kind in STATUS if isinstance(error, type_)), None)
    if found is None:
        logger.error("a request failed", exc_info=error)
        return ProblemDetails(500, "server-error", "the server failed; its log says why")
    status, kind = found
    headers = {"Retry-After": "5"} if status in (503, 504) else None
    if kind in _KEPT:
        logger.warning("a request was answered with %d: %s", status, error)
        return ProblemDetails(status, kind, _KEPT[kind], headers=headers)
    detail = f"{error.message}: {error.fix}" if error.fix else error.message
    fields = cast("Mapping[str, Any]", error.fields)
    match error:
        case errors.DeclarationRefused():
            found = [each.as_json() for each in fields["problems"]]
            return ProblemDetails(status, kind, detail, errors=found)
        case errors.DeclarationConflict(kind="changed"):
            return ProblemDetails(412, "changed", detail, revision=fields["revision"])
        case errors.DeclarationConflict():
            return ProblemDetails(status, fields["kind"], detail)
        case errors.TransitionRefused():
            allowed = [*fields["allowed"]]
            return ProblemDetails(status, kind, detail, state=fields["state"], allowed=allowed)
    return ProblemDetails(status, kind, detail, headers=headers)


def answer_errors(app: FastAPI) -> None:
    """Let an app answer the platform's errors with problem details."""

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.EtlAssetsError)
        return problem_of(error).response(request)

    app.add_exception_handler(errors.EtlAssetsError, known)
