"""`GET /health` and `GET /ready`: whether the process lives, and whether it can store events."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from etl_assets.serve.access import allow
from etl_assets.serve.problems import ProblemDetails, problem_responses
from etl_assets.serve.service import Service

router = APIRouter()


@router.get("/health", summary="Whether the process lives", operation_id="health", dependencies=[allow(None)])
async def health() -> dict[str, str]:
    """Answer as long as the process does."""
    return {"status": "ok"}


@router.get(
    "/ready",
    summary="Whether events can be stored",
    operation_id="ready",
    responses=problem_responses({503: "no majority of the domains can store events"}),
    dependencies=[allow(None)],
)
async def ready(request: Request) -> dict[str, str]:
    """Answer 200 if a majority of the ingest domains can store events."""
    service = Service.of(request)
    journal = service.journal
    problems = await asyncio.to_thread(journal.problems)
    if service.is_ending or len(journal.domains) - len(problems) < journal.majority:
        told = "; ".join(f"{name}: {why}" for name, why in problems.items())
        raise ProblemDetails(503, "not-ready", told or "the server ends", headers={"Retry-After": "5"})
    return {"status": "ready"}
