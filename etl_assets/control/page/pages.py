"""HTML of the status page: templates, how figures and times are shown, and the headers of every answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Coroutine
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from etl_assets.errors import EtlAssetsError
from etl_assets.serve.access import allows_every_pipeline
from etl_assets.serve.error_problems import problem_of
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope, Token
from etl_assets.settings.ui import PATH_PREFIX

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none';"
        " base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def show(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page.

    Args:
        request: The request. Its session and token, if it has them, are known to the template.
        template: Name of the template.
        status: Status of the answer.
        values: Values for the template.
    """
    state = request.state
    session, token = getattr(state, "session", None), getattr(state, "token", None)
    found = _templates().get_template(template)
    service = Service.of(request)
    shown = {"reload_seconds": None, "now": service.clock(), "ui": _ui_of(service, token), **values}
    html = found.render(session=session, token=token, **shown)
    return HTMLResponse(html, status, HEADERS)


def _ui_of(service: Service, token: Token | None) -> str | None:
    """Return the path of the Dagster UI if it is served and the token allows it."""
    allowed = token is not None and allows_every_pipeline(token, Scope.READ)
    return f"{PATH_PREFIX}/" if allowed and service.settings.serve.ui is not None else None


class Page(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except (ProblemDetails, EtlAssetsError) as error:
                found = error if isinstance(error, ProblemDetails) else problem_of(error)
            page = show(
                request,
                "problem.html",
                status=found.status,
                title=HTTPStatus(found.status).phrase,
                detail=found.content["detail"],
            )
            page.headers.update(found.headers or {})
            return page

        return handle


def ago(time: dt.datetime | None, now: dt.datetime) -> str:
    """Return how long ago a time is, in its largest unit: `3 min ago`."""
    if time is None:
        return ""
    seconds = max(0, round((now - time).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


@cache
def _templates() -> Environment:
    loader = PackageLoader("etl_assets.control.page")
    made = Environment(loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined)
    made.filters["thousands"] = lambda number: f"{number:,}"
    made.filters["ago"] = ago
    return made
