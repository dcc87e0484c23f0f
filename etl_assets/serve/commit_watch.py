"""Requests that wait until their pipeline's source table has their events (`ack=committed`).

While requests of a pipeline wait, its tables are looked at several times a second; outcomes are read
when a version is new. Nothing is handed over in memory: any process may commit the events.

Belongs here: who waits, and for how long. Does not belong here: what the tables have (`outcomes.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, TypeVarTuple

from etl_assets.errors import EtlAssetsError
from etl_assets.serve.group_commit import Receipt
from etl_assets.serve.outcomes import NOTHING_READ, Outcomes, TableVersions

logger = logging.getLogger("etl_assets.serve")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

POLL_SECONDS = 0.2
_LOOKS_AT_ONCE = 4
_EVENTS_AT_ONCE = 50_000
_GRACE_SECONDS = 5.0
"""How long a request waits for a look at the tables that is late, above its own time."""


class Look(Protocol):
    """What is asked of the tables, in a thread (`outcomes.OutcomeReader`)."""

    def versions(self, pipeline: str) -> TableVersions:
        """Return the acknowledged versions of a pipeline's tables."""
        ...

    def read(
        self, pipeline: str, receipts: Collection[Receipt], since: TableVersions
    ) -> Mapping[Receipt, Outcomes]:
        """Return the outcomes of those requests whose batch is committed."""
        ...


class NotCommitted(Exception):
    """The events of a request are durable, and the source table does not have them yet. Says why."""


class TooManyWait(Exception):
    """As many requests wait for their commit as may: of all clients, or of the one that asks."""

    def __init__(self, number: int, *, is_of_client: bool) -> None:
        whose = " of this client" if is_of_client else ""
        super().__init__(f"{number:,} requests{whose} wait for their commit")
        self.is_of_client = is_of_client


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiter:
    """A request that waits.

    Attributes:
        receipt: Where its events are.
        since: Versions of the tables from before it was stored.
        looked_at: The version of the source table that does not have it; None: none was looked at.
        deadline: When it waits no more, by the loop's clock.
        done: Its outcomes; an exception says why there are none.
    """

    receipt: Receipt
    since: TableVersions
    looked_at: int | None
    deadline: float
    done: asyncio.Future[Outcomes] = field(repr=False)


class CommitWatch:
    """The requests of all pipelines that wait for the commit of their events."""

    is_ending: bool
    """Whether no request waits any more."""

    def __init__(self, tables: Look, *, max_waiting: int) -> None:
        self._tables, self._max = tables, max_waiting
        self._max_of_client = max(1, max_waiting // 2)
        self._waiting: dict[str, list[_Waiter]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._places: Counter[str] = Counter()
        # Threads of its own: looks that are late hold up nothing else.
        self._threads = ThreadPoolExecutor(_LOOKS_AT_ONCE, "commit-watch")
        self.is_ending = False

    @contextmanager
    def place(self, client: str) -> Generator[None]:
        """Hold one of the places for requests that wait, from before the request is stored.

        One client takes no more than half of them, so that others find one.

        Args:
            client: Who asks.

        Raises:
            TooManyWait: all are taken, or the client has its half.
        """
        if self._places.total() >= self._max:
            raise TooManyWait(self._max, is_of_client=False)
        if self._places[client] >= self._max_of_client:
            raise TooManyWait(self._max_of_client, is_of_client=True)
        self._places[client] += 1
        try:
            yield
        finally:
            self._places[client] -= 1
            if not self._places[client]:
                del self._places[client]

    async def versions(self, pipeline: str) -> TableVersions:
        """Return the versions before a request is stored; `NOTHING_READ` if they are unknown."""
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                return await self._in_thread(self._tables.versions, pipeline)
        except (EtlAssetsError, OSError) as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else error
            logger.warning("the tables of %s cannot be looked at: %s", pipeline, why)
            return NOTHING_READ

    async def outcomes(
        self, pipeline: str, receipt: Receipt, since: TableVersions | None, seconds: float
    ) -> Outcomes:
        """Return the outcomes of a request once they are committed.

        Args:
            pipeline: The pipeline.
            receipt: Where its events are.
            since: Versions of the tables from before it was stored; None: it may have been committed
                long ago.
            seconds: How long to wait; the tables are looked at at least once.

        Raises:
            NotCommitted: they are not committed in time, or the server ends.
        """
        if self.is_ending:
            raise NotCommitted("the server ends")
        loop = asyncio.get_running_loop()
        waiter = _Waiter(
            receipt=receipt,
            since=since or NOTHING_READ,
            looked_at=None if since is None else since.rows,
            deadline=loop.time() + seconds,
            done=loop.create_future(),
        )
        self._waiting.setdefault(pipeline, []).append(waiter)
        if pipeline not in self._tasks:
            self._tasks[pipeline] = asyncio.create_task(self._watch(pipeline))
        try:
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                return await waiter.done
        except TimeoutError:
            raise NotCommitted("the tables do not answer") from None
        finally:
            if waiter in (left := self._waiting.get(pipeline, [])):
                left.remove(waiter)

    def close(self) -> None:
        """Answer all that wait: their events are durable, and the process ends."""
        self.is_ending = True
        for waiting in self._waiting.values():
            for each in waiting:
                _give_up(each, "the server ends")

    def release_threads(self) -> None:
        """End what looks at the tables: no request is left."""
        for task in self._tasks.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, look: Callable[[*Ts], T], *given: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, look, *given)

    async def _watch(self, pipeline: str) -> None:
        """Look at the tables until no request waits."""
        try:
            while waiting := list(self._waiting.get(pipeline, ())):
                problem = "not committed yet"
                try:
                    await self._look(pipeline, waiting)
                except Exception as error:
                    is_known = isinstance(error, EtlAssetsError | OSError)
                    logger.warning(
                        "the tables of %s cannot be read: %s", pipeline, error, exc_info=not is_known
                    )
                    problem = "the tables cannot be read (the server's log says why)"
                now = asyncio.get_running_loop().time()
                for each in waiting:
                    if each.deadline <= now:
                        _give_up(each, problem)
                await asyncio.sleep(POLL_SECONDS)
        finally:
            del self._tasks[pipeline]
            self._waiting.pop(pipeline, None)

    async def _look(self, pipeline: str, waiting: Collection[_Waiter]) -> None:
        """Give requests the outcomes that versions have which were not looked at."""
        version = (await self._in_thread(self._tables.versions, pipeline)).rows
        due = [each for each in waiting if each.looked_at != version and not each.done.done()]
        if not due:
            return
        since = TableVersions(
            rows=min(each.since.rows for each in due), rejects=min(each.since.rejects for each in due)
        )
        for some in _in_parts(due):
            found = await self._in_thread(self._tables.read, pipeline, {each.receipt for each in some}, since)
            for each in some:
                each.looked_at = version
                if (outcomes := found.get(each.receipt)) is not None and not each.done.done():
                    each.done.set_result(outcomes)


def _in_parts(waiting: Collection[_Waiter]) -> Iterator[list[_Waiter]]:
    """Yield requests with a bounded number of events at a time: their outcomes are in memory together."""
    part, events = [], 0
    for each in waiting:
        if part and events + each.receipt.events > _EVENTS_AT_ONCE:
            yield part
            part, events = [], 0
        part.append(each)
        events += each.receipt.events
    yield part


def _give_up(waiter: _Waiter, reason: str) -> None:
    if not waiter.done.done():
        waiter.done.set_exception(NotCommitted(reason))
