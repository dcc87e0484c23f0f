"""`POST /v1/pipelines/{name}/events`: records into the journal of a pipeline."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from etl_assets.contracts.trace_context import TRACEPARENT, trace_id_of
from etl_assets.pipelines.spec_fields import MAX_NAME_CHARACTERS, NAME_PATTERN
from etl_assets.serve.group_commit import NotStored, Receipt
from etl_assets.serve.idempotency import KeyReused
from etl_assets.serve.problems import ProblemDetails, problem_responses
from etl_assets.serve.request_body import JSON_TYPE, LINES_TYPES, read_body, records_of
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope, Token
from etl_assets.sources.http.journal_file import JournalRequest

DURABLE = "durable"
MAX_KEY_CHARACTERS = 255
_KEY = re.compile(r"[\x21-\x7e]{1,255}")

_DESCRIPTION: dict[str, Any] = {
    "security": [{"bearer": []}],
    "parameters": [
        {
            "name": "name",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^{NAME_PATTERN}$", "maxLength": MAX_NAME_CHARACTERS},
        },
        {"name": "ack", "in": "query", "schema": {"type": "string", "enum": [DURABLE], "default": DURABLE}},
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "a repeated request under this key gets the first one's answer",
            "schema": {"type": "string", "pattern": r"^[\x21-\x7e]+$", "maxLength": MAX_KEY_CHARACTERS},
        },
        {"name": "traceparent", "in": "header", "schema": {"type": "string"}},
    ],
    "requestBody": {
        "required": True,
        "content": {
            JSON_TYPE: {
                "schema": {
                    "anyOf": [
                        {"type": "object"},
                        {"type": "array", "minItems": 1, "items": {"type": "object"}},
                    ]
                },
                "example": {"id": 1, "film": "Metropolis"},
            },
            LINES_TYPES[0]: {"schema": {"type": "string"}},
        },
    },
    "responses": {
        "202": {
            "description": "the events are durable in a majority of the ingest domains",
            "content": {
                JSON_TYPE: {
                    "schema": {
                        "type": "object",
                        "required": ["status", "events", "position"],
                        "properties": {
                            "status": {"const": DURABLE},
                            "events": {"type": "integer", "minimum": 1},
                            "position": {
                                "type": "string",
                                "description": "`source_position` of the first event in `<name>_source`",
                            },
                        },
                    }
                }
            },
        }
    },
}
_PROBLEMS = problem_responses(
    {
        400: "the body is not what its headers say",
        401: "no valid token",
        403: "the token does not allow the pipeline",
        404: "no such pipeline",
        408: "the body took too long",
        413: "too many bytes or events",
        415: "an unknown media type or encoding",
        422: "events that are no objects, another `ack`, or a key that was used for other content",
        429: "too many events of this token",
        503: "too much is waiting, or no majority of the domains stored the events",
    }
)

router = APIRouter()


@router.post(
    "/v1/pipelines/{name}/events",
    status_code=202,
    summary="Send events",
    operation_id="sendEvents",
    response_class=JSONResponse,
    openapi_extra=_DESCRIPTION,
    responses=_PROBLEMS,
)
async def send_events(request: Request) -> Response:
    """Take one event, an array, or an event a line. All events of a request are stored, or none."""
    service, pipeline = Service.of(request), str(request.path_params["name"])
    # 1. Who it is, and what is asked for: before the body is read.
    token = service.token_of(request)
    max_record_bytes = _expect_pipeline(service, token, pipeline)
    key, traceparent = _headers(request)
    _expect_capacity(service, token)
    # 2. The records.
    service.body_bytes += (expected := _expected_bytes(request))
    try:
        body = await read_body(request, service.limits)
        records = records_of(body, request.headers.get("content-type"), service.limits, max_record_bytes)
    finally:
        service.body_bytes -= expected
    service.rates.take(token.id, len(records))
    # 3. Into the journal.
    receipt, is_repeated = await _store(service, token, pipeline, key, traceparent, body, records)
    content = {"status": DURABLE, "events": receipt.events, "position": receipt.position}
    return JSONResponse(content, 202, {"Idempotency-Replayed": "true"} if is_repeated else None)


async def _store(
    service: Service,
    token: Token,
    pipeline: str,
    key: str | None,
    traceparent: str | None,
    body: bytes,
    records: Sequence[bytes],
) -> tuple[Receipt, bool]:
    try:
        if key is None:
            request = JournalRequest(records=records, traceparent=traceparent)
            return await service.commits.put(pipeline, request), False
        scoped, content = f"{pipeline}/{token.tenant}/{token.client}/{key}", hashlib.sha256(body).hexdigest()
        request = JournalRequest(records=records, key=scoped, content=content, traceparent=traceparent)
        return await service.keys.once(scoped, content, lambda: service.commits.put(pipeline, request))
    except KeyReused:
        raise ProblemDetails(
            422, "key-reused", "this Idempotency-Key was used for other content; use a key once"
        ) from None
    except NotStored as refused:
        raise ProblemDetails(
            503,
            "no-majority",
            f"{refused}. The events may be stored later: send the request again, with its Idempotency-Key",
            headers={"Retry-After": "5"},
            domains=refused.error.missing,
        ) from refused


def _expect_pipeline(service: Service, token: Token, pipeline: str) -> int:
    """Return the greatest size of a record of a pipeline.

    Raises:
        ProblemDetails: the token does not allow the pipeline, or there is none.
    """
    if not token.allows(Scope.INGEST, pipeline):
        raise ProblemDetails(403, "pipeline-not-allowed", f"the token {token.id} does not allow {pipeline!r}")
    source = service.http_sources().get(pipeline)
    if source is None:
        known = [name for name in service.http_sources() if token.allows(Scope.INGEST, name)]
        raise ProblemDetails(
            404,
            "no-such-pipeline",
            f"there is no pipeline {pipeline!r} with `source: {{type: http}}`; there are"
            f" {', '.join(sorted(known)) or 'none'}",
        )
    return source.max_record_bytes


def _headers(request: Request) -> tuple[str | None, str | None]:
    """Return the key and the trace context of a request.

    Raises:
        ProblemDetails: a header, or `ack`, is not what it may be.
    """
    if (ack := request.query_params.get("ack", DURABLE)) != DURABLE:
        raise ProblemDetails(
            422,
            "unknown-ack",
            f"ack={ack!r} is not known; use `{DURABLE}`",
            errors=[{"parameter": "ack", "allowed": [DURABLE]}],
        )
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise ProblemDetails(
            400,
            "bad-key",
            f"an Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} visible ASCII characters",
        )
    traceparent = request.headers.get(TRACEPARENT)
    return key, None if trace_id_of(traceparent) is None else traceparent


def _expect_capacity(service: Service, token: Token) -> None:
    """Refuse a request for which there is no room.

    Raises:
        ProblemDetails: the token has sent too much, the process ends, or too much waits.
    """
    if (seconds := service.rates.seconds_to_wait(token.id)) > 0:
        rate = service.settings.serve.events_per_second
        raise ProblemDetails(
            429,
            "too-many-events",
            f"this token may send {rate:,.0f} events a second",
            headers={"Retry-After": str(math.ceil(seconds))},
        )
    if service.is_ending:
        raise ProblemDetails(
            503, "ending", "the server ends; send the request again", headers={"Retry-After": "5"}
        )
    if service.commits.is_full or service.body_bytes >= service.settings.serve.max_waiting_bytes:
        raise ProblemDetails(
            503, "queue-full", "too much waits to be stored; nothing was stored", headers={"Retry-After": "1"}
        )


def _expected_bytes(request: Request) -> int:
    """Return how many bytes of a body may be in memory."""
    declared = request.headers.get("content-length", "")
    limit = Service.of(request).limits.max_bytes
    is_plain = declared.isdigit() and "content-encoding" not in request.headers
    return min(int(declared), limit) if is_plain else min(limit, 1 << 20)
