"""Who may do what: the rule of each route, and the one place where it is checked.

A route declares its rule: `@router.get(…, dependencies=[allow(Scope.READ, Of.PIPELINE)])`. An app refuses a
router that has a route without one (`rules_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import HTTPConnection

from etl_assets.pipelines.origin import DEFAULT_TENANT, DeclarationOrigin
from etl_assets.serve.origin import is_of_own_page
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.sessions import COOKIE, BrowserSession
from etl_assets.serve.tokens import Scope, Token


class Of(StrEnum):
    """What a route is about."""

    INSTALLATION = "installation"
    """All that the tenant of the token has."""
    PIPELINE = "pipeline"
    """The pipeline `{name}` of the path, which is there and is the tenant's."""
    PIPELINE_NAME = "pipeline name"
    """The same, and there may be no such pipeline yet."""
    CONNECTIONS = "connections"
    """The connections of the tenant, which its pipelines share: not for a token that is bound to some."""
    TENANT = "tenant"
    """The tenant `{tenant}` of the path."""
    EVERY_PIPELINE = "every pipeline"
    """The pipelines of all tenants: for tokens of no tenant of their own that are bound to no pipelines."""


WEBSOCKET = "WEBSOCKET"
"""Stands for the method of a route that is a websocket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """What a token needs for a route.

    Attributes:
        scope: The scope that it has; None: everyone may, without a token.
        of: What the route is about.
        pipeline: For a route about a tenant, the pipeline whose data it has.
        is_page: Whether it is a page for browsers: a session's cookie stands for the token, there and nowhere
            else, and who has none is sent to the login.
        is_app: Whether it is of a page with scripts: it takes a token, or the cookie of a session that one of
            this server's own pages sends. A person who opens an address without either is sent to the login.
    """

    scope: Scope | None
    of: Of = Of.INSTALLATION
    pipeline: str = ""
    is_page: bool = False
    is_app: bool = False

    async def check(self, request: HTTPConnection) -> None:
        """Refuse a request, or a websocket, that has no token which allows it.

        Raises:
            ProblemDetails: 401 without a valid token, or 303 to the login for a page; 403 if its scopes,
                pipelines or tenant do not allow it; 404 for a pipeline that the tenant does not have.
        """
        if self.scope is None:
            return
        service = Service.of(request)
        token = request.state.token = await self._token(service, request)
        match self.of:
            case Of.INSTALLATION:
                self._expect(token.has(self.scope), token, "scope-not-allowed", "this")
            case Of.PIPELINE | Of.PIPELINE_NAME:
                name = str(request.path_params["name"])
                self._expect(token.allows(self.scope, name), token, "pipeline-not-allowed", repr(name))
                self._expect_own(service, token, name)
            case Of.CONNECTIONS:
                allowed = token.has(self.scope) and not token.is_bound_to_pipelines
                self._expect(allowed, token, "connections-not-allowed", "connections")
            case Of.TENANT:
                tenant = str(request.path_params["tenant"])
                allowed = token.tenant == tenant and token.allows(self.scope, self.pipeline)
                self._expect(allowed, token, "tenant-not-allowed", f"this for the tenant {tenant!r}")
            case Of.EVERY_PIPELINE:
                allowed = allows_every_pipeline(token, self.scope)
                self._expect(allowed, token, "tenant-not-allowed", "what shows the pipelines of all tenants")

    async def _token(self, service: Service, request: HTTPConnection) -> Token:
        has_session = self.is_page or (self.is_app and "authorization" not in request.headers)
        if not has_session:
            return await service.token_of(request)
        found = service.sessions.find(request.cookies.get(COOKIE, ""), service.clock())
        if found is None:
            raise self._without_session(request)
        if self.is_app and not _only_reads(request) and not is_of_own_page(request.headers):
            raise ProblemDetails(
                403,
                "other-origin",
                "this request is not from a page of this server: a proxy before it has to pass on `Host`, and"
                " programs send `Authorization: Bearer` instead of a cookie",
            )
        request.state.session, token = found
        return token

    def _without_session(self, request: HTTPConnection) -> ProblemDetails:
        if self.is_page:
            return ProblemDetails(303, "login-needed", "log in", headers={"Location": "/login"})
        if is_navigation(request):
            wanted = f"/login?next={quote(request.url.path)}"
            return ProblemDetails(303, "login-needed", "log in", headers={"Location": wanted})
        detail = "there is no login, or it has ended: log in at /login, or send `Authorization: Bearer`"
        return ProblemDetails(
            401,
            "login-needed",
            detail,
            errors=[{"message": detail}],  # where a client of GraphQL looks for it
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _expect(self, allowed: bool, token: Token, kind: str, what: str) -> None:
        if not allowed:
            raise ProblemDetails(
                403,
                kind,
                f"the token {token.id} does not allow {what}: it needs the scope `{self.scope}`, the tenant"
                " and the pipeline (`etl-assets tokens add --scope --tenant --pipeline`)",
            )

    def _expect_own(self, service: Service, token: Token, name: str) -> None:
        owner = service.owner_of(name)
        if owner is None:
            is_missing = self.of is Of.PIPELINE
        else:
            # Files are the operator's, who names in a token the clients of whichever tenant that may send.
            is_shared = self.scope is Scope.INGEST and owner.origin is DeclarationOrigin.FILE
            is_missing = not is_shared and owner.tenant != token.tenant and self.of is Of.PIPELINE
        if is_missing:
            raise no_such_pipeline(service, token, name)


def allow(
    scope: Scope | None,
    of: Of = Of.INSTALLATION,
    *,
    pipeline: str = "",
    is_page: bool = False,
    is_app: bool = False,
) -> Any:
    """Return the dependency that makes a rule hold for a route.

    Args:
        scope: The scope that a token needs; None: everyone may.
        of: What the route is about.
        pipeline: For a route about a tenant, the pipeline whose data it has.
        is_page: Whether it is a page for browsers.
        is_app: Whether it is of a page with scripts.
    """
    return Depends(AccessRule(scope=scope, of=of, pipeline=pipeline, is_page=is_page, is_app=is_app).check)


def is_navigation(request: HTTPConnection) -> bool:
    """Return whether a person opens an address, and not a script: what is answered is shown."""
    return _only_reads(request) and "text/html" in request.headers.get("accept", "")


def _only_reads(request: HTTPConnection) -> bool:
    return request.scope["type"] == "http" and request.scope["method"] in ("GET", "HEAD")


def allows_every_pipeline(token: Token, scope: Scope) -> bool:
    """Return whether a token allows something with the pipelines of all tenants."""
    return token.has(scope) and token.tenant == DEFAULT_TENANT and not token.is_bound_to_pipelines


def token_of(request: Request) -> Token:
    """Return the token that the rule of a request's route has accepted."""
    return request.state.token


