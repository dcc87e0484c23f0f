"""Changes of one table in the messages of a log, by whole transactions.

Belongs here: which changes are the table's, and by which columns. Does not belong here: where messages come
from (`log_server.py`), and files (`staged_changes.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field

from etl_assets.errors import MessageMalformed
from etl_assets.sources.postgres_cdc import messages as m
from etl_assets.sources.postgres_cdc.changed_rows import ChangePlace
from etl_assets.sources.postgres_cdc.column_changes import Columns
from etl_assets.sources.postgres_cdc.decoder import Decoder
from etl_assets.sources.postgres_cdc.relations import RelationCache
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter
from etl_assets.sources.postgres_cdc.taken_columns import TakenColumns
from etl_assets.sources.postgres_cdc.times import microseconds_since_1970


@dataclass(slots=True, kw_only=True)
class TableChanges:
    """Writes the changes of a table.

    Attributes:
        writer: Where they are written.
        table: The table.
        after_lsn: Transactions that ended at or before this place are left out.
        columns: The columns that are taken, at first those of the position; None: it is not known.
        schema: Decides about other columns.
        before_lsn: Transactions that commit at or after this place are not read; None: all are.
    """

    writer: StagedChangesWriter
    table: SourceTable
    after_lsn: int
    columns: Columns | None
    schema: TakenColumns
    before_lsn: int | None = None
    _relations: RelationCache = field(default_factory=RelationCache, init=False)
    _commit_lsn: int = field(default=0, init=False)
    _committed_at: int = field(default=0, init=False)
    _sequence: int = field(default=0, init=False)
    _written: m.RelationMessage | None = field(default=None, init=False)

    def read(self, data: Generator[bytes], *, max_changes: int, max_bytes: int) -> int:
        """Write changes until there are so many, or no more transactions.

        Args:
            data: Messages of whole transactions.
            max_changes: After so many changes no other transaction is read.
            max_bytes: After so many bytes of their values no other transaction begins.

        Returns:
            Where the last transaction ended; `after_lsn` if there was none after it.

        Raises:
            SourceSchemaChanged: the pipeline does not take the columns of a transaction.
        """
        reached, decoder = self.after_lsn, Decoder()
        with closing(data):
            for each in data:
                match message := decoder.decode(each):
                    case m.BeginMessage() if self.before_lsn is not None and (
                        message.commit_lsn >= self.before_lsn
                    ):
                        break
                    case m.BeginMessage():
                        self._commit_lsn, self._sequence = message.commit_lsn, 0
                        self._committed_at = microseconds_since_1970(message.committed_at)
                    case m.CommitMessage() if self._commit_lsn >= self.after_lsn:
                        reached = message.end_lsn
                        if self.writer.size >= max_bytes or self.writer.count >= max_changes:
                            break
                    case m.RelationMessage():
                        # The server sends it once, maybe in a transaction that is left out.
                        self._relations.remember(message, self._commit_lsn)
                    case _ if self._commit_lsn >= self.after_lsn:
                        self._write(message)
        return reached

    def _write(self, message: m.Message) -> None:
        """Write a change of the table.

        Only these are numbered: a transaction that is read again has the same ones, whatever else is sent.
        """
        oid = self.table.oid
        match message:
            case m.InsertMessage() | m.UpdateMessage() | m.DeleteMessage() if message.relation == oid:
                self._begin()
                self.writer.change(message, self._place)
            case m.TruncateMessage() if oid in message.relations:
                self._begin()
                self.writer.truncate(self._place)
            case _:
                return  # another table, or what is no change
        self._sequence += 1

    @property
    def _place(self) -> ChangePlace:
        return ChangePlace(lsn=self._commit_lsn, sequence=self._sequence, committed_at=self._committed_at)

    def _begin(self) -> None:
        """Begin a file if the table has other columns than the last change had.

        Raises:
            SourceSchemaChanged: the pipeline does not take them.
        """
        found = self._relations.current(self.table.oid)
        if found is None:
            raise MessageMalformed(
                f"a change of {self.table.name} came before its columns",
                fix="nothing was read of it; run again, so that the server sends the columns",
                kind="R",
                offset=0,
            )
        if found is not self._written:
            why = self.schema.quarantined(self.columns, found.columns, self._commit_lsn)
            self.columns = found.columns if why is None else self.columns
            self.writer.begin(found, quarantined=why)
            self._written = found
