"""`POST /v1/pipelines/{name}/events`: records into the journal of a pipeline.

Belongs here: what a request asks for, in which order it is checked, and the journal. Does not belong here:
the wait for a commit and its answers (`committed_answers.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from etl_assets.contracts.trace_context import TRACEPARENT, trace_id_of
from etl_assets.serve.access import Of, allow, token_of
from etl_assets.serve.body_bytes import queue_full
from etl_assets.serve.commit_watch import TooManyWait
from etl_assets.serve.committed_answers import committed_answer
from etl_assets.serve.events_description import DESCRIPTION, MAX_KEY_CHARACTERS, PROBLEMS, Ack
from etl_assets.serve.group_commit import NotStored, Receipt
from etl_assets.serve.idempotency import KeyReused
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.request_body import is_lone_object, read_body, records_of
from etl_assets.serve.service import Service
from etl_assets.serve.stored_request import StoredRequest
from etl_assets.serve.tokens import Scope, Token
from etl_assets.sources.http.journal_file import JournalRequest

_KEY = re.compile(r"[\x21-\x7e]{1,255}")

router = APIRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a request asks for: parameters and headers."""

    ack: Ack
    wait_seconds: float
    key: str | None
    traceparent: str | None


@router.post(
    "/v1/pipelines/{name}/events",
    status_code=202,
    summary="Send events",
    operation_id="sendEvents",
    response_class=JSONResponse,
    openapi_extra=DESCRIPTION,
    responses=PROBLEMS,
    dependencies=[allow(Scope.INGEST, Of.PIPELINE)],
)
async def send_events(request: Request) -> Response:
    """Take one event, an array, or an event a line. All events of a request are stored, or none."""
    service, pipeline = Service.of(request), str(request.path_params["name"])
    # 1. Who it is, and what is asked for: before the body is read.
    token = token_of(request)
    max_record_bytes = _expect_pipeline(service, token, pipeline)
    asked = _asked(request)
    await _expect_domain(service, token)
    _expect_capacity(service, token)
    is_waiting = asked.ack is Ack.COMMITTED
    try:
        with service.watch.place(f"{token.tenant}/{token.client}") if is_waiting else nullcontext():
            # 2. The records into the journal. What was sent is not held any longer.
            since = await service.watch.versions(pipeline) if is_waiting else None
            stored = await _store(request, token, pipeline, asked, max_record_bytes)
            # 3. The answer.
            if not is_waiting:
                return JSONResponse(stored.as_json(), 202, stored.headers)
            return await committed_answer(request, pipeline, stored, since, asked.wait_seconds)
    except TooManyWait as error:
        raise ProblemDetails(
            429 if error.is_of_client else 503,
            "too-many-waits",
            f"{error}; nothing was stored: send the request again, or with `ack={Ack.DURABLE}`",
            headers={"Retry-After": "1"},
        ) from None


async def _store(
    request: Request, token: Token, pipeline: str, asked: _Asked, max_record_bytes: int
) -> StoredRequest:
    """Read the records of a request, and return once they are durable."""
    service, content_type = Service.of(request), request.headers.get("content-type")
    _expect_room(service)  # again: the tables were looked at in the meantime
    with service.bodies.reserve(_expected_bytes(request)) as reserved:
        body = await read_body(request, service.limits, reserved.hold)
        records = records_of(body, content_type, service.limits, max_record_bytes)
        is_lone = is_lone_object(body, content_type)
        content = "" if asked.key is None else hashlib.sha256(body).hexdigest()
        del body  # what waits for its file are the records
    service.rates.take(token.id, len(records))
    receipt, is_repeated = await _into_journal(service, token, pipeline, asked, content, records)
    return StoredRequest(receipt=receipt, is_repeated=is_repeated, is_lone_object=is_lone)


async def _into_journal(
    service: Service, token: Token, pipeline: str, asked: _Asked, content: str, records: Sequence[bytes]
) -> tuple[Receipt, bool]:
    try:
        if asked.key is None:
            request = JournalRequest(records=records, traceparent=asked.traceparent)
            return await service.commits.put(pipeline, request), False
        scoped = f"{pipeline}/{token.tenant}/{token.client}/{asked.key}"
        request = JournalRequest(records=records, key=scoped, content=content, traceparent=asked.traceparent)
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
        ProblemDetails: it takes no events over HTTP.
    """
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


async def _expect_domain(service: Service, token: Token) -> None:
    """Refuse a token whose failure domains may not ingest now.

    Raises:
        ProblemDetails: with the reason for each of them.
    """
    if not token.is_bound:
        return
    names = [each.name for each in service.settings.domains if token.sends_from(each.name)]
    problems = await asyncio.to_thread(service.journal.not_allowed, names)
    if problems or not names:
        told = "; ".join(f"{name}: {why}" for name, why in problems.items())
        raise ProblemDetails(
            503,
            "domain-not-allowed",
            f"the token {token.id} sends from {', '.join(token.domains)}, and no domain of that name may"
            f" ingest now ({told or 'the platform has none'}); nothing was stored. Send it again later,"
            " or with a token of another domain",
            headers={"Retry-After": "5"},
            domains=problems,
        )


def _asked(request: Request) -> _Asked:
    """Return what a request asks for.

    Raises:
        ProblemDetails: a header or a parameter is not what it may be.
    """
    ack = request.query_params.get("ack", Ack.DURABLE.value)
    if ack not in tuple(Ack):
        allowed = [each.value for each in Ack]
        raise ProblemDetails(
            422,
            "unknown-ack",
            f"ack={ack!r} is not known; use {' or '.join(f'`{each}`' for each in allowed)}",
            errors=[{"parameter": "ack", "allowed": allowed}],
        )
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise ProblemDetails(
            400,
            "bad-key",
            f"an Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} visible ASCII characters",
        )
    traceparent = request.headers.get(TRACEPARENT)
    return _Asked(
        ack=Ack(ack),
        wait_seconds=_wait_seconds(request),
        key=key,
        traceparent=None if trace_id_of(traceparent) is None else traceparent,
    )


def _wait_seconds(request: Request) -> float:
    """Return how long a request may wait for its commit: no longer than the setting.

    Raises:
        ProblemDetails: `timeout` is no number of seconds.
    """
    longest = Service.of(request).settings.serve.commit_timeout_seconds
    if (given := request.query_params.get("timeout")) is None:
        return longest
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:  # NaN is none
        raise ProblemDetails(
            422,
            "bad-timeout",
            f"timeout={given!r} is no number of seconds",
            errors=[{"parameter": "timeout", "detail": "a number of at least 0"}],
        )
    return min(seconds, longest)


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
    _expect_room(service)


def _expect_room(service: Service) -> None:
    """Refuse a body that memory has no room for.

    Raises:
        ProblemDetails: the process ends, or too much waits.
    """
    if service.is_ending:
        raise ProblemDetails(
            503, "ending", "the server ends; send the request again", headers={"Retry-After": "5"}
        )
    if service.commits.is_full or service.bodies.is_full:
        raise queue_full()


def _expected_bytes(request: Request) -> int:
    """Return how many bytes of a body are counted before it is read: its own, if they are known."""
    declared = request.headers.get("content-length", "")
    limit = Service.of(request).limits.max_bytes
    is_plain = declared.isdigit() and "content-encoding" not in request.headers
    return min(int(declared), limit) if is_plain else min(limit, 1 << 20)
