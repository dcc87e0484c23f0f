"""A session of PostgreSQL whose calls end after a time, whatever the server does.

`statement_timeout` is the server's: one that is stopped keeps no time. The kernel of its machine still
acknowledges what is sent, so no timeout of TCP ends the wait either. This session counts the time itself.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import waiting

_LOOK_SECONDS = 0.2


class LimitedSession(psycopg.Connection[Any]):
    """A connection that is closed by a call without an answer for `limit_seconds`."""

    limit_seconds = 10.0

    def wait(self, gen: Any, interval: float = _LOOK_SECONDS, timeout: float | None = None) -> Any:
        """Wait for the answer to a call.

        Raises:
            OperationalError: none came in time. The connection is closed.
        """
        return super().wait(self._limited(gen), interval, timeout)

    def _limited(self, call: Any) -> Generator[Any, Any, Any]:
        deadline = time.monotonic() + self.limit_seconds
        try:
            wanted = next(call)
            while True:
                ready = yield wanted
                if ready == waiting.Ready.NONE and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer for {self.limit_seconds:.0f} s")
                wanted = call.send(ready)
        except StopIteration as end:
            return end.value
