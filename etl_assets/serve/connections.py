"""Connections of slow clients: the head of a request has a time limit, and connections a number."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_BASE: Any = AutoHTTPProtocol


class LimitedProtocol(_BASE):
    """Uvicorn's HTTP protocol, which closes a connection when the head of its request does not come."""

    header_seconds: float
    max_connections: int
    head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Refuse a connection that is one too many."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.close()
            return
        self._expect_head()

    def on_response_complete(self) -> None:
        """Wait for the next head."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._expect_head()

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
        if (cycle is None or cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


def limited_protocol(*, header_seconds: float, max_connections: int) -> type[asyncio.Protocol]:
    """Return the protocol with its limits."""
    limits = {"header_seconds": header_seconds, "max_connections": max_connections}
    return type("LimitedProtocolOfServer", (LimitedProtocol,), limits)
