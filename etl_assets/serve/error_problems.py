"""Problem details for the platform's errors: one table from the kind of error to the status.

The caller's errors are 4xx. 502, 503 and 504 say that a system outside, such as the caller's database,
refuses, is down or is slow.
"""

from __future__ import annotations

import logging

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
    (errors.CommitConflict, 409, "conflict"),
    (errors.TableBusy, 409, "conflict"),
    (errors.SourceRefused, 502, "outside-refuses"),
    (errors.SinkRefused, 502, "outside-refuses"),
    (errors.SourceUnavailable, 503, "outside-unavailable"),
    (errors.SinkUnavailable, 503, "outside-unavailable"),
    (errors.MirrorError, 503, "tables-unavailable"),
    (errors.DomainUnavailable, 503, "tables-unavailable"),
    (errors.StorageFailed, 503, "tables-unavailable"),
    (errors.FilesGone, 503, "tables-unavailable"),
    (errors.Unanswered, 504, "tables-slow"),
)
"""The first that fits counts; any other error is 500."""
_KEPT = {"tables-unavailable", "tables-slow"}
"""Kinds whose messages name paths of this machine, which are for its log."""


def problem_of(error: errors.EtlAssetsError) -> ProblemDetails:
    """Return what a client is told of an error."""
    found = next(((status, kind) for type_, status, kind in STATUS if isinstance(error, type_)), None)
    if found is None:
        logger.error("a request failed", exc_info=error)
        return ProblemDetails(500, "server-error", "the server failed; its log says why")
    status, kind = found
    headers = {"Retry-After": "5"} if status in (503, 504) else None
    if kind in _KEPT:
        logger.warning("the tables cannot be read: %s", error)
        return ProblemDetails(
            status, kind, "the tables cannot be read now; the server's log says why", headers=headers
        )
    detail = f"{error.message}: {error.fix}" if error.fix else error.message
    return ProblemDetails(status, kind, detail, headers=headers)


def answer_errors(app: FastAPI) -> None:
    """Let an app answer the platform's errors with problem details."""

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.EtlAssetsError)
        return problem_of(error).response(request)

    app.add_exception_handler(errors.EtlAssetsError, known)
