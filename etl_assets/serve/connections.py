"""Connections of slow clients: the head of a request and the taking of its answer have time limits, and
connections a number.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from etl_assets.serve.problems import ProblemDetails

_BASE: Any = AutoHTTPProtocol
_HEAD_TIMEOUT = ProblemDetails(
    HTTPStatus.REQUEST_TIMEOUT, "head-timeout", "the head of the request did not arrive in time"
)


class _TakenAnswers(asyncio.Protocol):
    """A protocol of uvicorn that ends a connection whose client does not take what it is sent."""

    answer_seconds: float
    answer_due: asyncio.TimerHandle | None = None
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    def pause_writing(self) -> None:
        """Give the client some time to take what it was sent."""
        super().pause_writing()
        self._forget_answer()
        self.answer_due = self.loop.call_later(self.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client takes what it is sent."""
        self._forget_answer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._forget_answer()
        super().connection_lost(exc)

    def _forget_answer(self) -> None:
        if self.answer_due is not None:
            self.answer_due.cancel()
            self.answer_due = None


class LimitedProtocol(_TakenAnswers, _BASE):
    """Uvicorn's HTTP protocol, which closes a connection when the head of its request does not come, or its
    answer is not taken.
    """

    header_seconds: float
    max_connections: int
    head_due: asyncio.TimerHandle | None = None
    has_begun: bool = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # ty: ignore[incompatible-method-override] - as uvicorn has it
        """Refuse a connection that is one too many."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.close()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and note that a head has begun."""
        self.has_begun = True
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next head."""
        self.has_begun = False
        super().on_response_complete()
        if not self.transport.is_closing():
            self._expect_head()

    def handle_websocket_upgrade(self, *event: Any) -> None:
        """Hand the connection to the websocket, which has limits of its own."""
        self._forget_head()
        self._forget_answer()
        super().handle_websocket_upgrade(*event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._forget_head()
        self.head_due = self.loop.call_later(self.header_seconds, self._close_without_head)

    def _forget_head(self) -> None:
        if self.head_due is not None:
            self.head_due.cancel()
            self.head_due = None

    def _close_without_head(self) -> None:
        cycle = self.cycle
        if (cycle is not None and not cycle.response_complete) or self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # the client does not take its answers: closing would wait for it
            return
        if self.has_begun:
            self.transport.write(_HEAD_TIMEOUT.message())
        self.transport.close()


class LimitedWebsocket(_TakenAnswers, WebSocketsSansIOProtocol):
    """Uvicorn's websocket, which is closed when its client does not take what it is sent."""


def limited_websocket(*, answer_seconds: float) -> type[asyncio.Protocol]:
    """Return the protocol of websockets with its limit."""
    return type("LimitedWebsocketOfServer", (LimitedWebsocket,), {"answer_seconds": answer_seconds})


def limited_protocol(
    *, header_seconds: float, answer_seconds: float, max_connections: int
) -> type[asyncio.Protocol]:
    """Return the protocol with its limits."""
    limits = {
        "header_seconds": header_seconds,
        "answer_seconds": answer_seconds,
        "max_connections": max_connections,
    }
    return type("LimitedProtocolOfServer", (LimitedProtocol,), limits)
