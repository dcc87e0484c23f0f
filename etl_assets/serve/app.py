"""The app: routes, problem details, and what runs beside them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from etl_assets import __version__
from etl_assets.control.page.figures import KnownFigures
from etl_assets.control.page.routes import router as page
from etl_assets.control.routes import ROUTERS
from etl_assets.control.snapshot_rounds import keep_refreshing
from etl_assets.serve import events, health
from etl_assets.serve.access import rules_of
from etl_assets.serve.error_problems import answer_errors
from etl_assets.serve.problems import ProblemDetails, answer_problems
from etl_assets.serve.retention import keep_removing
from etl_assets.serve.service import Service
from etl_assets.settings.ui import UiSettings


def build_app(service: Service) -> FastAPI:
    """Return the app of a service."""

    @contextlib.asynccontextmanager
    async def lifespan(started: FastAPI) -> AsyncGenerator[None]:
        await service.prepare()
        beside = [
            asyncio.create_task(keep_removing(service)),
            asyncio.create_task(keep_refreshing(service.control)),
        ]
        yield
        service.is_ending = True
        for each in beside:
            each.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await service.commits.close()
        await service.journal.close()
        service.watch.release_threads()
        service.reads.close()
        service.store_calls.close()
        service.trials.close()
        service.issuer_calls.close()
        service.control.close()
        if service.settings.serve.ui is not None:
            await started.state.webserver.close()

    # The pages for people load scripts from elsewhere: only the description is served.
    app = FastAPI(title="etl-assets", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.figures = KnownFigures()
    app.state.rules = {}
    answer_problems(app)
    answer_errors(app)
    made = (each.router for each in service.settings.catalog().pipelines if each.router is not None)
    for router in (events.router, health.router, *ROUTERS, page, *(make(service.settings) for make in made)):
        _include(app, router)
    if service.settings.serve.ui is not None:
        _include_ui(app, service.settings.serve.ui)
    app.add_middleware(_FewRequests, service=service)
    app.openapi = lambda: _described(app)
    return app


def _include(app: FastAPI, router: APIRouter) -> None:
    """Include a router whose routes all have a rule."""
    for method, path, rule in rules_of(router):
        app.state.rules[method, path.replace(":path}", "}")] = rule
    app.include_router(router)


def _include_ui(app: FastAPI, settings: UiSettings) -> None:
    """Include the Dagster UI."""
    from etl_assets.control.ui.live_updates import LiveUpdates
    from etl_assets.control.ui.routes import router
    from etl_assets.control.ui.webserver import Webserver

    app.state.webserver, app.state.live_updates = Webserver(settings), LiveUpdates(settings)
    _include(app, router)


def _described(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, routes=app.routes)
        found.setdefault("components", {})["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"}
        }
        for (method, path), rule in app.state.rules.items():
            if rule.scope is not None and path in found["paths"]:
                operation = found["paths"][path][method.lower()]
                operation["security"] = [{"bearer": []}]
                operation["description"] = f"{operation.get('description', '')}\n\nScope: `{rule.scope}`."
        app.openapi_schema = found
    return app.openapi_schema


class _FewRequests:
    """Refuses requests while there are too many."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._max, self._now = app, service.settings.serve.max_requests, 0
        self._answers = service.answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._now >= self._max:
            problem = ProblemDetails(
                503, "too-many-requests", "too many requests", headers={"Retry-After": "1"}
            )
            await problem.response(Request(scope))(scope, receive, send)
            return
        self._now += 1

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answers[message["status"]] += 1
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            self._now -= 1
