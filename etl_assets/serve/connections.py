"""Connections of slow clients: the head of a request has a time limit, and connections a number."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def limited_protocol(*, header_seconds: float, max_connections: int) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with limits for the heads of requests and for connections."""
    base: Any = AutoHTTPProtocol

    class LimitedProtocol(base):
        """A connection that is closed when the head of its request does not come."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.head_due: asyncio.TimerHandle | None = None
            if len(self.connections) > max_connections:
                transport.close()
                return
            self._expect_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing():
                self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_head()
            super().connection_lost(exc)

        def _expect_head(self) -> None:
            self._forget_head()
            self.head_due = self.loop.call_later(header_seconds, self._close_without_head)

        def _forget_head(self) -> None:
            if self.head_due is not None:
                self.head_due.cancel()
                self.head_due = None

        def _close_without_head(self) -> None:
            cycle = self.cycle
            if (cycle is None or cycle.response_complete) and not self.transport.is_closing():
                self.transport.close()

    return LimitedProtocol
