"""Changes of one table in the messages of a log, by whole transactions.

Belongs here: which changes are the table's, and by which columns. Does not belong here: where messages come
from (`log_server.py`), and files (`staged_changes.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from etl_assets.errors import MessageMalformed
from etl_assets.sources.postgres_cdc import messages as m
from etl_assets.sources.postgres_cdc.decoder import Decoder
from etl_assets.sources.postgres_cdc.relations import RelationCache
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter


@dataclass(slots=True, kw_only=True)
class TableChanges:
    """Writes the changes of a table.

    Attributes:
        writer: Where they are written.
        table: The table.
        after_lsn: Transactions that ended at or before this place are left out.
    """

    writer: StagedChangesWriter
    table: SourceTable
    after_lsn: int
    _relations: RelationCache = field(default_factory=RelationCache, init=False)
    _written: m.RelationMessage | None = field(default=None, init=False)

    def read(self, data: Generator[bytes], *, max_changes: int, max_bytes: int) -> int:
        """Write changes until there are so many, or no more transactions.

        Args:
            data: Messages of whole transactions.
            max_changes: After so many changes no other transaction is read.
            max_bytes: The same of the bytes of their values.

        Returns:
            Where the last transaction ended; `after_lsn` if there was none after it.
        """
        reached = self.after_lsn
        with closing(data):
            for changes, commit in transactions(data):
                if commit.end_lsn <= self.after_lsn:
                    self._remember(changes, commit.commit_lsn)
                    continue
                self._write(changes, commit.commit_lsn)
                reached = commit.end_lsn
                if self.writer.size >= max_bytes or self.writer.count >= max_changes:
                    break
        return reached

    def _remember(self, changes: Iterable[m.Message], lsn: int) -> None:
        """Keep columns, which the server sends once, with the first change after it connected."""
        for each in changes:
            if isinstance(each, m.RelationMessage):
                self._relations.remember(each, lsn)

    def _write(self, changes: Iterable[m.Message], lsn: int) -> None:
        oid = self.table.oid
        for sequence, change in enumerate(changes):
            match change:
                case m.RelationMessage():
                    self._relations.remember(change, lsn)
                case m.InsertMessage() | m.UpdateMessage() | m.DeleteMessage() if change.relation == oid:
                    self._begin()
                    self.writer.change(change, lsn, sequence)
                case m.TruncateMessage() if oid in change.relations:
                    self._begin()
                    self.writer.truncate(lsn, sequence)
                case _:
                    pass  # another table, or what is no change

    def _begin(self) -> None:
        """Begin a file if the table has other columns than the last change had."""
        found = self._relations.current(self.table.oid)
        if found is None:
            raise MessageMalformed(
                f"a change of {self.table.name} came before its columns",
                fix="nothing was read of it; run again, so that the server sends the columns",
                kind="R",
                offset=0,
            )
        if found is not self._written:
            self.writer.begin(found)
            self._written = found


def transactions(data: Iterator[bytes]) -> Iterator[tuple[list[m.Message], m.CommitMessage]]:
    """Yield the messages of each transaction, with its commit. A transaction without one is left out."""
    decoder = Decoder()
    changes: list[m.Message] = []
    for each in data:
        match message := decoder.decode(each):
            case m.BeginMessage():
                changes = []
            case m.CommitMessage():
                yield changes, message
                changes = []
            case _:
                changes.append(message)
