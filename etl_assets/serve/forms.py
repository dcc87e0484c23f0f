"""Forms that a browser sends: small, and from a page of the same session."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl

from fastapi import Request

from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.sessions import BrowserSession
from etl_assets.serve.small_body import read_small_body

MAX_BYTES = 8_192
_TYPE = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        ProblemDetails: the body is no form, or is too large.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise ProblemDetails(415, "unsupported-media-type", f"send a form as {_TYPE}")
    body = await read_small_body(request, MAX_BYTES)
    try:
        return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise ProblemDetails(400, "not-a-form", "the body is not a form") from None


def expect_own_form(form: dict[str, str], session: BrowserSession) -> None:
    """Refuse a form that is not from a page of this session.

    Raises:
        ProblemDetails: its key is another one.
    """
    given = form.get("form_key", "").encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(given, session.form_key.encode()):
        raise ProblemDetails(
            403, "form-outdated", "this form is of another session: go back, reload, send it again"
        )
