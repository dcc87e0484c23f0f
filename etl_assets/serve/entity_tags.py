"""`ETag`, `If-None-Match` and `If-Match`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from etl_assets.serve.problems import ProblemDetails

_REVISION = re.compile(r'"[0-9]{1,18}-[0-9a-f]{12}"')


def tag_of(content: Any) -> str:
    """Return the tag of what an answer says."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def tagged_answer(request: Request, content: Any, tag: str) -> Response:
    """Return an answer with its tag, or 304 if the client has it."""
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if is_known(tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return JSONResponse(content, headers=headers)


def revision_tag(revision: int, tag: str) -> str:
    """Return a tag that begins with a revision, for `If-Match`."""
    return f'"{revision}-{tag[1:13]}"'


def names_revision(given: str, revision: int) -> bool:
    """Return whether `If-Match` has a tag of a revision, or `*`. What else an answer said does not count."""
    tags = [each.strip() for each in given.split(",")]
    return "*" in tags or any(
        _REVISION.fullmatch(each) and int(each[1:].partition("-")[0]) == revision for each in tags
    )


def if_match(request: Request) -> Callable[[int], bool] | None:
    """Return whether `If-Match` has a revision, as a function of it; None without the header."""
    given = request.headers.get("if-match")
    return None if given is None else partial(names_revision, given)


def expected_if_match(request: Request) -> Callable[[int], bool]:
    """Return the same for a change that needs the header.

    Raises:
        ProblemDetails: 428, it is missing.
    """
    matches = if_match(request)
    if matches is None:
        raise ProblemDetails(
            428,
            "if-match-missing",
            f"send `If-Match` with the `ETag` of `GET {request.url.path}`, so that no change of others is"
            " lost",
        )
    return matches


def is_known(tag: str, given: str) -> bool:
    """Return whether `If-None-Match` has a tag, weak or not, or `*`."""
    named = [each.strip().removeprefix("W/") for each in given.split(",")]
    return tag in named or "*" in named
