"""Group commit: requests of a pipeline that arrive within a moment share one file and one fsync."""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from etl_assets.errors import QuorumUnavailable
from etl_assets.serve.journal import Journal, JournalFile
from etl_assets.sources.http.journal_file import JournalName, JournalRequest, file_content, first_lines

_FILE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Where the records of a request are.

    Attributes:
        file: The file, as `<day>/<name>`.
        line: The line of the first record.
        events: Number of records.
    """

    file: str
    line: int
    events: int

    @property
    def position(self) -> str:
        """Source position of the first record."""
        return f"{self.file}:{self.line}"

    def positions(self) -> Iterator[str]:
        """Yield the source positions of all records, in order."""
        return (f"{self.file}:{self.line + number}" for number in range(self.events))


class NotStored(Exception):
    """No majority stored the file of a request. Carries the file, and the receipt for when one has."""

    def __init__(self, file: JournalFile, receipt: Receipt, error: QuorumUnavailable) -> None:
        super().__init__(error.message)
        self.file, self.receipt, self.error = file, receipt, error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    request: JournalRequest
    size: int
    since: float
    done: asyncio.Future[Receipt]


class GroupCommit:
    """The requests of all pipelines that wait for their file."""

    def __init__(
        self, journal: Journal, *, seconds: float, max_bytes: int, clock: Callable[[], dt.datetime]
    ) -> None:
        self._journal, self._seconds, self._max_bytes, self._clock = journal, seconds, max_bytes, clock
        self._server, self._numbers = secrets.token_hex(4), count(1)
        self._waiting: dict[str, list[_Waiting]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether too many bytes wait."""
        return self._bytes >= self._max_bytes

    async def put(self, pipeline: str, request: JournalRequest) -> Receipt:
        """Return once the records of a request are durable.

        Raises:
            NotStored: no majority of the domains stored them in time.
        """
        size = sum(map(len, request.records))
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Receipt] = loop.create_future()
        self._bytes += size
        self._waiting.setdefault(pipeline, []).append(
            _Waiting(request=request, size=size, since=loop.time(), done=done)
        )
        if pipeline not in self._tasks:
            self._tasks[pipeline] = asyncio.create_task(self._commit(pipeline))
        try:
            return await done
        finally:
            self._bytes -= size

    async def close(self) -> None:
        """Return once nothing waits."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def _commit(self, pipeline: str) -> None:
        """Write files until nothing waits. While one is written, the next one fills."""
        try:
            while waiting := self._waiting.get(pipeline):
                # What came while the last file was written has waited already.
                waited = asyncio.get_running_loop().time() - waiting[0].since
                await asyncio.sleep(max(0.0, self._seconds - waited))
                some = self._take(pipeline)
                try:
                    await self._write(pipeline, some)
                except Exception as error:  # noqa: BLE001 - raised again where the requests wait
                    for each in some:
                        if not each.done.done():
                            each.done.set_exception(error)
        finally:
            del self._tasks[pipeline]

    def _take(self, pipeline: str) -> list[_Waiting]:
        waiting, size, number = self._waiting.pop(pipeline), 0, 0
        for each in waiting:
            size += each.size
            if number and size > _FILE_BYTES:
                self._waiting[pipeline] = waiting[number:]
                break
            number += 1
        return waiting[:number]

    async def _write(self, pipeline: str, some: Sequence[_Waiting]) -> None:
        requests = [each.request for each in some]
        file = JournalFile(
            pipeline=pipeline,
            name=JournalName(
                at=self._clock(),
                server=self._server,
                number=next(self._numbers),
                keyed=any(each.key is not None for each in requests),
            ),
            content=file_content(requests),
        )
        receipts = [
            Receipt(file=str(file.path), line=line, events=len(each.records))
            for each, line in zip(requests, first_lines(requests), strict=True)
        ]
        error = None
        try:
            await self._journal.store(file)
        except QuorumUnavailable as refused:
            error = refused
        for each, receipt in zip(some, receipts, strict=True):
            if each.done.done():
                continue  # its task was cancelled
            if error is None:
                each.done.set_result(receipt)
            else:
                each.done.set_exception(NotStored(file, receipt, error))
