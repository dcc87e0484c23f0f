"""`ETag`, `If-None-Match` and `If-Match`."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response


def tag_of(content: Any) -> str:
    """Return the tag of what an answer says."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def tagged_answer(request: Request, content: Any, tag: str) -> Response:
    """Return an answer with its tag, or 304 if the client has it."""
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if matches(tag, request.headers.get("if-none-match", ""), weakly=True):
        return Response(status_code=304, headers=headers)
    return JSONResponse(content, headers=headers)


def matches(tag: str, given: str, *, weakly: bool = False) -> bool:
    """Return whether a tag is one of a header's, which may be `*`.

    Args:
        tag: The tag that there is.
        given: The header.
        weakly: Whether a weak tag counts, as in `If-None-Match`; in `If-Match` it does not.
    """
    named = [each.strip() for each in given.split(",")]
    if weakly:
        named = [each.removeprefix("W/") for each in named]
    return tag in named or "*" in named
