"""Changes of many tables in the messages of a log, each on its way to the files of its table.

Belongs here: which change goes where, by whole transactions. Does not belong here: where messages come from
(`log_reader.py`), and where the files go (`spool.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.errors import EtlAssetsError, MessageMalformed, SourceRefused
from etl_assets.sources.captures.spool import Segment
from etl_assets.sources.postgres_cdc import messages as m
from etl_assets.sources.postgres_cdc.changed_rows import ChangePlace
from etl_assets.sources.postgres_cdc.decoder import Decoder
from etl_assets.sources.postgres_cdc.relations import RelationCache
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter
from etl_assets.sources.postgres_cdc.times import microseconds_since_1970, seconds_since_1970

if TYPE_CHECKING:
    import psycopg

_DAY = dt.date(1970, 1, 1)
"""Files of the spool belong to no day: the day of a change is that on which its table's step reads it."""


@dataclass(slots=True)
class _Route:
    """The way of one table's changes.

    Attributes:
        writer: Writes its files.
        commit_lsn: Commit of the transaction that its last change belongs to.
        sequence: Number of its next change in that transaction.
        written: The columns that its last file is of.
        ends: Where the last transaction in a file ended, if the next file has other columns.
    """

    writer: StagedChangesWriter
    commit_lsn: int = -1
    sequence: int = 0
    written: m.RelationMessage | None = None
    ends: dict[Path, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class RoutedChanges:
    """Writes the changes of tables into files, one folder a table.

    A change that cannot be kept, such as an update that lacks a long value, is an error of its table alone:
    the table gets no more changes, and `failed` has the reason.

    Attributes:
        session: A session that knows the types of columns.
        folder: An empty folder.
        keys: The columns that identify a row, by the OID of each table that is followed.
        after_lsn: Transactions that ended at or before this place are left out.
        failed: Why tables cannot be followed on, by OID.
        committed_at: When the last transaction that was read was committed, by the server's clock, in seconds
            since 1970; None if there was none.
    """

    session: psycopg.Connection
    folder: Path
    keys: Mapping[int, tuple[str, ...]]
    after_lsn: int
    failed: dict[int, EtlAssetsError] = field(default_factory=dict, init=False)
    committed_at: float | None = field(default=None, init=False)
    _routes: dict[int, _Route] = field(default_factory=dict, init=False)
    _relations: RelationCache = field(default_factory=RelationCache, init=False)
    _commit_lsn: int = field(default=0, init=False)
    _commit_time: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _reached: int = field(default=0, init=False)

    def read(self, messages: Generator[list[bytes]], *, max_changes: int, max_bytes: int) -> int:
        """Write changes until there are so many, or no more transactions.

        Returns:
            Where the last transaction ended; `after_lsn` if there was none after it.
        """
        self._reached, decoder = self.after_lsn, Decoder()
        with closing(messages):
            for each in chain.from_iterable(messages):
                match message := decoder.decode(each):
                    case m.UpdateMessage() | m.InsertMessage() | m.DeleteMessage():
                        if self._is_new:
                            self._write(message.relation, message, len(each))
                    case m.BeginMessage():
                        self._commit_lsn = message.commit_lsn
                        self._commit_time = microseconds_since_1970(message.committed_at)
                    case m.CommitMessage() if self._commit_lsn >= self.after_lsn:
                        self._reached = message.end_lsn
                        self.committed_at = seconds_since_1970(message.committed_at)
                        if self._size >= max_bytes or self._count >= max_changes:
                            break
                    case m.RelationMessage():
                        self._relations.remember(message, self._commit_lsn)
                    case m.TruncateMessage() if self._is_new:
                        for oid in message.relations:
                            self._write(oid, message, 0)
        return self._reached

    def files(self) -> Mapping[int, list[Segment]]:
        """Complete the files, and return those of each table."""
        found: dict[int, list[Segment]] = {}
        for oid, route in self._routes.items():
            if oid in self.failed:
                continue
            try:
                route.writer.close()
            except (SourceRefused, MessageMalformed) as error:
                self.failed[oid] = error
                continue
            if files := route.writer.written:
                found[oid] = [
                    Segment(path=path, rows=rows, end_lsn=route.ends.get(path, self._reached))
                    for path, rows in files
                ]
        return found

    @property
    def _is_new(self) -> bool:
        return self._commit_lsn >= self.after_lsn

    def _write(self, oid: int, message: m.Change, size: int) -> None:
        if oid not in self.keys or oid in self.failed:
            return
        try:
            route = self._begun(oid)
            place = ChangePlace(self._commit_lsn, route.sequence, self._commit_time)
            if isinstance(message, m.TruncateMessage):
                route.writer.truncate(place)
            else:
                route.writer.change(message, place, size)
            route.sequence += 1
            self._count += 1
            self._size += size
        except (SourceRefused, MessageMalformed) as error:
            self.failed[oid] = error

    def _begun(self, oid: int) -> _Route:
        """Return the way of a table; begin a file if its columns are others than before."""
        relation = self._relations.current(oid)
        if relation is None:
            raise MessageMalformed(
                f"a change of the table with the OID {oid} came before its columns",
                fix="copy the table again: `etl-assets cdc rollback --copy`",
                kind="R",
                offset=0,
            )
        route = self._routes.get(oid)
        if route is None:
            writer = StagedChangesWriter(
                self.session, self.folder / str(oid), day=_DAY, place="spool", keys=self.keys[oid]
            )
            route = self._routes[oid] = _Route(writer)
        if relation is not route.written:
            route.writer.begin(relation)
            route.written = relation
            if route.commit_lsn != self._commit_lsn:
                # What has the former columns can be taken up without what has the new ones.
                for path, _ in route.writer.written:
                    route.ends.setdefault(path, self._reached)
        if route.commit_lsn != self._commit_lsn:
            route.commit_lsn, route.sequence = self._commit_lsn, 0
        return route
