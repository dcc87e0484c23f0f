"""Idempotency keys: a request that is repeated under its key gets the first one's answer.

The keys of answered requests are in the journal files, so a new process knows them. A request that no
majority stored has its file completed, under the same name, when it is repeated: it never becomes two files.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from etl_assets.errors import QuorumUnavailable, Unanswered
from etl_assets.mirroring.stores.circuit_breaker import ask
from etl_assets.serve.group_commit import NotStored, Receipt
from etl_assets.serve.journal import Journal, JournalFile
from etl_assets.sources.http.journal_file import JournalName, journal_path, remembered
from etl_assets.sources.landing import parse_day

logger = logging.getLogger("etl_assets.serve")


class KeyReused(Exception):
    """The key belongs to other content."""


@dataclass(slots=True, kw_only=True)
class _Keyed:
    """A request with a key: its content, and its receipt, its unfinished file, or the work on it."""

    content: str
    receipt: Receipt | None = None
    unfinished: JournalFile | None = None
    is_stored: bool = False
    running: asyncio.Task[Receipt] | None = None


class Keys:
    """The last keys of all clients."""

    def __init__(self, journal: Journal, max_keys: int) -> None:
        self._journal, self._max = journal, max_keys
        self._known: OrderedDict[str, _Keyed] = OrderedDict()

    async def once(
        self, key: str, content: str, store: Callable[[], Awaitable[Receipt]]
    ) -> tuple[Receipt, bool]:
        """Return the receipt of a request, and whether the request is a repetition.

        Args:
            key: The key, with the client and pipeline that it belongs to.
            content: SHA-256 of what was sent.
            store: Stores the records.

        Raises:
            KeyReused: the key belongs to other content.
            NotStored: no majority stored it.
        """
        found = self._known.get(key)
        is_repeated = found is not None
        if found is None:
            found = self._known[key] = _Keyed(content=content)
        elif found.content != content:
            raise KeyReused
        self._known.move_to_end(key)
        if found.is_stored and found.receipt is not None:
            return found.receipt, is_repeated
        if found.running is None:
            found.running = asyncio.create_task(self._store(key, found, store))
        receipt = await asyncio.shield(found.running)
        self._forget_oldest()
        return receipt, is_repeated

    async def _store(self, key: str, keyed: _Keyed, store: Callable[[], Awaitable[Receipt]]) -> Receipt:
        try:
            if keyed.unfinished is not None and keyed.receipt is not None:
                try:
                    await self._journal.store(keyed.unfinished)
                except QuorumUnavailable as error:
                    raise NotStored(keyed.unfinished, keyed.receipt, error) from error
            else:
                keyed.receipt = await store()
            keyed.is_stored, keyed.unfinished = True, None
        except NotStored as refused:
            keyed.receipt, keyed.unfinished = refused.receipt, refused.file
            raise
        finally:
            keyed.running = None
            if keyed.receipt is None:
                self._known.pop(key, None)
        assert keyed.receipt is not None
        return keyed.receipt

    def _forget_oldest(self) -> None:
        while len(self._known) > self._max and next(iter(self._known.values())).running is None:
            self._known.popitem(last=False)

    def remember(self, pipeline: str) -> None:
        """Learn the keys that the journal of a pipeline has. Before the first request."""
        where: dict[str, list[Path]] = {}
        for domain in self._journal.domains:
            folder = journal_path(domain.root, pipeline)
            try:
                # Under a name of its own: a slow look must not keep the journal from being written.
                names = ask(f"keys in {folder}", lambda folder=folder: list(_keyed_files(folder)), 30.0)
            except (OSError, Unanswered) as error:
                logger.warning("keys in the journal of %s in %s: %s", pipeline, domain.name, error)
                continue
            for path in names:
                where.setdefault(path.name, []).append(path)
        for name in sorted(where)[-self._max :]:
            self._learn(pipeline, where[name])
        self._forget_oldest()

    def _learn(self, pipeline: str, paths: list[Path]) -> None:
        path, name = paths[0], JournalName.parse(paths[0].name)
        assert name is not None
        is_stored = len(paths) >= self._journal.majority
        try:
            unfinished = (
                None if is_stored else JournalFile(pipeline=pipeline, name=name, content=path.read_bytes())
            )
            for each in remembered(path):
                receipt = Receipt(file=f"{name.day}/{path.name}", line=each.line, events=each.events)
                self._known[each.key] = _Keyed(
                    content=each.content, receipt=receipt, unfinished=unfinished, is_stored=is_stored
                )
        except (OSError, ValueError, KeyError) as error:
            logger.warning("the keys of %s cannot be read: %s", path, error)


def _keyed_files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for day in folder.iterdir():
        if parse_day(day.name) is not None:
            for path in day.iterdir():
                name = JournalName.parse(path.name)
                if name is not None and name.keyed:
                    yield path
