"""A body that is held as a whole, such as a form: within its own limit and that of all bodies."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request

from etl_assets.serve.request_body import read_body
from etl_assets.serve.service import Service


async def read_small_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request.

    Args:
        request: The request.
        max_bytes: Most bytes of it, after decompression.

    Raises:
        ProblemDetails: as `read_body` says.
    """
    service = Service.of(request)
    with service.bodies.reserve(0) as reserved:
        return await read_body(request, replace(service.limits, max_bytes=max_bytes), reserved.hold)