def session_of(request: Request) -> BrowserSession:
    """Return the session that the rule of a page has accepted."""
    return request.state.session


def rules_of(router: APIRouter) -> Iterator[tuple[str, str, AccessRule]]:
    """Yield method, path and rule of each route.

    Raises:
        TypeError: a route has none, or several.
    """
    for route in router.routes:
        if not isinstance(route, APIRoute | APIWebSocketRoute):
            raise TypeError(f"{route} is no API route, and has no rule")
        found = [each.dependency for each in route.dependencies]
        rules = [rule for each in found if isinstance(rule := getattr(each, "__self__", None), AccessRule)]
        if len(rules) != 1:
            raise TypeError(f"{route.path} needs one rule: dependencies=[allow(…)]")
        methods = (route.methods or ()) if isinstance(route, APIRoute) else (WEBSOCKET,)
        for method in methods:
            yield method, route.path, rules[0]


def no_such_pipeline(service: Service, token: Token, name: str) -> ProblemDetails:
    """Return the problem of a pipeline that the tenant does not have."""
    known = [each for each in service.names_of(token.tenant) if token.covers(each)]
    there = ", ".join(known[:20]) or "none"
    return ProblemDetails(404, "no-such-pipeline", f"there is no pipeline {name!r}; there are {there}")
