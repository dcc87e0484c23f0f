"""Routes of the Dagster UI: everything at `/ui/`, behind the login of the status page."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Depends, Request, WebSocket
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute

from etl_assets.control.page.pages import Page
from etl_assets.control.ui.headers import for_webserver
from etl_assets.control.ui.live_updates import LiveUpdates
from etl_assets.control.ui.operations import operations_of
from etl_assets.control.ui.webserver import Webserver
from etl_assets.serve.access import AccessRule, Of, allow, is_navigation, token_of
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.small_body import read_small_body
from etl_assets.serve.tokens import Scope, Token
from etl_assets.settings.ui import PATH_PREFIX

logger = logging.getLogger("etl_assets.serve")
MAX_BYTES = 1 << 20
_JSON = "application/json"
_READ = AccessRule(scope=Scope.READ, of=Of.EVERY_PIPELINE, is_app=True)


class UiRoute(Page):
    """A route whose errors are pages for a person who opens an address, and problem details for scripts."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        as_page, as_problem = super().get_route_handler(), APIRoute.get_route_handler(self)

        async def handle(request: Request) -> Response:
            return await (as_page if is_navigation(request) else as_problem)(request)

        return handle


router = APIRouter(prefix=PATH_PREFIX, route_class=UiRoute, include_in_schema=False)


@router.get("", dependencies=[Depends(_READ.check)])
async def home() -> Response:
    """Lead to the UI."""
    return RedirectResponse(f"{PATH_PREFIX}/", 307)


@router.websocket("/graphql", dependencies=[Depends(_READ.check)])
async def follow(websocket: WebSocket) -> None:
    """Pass on subscriptions."""
    live: LiveUpdates = websocket.app.state.live_updates
    await live.relay(websocket, lambda: _READ.check(websocket))


@router.get("/graphql", dependencies=[Depends(_READ.check)])
async def show_playground(request: Request) -> Response:
    """Show the page for queries. A query in the address is not done: other sites can link to it."""
    if not is_navigation(request):
        raise ProblemDetails(405, "method-not-allowed", "send queries with POST", headers={"Allow": "POST"})
    return await _webserver(request).answer("GET", "graphql", headers=for_webserver(request.headers))


@router.post("/graphql", dependencies=[Depends(_READ.check)])
async def execute(request: Request) -> Response:
    """Do a query or mutation. The webserver gets what was read here, so that it reads nothing else."""
    asked = await _read_query(request)
    operations, token = operations_of(asked["query"]), token_of(request)
    names = ", ".join(sorted(operations.mutations))[:200]
    if not token.has(operations.scope):
        logger.warning("%s is refused %s in the Dagster UI", _who(token), names)
        detail = f"{names} needs the scope `{operations.scope}`, which the token {token.id} does not have"
        raise ProblemDetails(403, "scope-not-allowed", detail, errors=[{"message": detail}])
    if operations.has_mutation:
        logger.info("%s asks for %s in the Dagster UI", _who(token), names)
    headers = {**for_webserver(request.headers), "content-type": _JSON}
    body = json.dumps(asked).encode()
    return await _webserver(request).answer("POST", "graphql", headers=headers, content=body)


@router.post("/{report}/{key:path}", dependencies=[allow(Scope.ADMIN, Of.EVERY_PIPELINE, is_app=True)])
async def report(request: Request) -> Response:
    """Report a materialization, observation or check of an asset that something else has made."""
    kind, key = str(request.path_params["report"]), str(request.path_params["key"])
    if kind not in ("report_asset_materialization", "report_asset_observation", "report_asset_check"):
        raise ProblemDetails(405, "method-not-allowed", "this is only read", headers={"Allow": "GET"})
    body = await read_small_body(request, MAX_BYTES)
    logger.info("%s asks for %s of %s in the Dagster UI", _who(token_of(request)), kind, ascii(key)[:200])
    headers = for_webserver(request.headers)
    if "content-type" in request.headers:
        headers["content-type"] = request.headers["content-type"]
    path, query = f"{kind}/{key}", request.url.query
    return await _webserver(request).answer("POST", path, query=query, headers=headers, content=body)


@router.api_route("/{path:path}", methods=["GET", "HEAD"], dependencies=[Depends(_READ.check)])
async def show(request: Request) -> Response:
    """Show a page or file of the UI, a log, or what else the webserver has."""
    webserver = _webserver(request)
    if is_navigation(request):
        await webserver.expect_prefix()
    return await webserver.answer(
        request.method,
        str(request.path_params["path"]),
        query=request.url.query,
        headers=for_webserver(request.headers),
    )


async def _read_query(request: Request) -> dict[str, Any]:
    """Return the parts of a GraphQL request.

    Raises:
        ProblemDetails: it is not one operation as JSON.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise ProblemDetails(415, "unsupported-media-type", f"send the query as {_JSON}")
    try:
        found = json.loads(await read_small_body(request, MAX_BYTES))
    except (ValueError, RecursionError):
        raise ProblemDetails(400, "malformed-json", "the body is not JSON") from None
    if not isinstance(found, dict):
        raise ProblemDetails(400, "query-refused", "send one operation in an object with `query`")
    return {each: found.get(each) for each in ("query", "variables", "operationName")}


def _webserver(request: Request) -> Webserver:
    return request.app.state.webserver


def _who(token: Token) -> str:
    return f"{token.client} (token {token.id})"
