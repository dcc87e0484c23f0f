"""Lists in pages: `{"data": […], "next": …}` with an opaque cursor."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from fastapi import Request

from etl_assets.serve.problems import ProblemDetails

MAX_LIMIT = 1_000
DEFAULT_LIMIT = 100
PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "limit",
        "in": "query",
        "description": "how many at most",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    },
    {
        "name": "cursor",
        "in": "query",
        "description": "`next` of the page before",
        "schema": {"type": "string"},
    },
]


def limit_of(request: Request) -> int:
    """Return how many entries a request asks for.

    Raises:
        ProblemDetails: it is no number within the limits.
    """
    given = request.query_params.get("limit", str(DEFAULT_LIMIT))
    if not (given.isascii() and given.isdigit() and len(given) < 6 and 1 <= int(given) <= MAX_LIMIT):
        detail = f"a number from 1 to {MAX_LIMIT:,}"
        raise ProblemDetails(
            422,
            "bad-limit",
            f"limit={given!r} is not {detail}",
            errors=[{"parameter": "limit", "detail": detail}],
        )
    return int(given)


def cursor_of(request: Request) -> Any:
    """Return what the cursor of a request stands for; None without one.

    Raises:
        ProblemDetails: it is not one that the server made.
    """
    given = request.query_params.get("cursor")
    if given is None:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(given.encode("ascii")))
    except (ValueError, binascii.Error, RecursionError):
        raise bad_cursor() from None


def bad_cursor() -> ProblemDetails:
    """Return the problem of a cursor that the server did not make."""
    detail = "`next` of an answer, as it is"
    return ProblemDetails(
        422,
        "bad-cursor",
        f"the cursor is not {detail}; begin without one",
        errors=[{"parameter": "cursor", "detail": detail}],
    )


def cursor_to(position: Any) -> str:
    """Return the cursor that stands for a position."""
    return base64.urlsafe_b64encode(json.dumps(position, separators=(",", ":")).encode()).decode()


def page_by_name(request: Request, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the page of entries, which are sorted by `name`, that a request asks for.

    Raises:
        ProblemDetails: the limit or the cursor is not one.
    """
    limit, after = limit_of(request), cursor_of(request)
    if after is not None and not isinstance(after, str):
        raise bad_cursor()
    wanted = (each for each in entries if after is None or each["name"] > after)
    found = [*islice(wanted, limit + 1)]
    more = len(found) > limit
    return {"data": found[:limit], "next": cursor_to(found[limit - 1]["name"]) if more else None}
