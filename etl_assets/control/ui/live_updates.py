"""The websocket of a page: GraphQL subscriptions, by which Dagster sends what has changed.

Each message of the browser is read, and only subscriptions are passed on: mutations come by POST, where they
are checked and logged. The websocket ends when the login does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from etl_assets.control.ui.operations import operations_of
from etl_assets.control.ui.webserver import CONNECT_SECONDS, unavailable
from etl_assets.serve.problems import ProblemDetails
from etl_assets.settings.ui import PATH_PREFIX, UiSettings

LOGIN_SECONDS = 5.0
"""How often a websocket looks whether the login still holds."""
SLOW_SECONDS = 30.0
"""How long the webserver may take to accept a message. The time of a browser is limited by its connection."""
CLOSE_SECONDS = 1.0
"""How long the end of a connection to the webserver may take, which may be sending still."""
MAX_ANSWER_BYTES = 32 << 20
_GOING_AWAY, _NOT_TEXT, _NOT_ALLOWED, _FAILED = 1001, 1003, 1008, 1011
_PROTOCOL = Subprotocol("graphql-ws")
"""The one that Dagster speaks."""
_STARTS = ("start", "subscribe")


class _Ended(Exception):
    """One side has ended, or must not go on."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class _Connect(connect):
    """A connection to one address: a redirect is an error."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow none."""
        return exc


class LiveUpdates:
    """The websockets of all pages.

    Args:
        settings: The webserver and the most websockets at one time.
    """

    def __init__(self, settings: UiSettings) -> None:
        self._settings = settings
        self._open = 0

    async def relay(self, browser: WebSocket, check: Callable[[], Awaitable[None]]) -> None:
        """Pass messages on until one side ends or the login does.

        Args:
            browser: The websocket, which is not accepted yet.
            check: Raises `ProblemDetails` when the login no longer allows it.

        Raises:
            ProblemDetails: 400 for another protocol, 502 without a webserver, 503 with too many websockets.
        """
        if _PROTOCOL not in browser.scope["subprotocols"]:
            raise ProblemDetails(400, "protocol-unknown", f"offer the protocol {_PROTOCOL} of websockets")
        if self._open >= self._settings.max_websockets:
            raise ProblemDetails(
                503, "too-many-websockets", "too many pages are open: raise `serve.ui.max_websockets`"
            )
        self._open += 1
        try:
            async with await self._connect() as webserver:
                await browser.accept(webserver.subprotocol)
                ended = await _first_end(
                    _from_browser(browser, webserver), _to_browser(browser, webserver), _watch(check)
                )
                await _close(browser, ended)
        finally:
            self._open -= 1

    async def _connect(self) -> ClientConnection:
        address = self._settings.address.removeprefix("http://")
        try:
            return await _Connect(
                f"ws://{address}{PATH_PREFIX}/graphql",
                subprotocols=[_PROTOCOL],
                compression=None,
                proxy=None,
                open_timeout=CONNECT_SECONDS,
                close_timeout=CLOSE_SECONDS,
                max_size=MAX_ANSWER_BYTES,
            )
        except (OSError, TimeoutError, InvalidHandshake):
            raise unavailable() from None


async def _first_end(*parts: Awaitable[None]) -> _Ended:
    """Run the parts until the first one ends, and return how it did."""
    tasks = [asyncio.ensure_future(each) for each in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        error = next(iter(done)).exception()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    match error:
        case _Ended():
            return error
        case TimeoutError():
            return _Ended(_NOT_ALLOWED, "messages are not taken in time")
        case ConnectionClosed() | None:
            return _Ended(_GOING_AWAY, "Dagster's webserver has closed the connection")
        case WebSocketDisconnect():
            return _Ended(error.code)
    raise error


async def _from_browser(browser: WebSocket, webserver: ClientConnection) -> None:
    while True:
        message = await browser.receive()
        if message["type"] == "websocket.disconnect":
            raise _Ended(message.get("code", _GOING_AWAY))
        checked = _checked(message.get("text"))
        async with asyncio.timeout(SLOW_SECONDS):
            await webserver.send(checked)


async def _to_browser(browser: WebSocket, webserver: ClientConnection) -> None:
    async for message in webserver:
        if isinstance(message, str):
            await browser.send_text(message)
        else:
            await browser.send_bytes(message)


async def _watch(check: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(LOGIN_SECONDS)
        try:
            await check()
        except ProblemDetails as problem:
            if problem.status < HTTPStatus.INTERNAL_SERVER_ERROR:  # else an issuer does not answer now
                raise _Ended(_NOT_ALLOWED, "the login has ended") from None


def _checked(text: str | None) -> str:
    """Return what is passed on of a message: what was read of it, and not what was sent."""
    try:
        message: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        raise _Ended(_NOT_TEXT, "a message is JSON") from None
    if not isinstance(message, dict):
        raise _Ended(_NOT_TEXT, "a message is a JSON object")
    if message.get("type") in _STARTS:
        payload = message.get("payload")
        try:
            operations = operations_of(payload.get("query") if isinstance(payload, dict) else None)
        except ProblemDetails as error:
            raise _Ended(_NOT_ALLOWED, str(error)[:100]) from None
        if not operations.has_only_subscriptions:
            raise _Ended(_NOT_ALLOWED, "send queries and mutations with POST")
    return json.dumps(message)


async def _close(browser: WebSocket, ended: _Ended) -> None:
    gone = WebSocketState.DISCONNECTED
    if gone not in (browser.client_state, browser.application_state):
        with suppress(RuntimeError, WebSocketDisconnect):
            await browser.close(ended.code, ended.reason)
