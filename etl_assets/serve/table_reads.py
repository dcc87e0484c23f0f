"""Reads of tables, and calls of the control store, for answers: each in few threads of their own, so that
events are taken meanwhile.

Equal reads that are asked for at the same time are done once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from etl_assets.serve.problems import ProblemDetails

T = TypeVar("T")

THREADS = 2
"""Python runs one thread at a time: more of them would take the time of the event loop."""
MAX_WAITING = 32
SECONDS = 30.0


class TableReads:
    """The reads of all requests.

    Args:
        threads: How many run at a time.
        max_waiting: How many run or wait at most.
        seconds: How long a request waits.
        what: What is read, for messages.
    """

    def __init__(
        self,
        *,
        threads: int = THREADS,
        max_waiting: int = MAX_WAITING,
        seconds: float = SECONDS,
        what: str = "the tables",
    ) -> None:
        self._threads = ThreadPoolExecutor(threads, what.removeprefix("the ").replace(" ", "-"))
        self._max, self._seconds, self._what = max_waiting, seconds, what
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    @property
    def running(self) -> int:
        """How many reads run or wait."""
        return len(self._running)

    async def read(self, key: Hashable, look: Callable[[], T]) -> T:
        """Return what a read returns.

        Args:
            key: What is read, for whom: equal reads have equal keys.
            look: Reads it; called in a thread.

        Raises:
            ProblemDetails: 503 if too many wait, 504 if it takes too long.
        """
        if (running := self._running.get(key)) is None:
            if len(self._running) >= self._max:
                raise ProblemDetails(
                    503,
                    "too-many-reads",
                    f"too many requests wait for {self._what}; send it again",
                    headers={"Retry-After": "2"},
                )
            running = asyncio.get_running_loop().run_in_executor(self._threads, look)
            self._running[key] = running
            running.add_done_callback(lambda done: self._forget(key, done))
        try:
            # Others may wait for the same read: one that goes away does not end it.
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(running)
        except TimeoutError:
            raise ProblemDetails(
                504,
                "too-slow",
                f"{self._what} did not answer within {self._seconds:g} s; send the request again",
                headers={"Retry-After": "5"},
            ) from None

    async def call(self, call: Callable[[], T]) -> T:
        """Return what a call returns that no other request shares. It is done also if nobody waits any more.

        Raises:
            ProblemDetails: as for `read`.
        """
        return await self.read(object(), call)

    def close(self) -> None:
        """End without waiting for what runs."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _forget(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        self._running.pop(key, None)
        if not done.cancelled():
            done.exception()  # looked at, also when nobody waits any more
