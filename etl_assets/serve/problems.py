"""Problem details (RFC 9457): the form of every error that the server answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

logger = logging.getLogger("etl_assets.serve")
MEDIA_TYPE = "application/problem+json"


class ProblemDetails(Exception):
    """An error that is reported to the client.

    Args:
        status: The status.
        kind: Last part of its `type`: what happened, in words that do not change.
        detail: What happened this time, and what to do.
        errors: Its parts, each with a JSON pointer into the request.
        headers: Headers of the answer.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.headers = status, headers
        self.content: dict[str, Any] = {
            "type": f"urn:etl-assets:problem:{kind}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": detail,
            **more,
        }
        if errors:
            self.content["errors"] = list(errors)

    def response(self, request: Request) -> Response:
        """Return the answer."""
        content = {**self.content, "instance": request.url.path}
        headers = dict(self.headers or {})
        if self.status in (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_TIMEOUT):
            headers["Connection"] = "close"  # the rest of the body is not read
        return JSONResponse(content, self.status, headers, media_type=MEDIA_TYPE)

    def message(self) -> bytes:
        """Return the answer as it is sent to a client whose request is not known, which is closed with it."""
        status, content = HTTPStatus(self.status), json.dumps(self.content).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + content


PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}


def problem_responses(descriptions: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return the problems of a route for its OpenAPI description."""
    return {
        status: {"description": text, "content": {MEDIA_TYPE: {"schema": PROBLEM_SCHEMA}}}
        for status, text in descriptions.items()
    }


def answer_problems(app: FastAPI) -> None:
    """Let an app answer every error with problem details."""

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemDetails)
        return error.response(request)

    async def of_framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
        found = ProblemDetails(error.status_code, kind, str(error.detail), headers=error.headers)
        return found.response(request)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"pointer": "/" + "/".join(map(str, each["loc"])), "detail": each["msg"]}
            for each in error.errors()
        ]
        return ProblemDetails(422, "invalid-request", "the request is not valid", errors=errors).response(
            request
        )

    async def unexpected(request: Request, error: Exception) -> Response:
        logger.error("%s failed", request.url.path, exc_info=error)
        detail = "the server failed; its log says why. Whether the request was done is unknown: repeat it"
        return ProblemDetails(500, "server-error", detail).response(request)

    app.add_exception_handler(ProblemDetails, problem)
    app.add_exception_handler(HTTPException, of_framework)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, unexpected)
