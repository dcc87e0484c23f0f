"""Requests to the app itself, as one client, for tests of the REST API."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from etl_assets.serve.app import build_app
from etl_assets.serve.journal import Journal
from etl_assets.serve.service import Service, now_utc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets.settings import load_settings


def new_service() -> Service:
    """Return the service of a new server process of the installation that the environment names."""
    settings = load_settings()
    return Service(settings=settings, journal=Journal(settings.placement(), timeout_seconds=20))


class RestClient:
    """A client of one service with a token of its own."""

    def __init__(self, service: Service, **token: Any) -> None:
        self.service, self._app = service, build_app(service)
        scopes = [Scope(each) for each in token.pop("scopes", ["admin"])]
        name = token.pop("client", "robot")
        _, self._secret = Tokens(service.settings.home).add(name, now=now_utc(), scopes=scopes, **token)

    def send(self, method: str, path: str, **given: Any) -> httpx.Response:
        return asyncio.run(self.send_in_loop(method, path, **given))

    async def send_in_loop(self, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._secret}", **given.pop("headers", {})}
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
            return await client.request(method, path, **given)

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.send("GET", path, **given)

    def post(self, path: str, content: Any = None, **given: Any) -> httpx.Response:
        return self.send("POST", path, json=content, **given)

    def put(self, path: str, content: Any, tag: str | None) -> httpx.Response:
        return self.send("PUT", path, json=content, headers={} if tag is None else {"if-match": tag})

    def delete(self, path: str, tag: str | None = None) -> httpx.Response:
        return self.send("DELETE", path, headers={} if tag is None else {"if-match": tag})
