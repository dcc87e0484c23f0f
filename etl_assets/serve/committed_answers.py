"""Answers to requests with `ack=committed`: what became of each event, or why that is not known yet."""

from __future__ import annotations

import asyncio

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from etl_assets.contracts.reasons import Outcome
from etl_assets.serve.commit_watch import NotCommitted
from etl_assets.serve.events_description import Ack
from etl_assets.serve.outcomes import EventOutcome, Outcomes, TableVersions
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.stored_request import StoredRequest
from etl_assets.worker.lease import running_worker


async def committed_answer(
    request: Request, pipeline: str, stored: StoredRequest, since: TableVersions | None, seconds: float
) -> Response:
    """Return the answer to a request that waits for the commit of its events, or for its time to pass.

    Args:
        request: The request.
        pipeline: The pipeline.
        stored: The request in the journal.
        since: Versions of the tables from before the request came.
        seconds: How long it waits.

    Raises:
        ProblemDetails: its only event is a conflict, or was rejected.
    """
    service = Service.of(request)
    # A repeated request may have been committed long ago.
    wait = service.watch.outcomes(pipeline, stored.receipt, None if stored.is_repeated else since, seconds)
    try:
        outcomes = await _unless_gone(request, asyncio.ensure_future(wait))
    except NotCommitted as error:
        detail = f"the events are stored, and {error}{await asyncio.to_thread(_who_commits, service)}"
        return JSONResponse(stored.as_json(detail=detail), 202, stored.headers)
    if stored.is_lone_object:
        _expect_taken(outcomes[0], stored)
    told = [each.as_json() for each in outcomes]
    return JSONResponse(stored.as_json(Ack.COMMITTED, outcomes=told), 200, stored.headers)


def _expect_taken(outcome: EventOutcome, stored: StoredRequest) -> None:
    """Answer one event that was not taken with a problem."""
    more = outcome.as_json()
    if outcome.outcome == Outcome.CONFLICT:
        offset = "" if outcome.offset is None else f", at offset {outcome.offset}"
        raise ProblemDetails(
            409,
            "conflict",
            f"an event with this id was accepted before with other content{offset}; this is a dead letter",
            headers=stored.headers,
            **more,
        )
    if outcome.outcome == Outcome.REJECTED:
        raise ProblemDetails(
            422,
            "rejected",
            f"the event is a dead letter: {outcome.reason}: {outcome.error}",
            headers=stored.headers,
            **more,
        )


async def _unless_gone(request: Request, wait: asyncio.Future[Outcomes]) -> Outcomes:
    """Wait for outcomes, unless the client goes away: then its place is free.

    Raises:
        NotCommitted: there are none in time, or nobody who would get them.
    """
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({wait, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not wait.done():
            raise NotCommitted("the client is gone")
        return wait.result()
    finally:
        wait.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _who_commits(service: Service) -> str:
    """Return whether a worker runs, or what to start; and how to ask for the outcomes."""
    if service.watch.is_ending:
        told = ""
    elif running_worker(service.settings.home) is None:
        told = ": no worker runs; start `etl-assets worker`, or `etl-assets run`"
    else:
        told = ": a worker runs"  # which one is not for clients
    return (
        f"{told}. Send the request again for the outcomes, with its Idempotency-Key or the ids of its events"
    )
