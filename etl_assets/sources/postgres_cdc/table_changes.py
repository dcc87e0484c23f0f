"""Changes of one table in the messages of a log, by whole transactions, and very large ones by parts.

Belongs here: which changes are the table's, and by which columns. Does not belong here: where messages come
from (`log_server.py`), and files (`staged_changes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

from etl_assets.errors import MessageMalformed, SourceLost
from etl_assets.sources.postgres_cdc import messages as m
from etl_assets.sources.postgres_cdc.changed_rows import ChangePlace
from etl_assets.sources.postgres_cdc.column_changes import Columns
from etl_assets.sources.postgres_cdc.decoder import Decoder
from etl_assets.sources.postgres_cdc.log_position import LogPosition
from etl_assets.sources.postgres_cdc.lsn import lsn_text
from etl_assets.sources.postgres_cdc.relations import RelationCache
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter
from etl_assets.sources.postgres_cdc.taken_columns import TakenColumns
from etl_assets.sources.postgres_cdc.times import microseconds_since_1970
from etl_assets.sources.postgres_cdc.transaction_parts import TransactionPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadUntil:
    """How far a reading came.

    Attributes:
        lsn: End of the last whole transaction.
        part: How far it is within the transaction after it, if that is divided.
    """

    lsn: int
    part: TransactionPart | None = None


@dataclass(slots=True, kw_only=True)
class TableChanges:
    """Writes the changes of a table.

    Attributes:
        writer: Where they are written.
        table: The table.
        after: How far the table has been read: what is before is left out.
        columns: The columns that are taken, at first those of the position; None: it is not known.
        schema: Decides about other columns.
        max_transaction: A transaction with more changes of the table is divided into parts of so many.
        before_lsn: Transactions that commit at or after this place are not read; None: all are.
        is_at_end: Whether the log had no more than what was read.
    """

    writer: StagedChangesWriter
    table: SourceTable
    after: ReadUntil
    columns: Columns | None
    schema: TakenColumns
    max_transaction: int
    before_lsn: int | None = None
    is_at_end: bool = field(default=False, init=False)
    _relations: RelationCache = field(default_factory=RelationCache, init=False)
    _commit_lsn: int = field(default=0, init=False)
    _committed_at: int = field(default=0, init=False)
    _sequence: int = field(default=0, init=False)
    _first: int = field(default=0, init=False)
    _written: m.RelationMessage | None = field(default=None, init=False)
    _open: Generator[list[bytes]] | None = field(default=None, init=False)
    _messages: Iterator[bytes] = field(default_factory=lambda: iter(()), init=False)
    _decode: Callable[[bytes], m.Message] = field(default_factory=lambda: Decoder().decode, init=False)
    _next: bytes | None = field(default=None, init=False)

    def read(
        self, messages: Callable[[int | None], Generator[list[bytes]]], *, max_changes: int, max_bytes: int
    ) -> ReadUntil:
        """Write changes until there are so many, or no more transactions.

        Args:
            messages: Returns messages of whole transactions, some at a time: about so many, or all there are.
            max_changes: After so many changes no other transaction is read.
            max_bytes: After so many bytes of their values no other transaction begins.

        Returns:
            How far it came; `after` if there was nothing after it. If that is within a transaction, the
            messages stay open for `go_on`, until `close`.

        Raises:
            SourceSchemaChanged: the pipeline does not take the columns of a transaction.
        """
        before = self.after
        # If all of the first ones had been read, and not confirmed, it is read beyond them.
        for most in (max_changes, None):
            self.close()
            self._open = self._counted(messages(most), most)
            self._messages, self._decode = chain.from_iterable(self._open), Decoder().decode
            self.is_at_end = False
            if self._read(max_changes, max_bytes) != before or self.is_at_end:
                break
        return self.after

    def go_on(self, writer: StagedChangesWriter, *, max_changes: int, max_bytes: int) -> ReadUntil:
        """Write the next part of the transaction that the last reading ended in."""
        self.writer, self._written = writer, None
        return self._read(max_changes, max_bytes)

    def close(self) -> None:
        """Let go of the messages."""
        if self._open is not None:
            self._open.close()
            self._open = self._next = None
            self._messages = iter(())

    def _read(self, max_changes: int, max_bytes: int) -> ReadUntil:
        try:
            self.after = self._read_on(max_changes, max_bytes)
        except BaseException:
            self.close()
            raise
        if self.after.part is None:
            self.close()
        return self.after

    def _read_on(self, max_changes: int, max_bytes: int) -> ReadUntil:
        reached, decode, self._first = self.after, self._decode, self._first_unread()
        while (data := self._next or next(self._messages, None)) is not None:
            self._next = None
            match message := decode(data):
                case m.UpdateMessage() | m.InsertMessage() | m.DeleteMessage() | m.TruncateMessage() if (
                    self._is_wanted(message)
                ):
                    if self._sequence >= self._first + self.max_transaction:
                        self._next = data
                        return ReadUntil(lsn=reached.lsn, part=self._next_part())
                    if self._sequence >= self._first:
                        self._write(message, len(data))
                    # Only changes of the table are numbered: a transaction that is read again has the same
                    # ones, whatever else is sent.
                    self._sequence += 1
                case m.BeginMessage() if self.before_lsn is not None and (
                    message.commit_lsn >= self.before_lsn
                ):
                    break
                case m.BeginMessage():
                    self._commit_lsn, self._sequence = message.commit_lsn, 0
                    self._first = self._first_unread()
                    self._committed_at = microseconds_since_1970(message.committed_at)
                case m.CommitMessage() if self._commit_lsn >= self.after.lsn:
                    self._expect_part()
                    was_divided = reached.part is not None
                    reached = ReadUntil(lsn=message.end_lsn)
                    if was_divided or self.writer.size >= max_bytes or self.writer.count >= max_changes:
                        break
                case m.RelationMessage():
                    # The server sends it once, maybe in a transaction that is left out.
                    self._remember(message)
        return reached

    def _expect_part(self) -> None:
        """Expect that a transaction which ends is the one whose first parts have been read, if there is one.

        Raises:
            SourceLost: the log has another one there.
        """
        part = self.after.part
        if part is None or part.commit_lsn == self._commit_lsn:
            return
        raise SourceLost(
            f"the log has no more of the transaction at {lsn_text(part.commit_lsn)}, of which"
            f" {self.table.name} has {part.number} parts",
            fix="find out what was done to the publication or the slot; `on_lost: copy` and another slot copy"
            " the table again",
            source=self.table.name,
            lost=f"the rest of the transaction at {lsn_text(part.commit_lsn)}",
        )

    def _first_unread(self) -> int:
        """Return the number of the first change of the transaction that has not been read."""
        part = self.after.part
        return part.sequence if part is not None and part.commit_lsn == self._commit_lsn else 0

    def _next_part(self) -> TransactionPart:
        number = 0 if self.after.part is None else self.after.part.number
        return TransactionPart(commit_lsn=self._commit_lsn, sequence=self._sequence, number=number + 1)

    def _remember(self, relation: m.RelationMessage) -> None:
        if self._relations.remember(relation, self._commit_lsn) and relation.oid == self.table.oid:
            self._written = None

    def _is_wanted(self, message: m.Change) -> bool:
        """Return whether a message is of the table, and of a transaction that has not been read."""
        if self._commit_lsn < self.after.lsn:
            return False
        if isinstance(message, m.TruncateMessage):
            return self.table.oid in message.relations
        return message.relation == self.table.oid

    def _write(self, message: m.Change, size: int) -> None:
        if self._written is None:
            self._begin()
        place = ChangePlace(self._commit_lsn, self._sequence, self._committed_at)
        if isinstance(message, m.TruncateMessage):
            self.writer.truncate(place)
        else:
            self.writer.change(message, place, size)

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
        why = self.schema.quarantined(self.columns, found.columns, self._commit_lsn)
        self.columns = found.columns if why is None else self.columns
        self.writer.begin(found, quarantined=why)
        self._written = found

    def _counted(self, messages: Generator[list[bytes]], most: int | None) -> Generator[list[bytes]]:
        """Yield messages, and note whether there were fewer than the server was asked for."""
        number = 0
        with closing(messages):
            for some in messages:
                number += len(some)
                yield some
        self.is_at_end = most is None or number < most


@dataclass(slots=True)
class OpenReading:
    """A reading that ended within a transaction: the server need not send that from its beginning again."""

    _end: LogPosition | None = None
    _changes: TableChanges | None = None

    def keep(self, end: LogPosition, changes: TableChanges) -> None:
        """Keep a reading, and where it ended."""
        self._end, self._changes = end, changes

    def take(self, begin: LogPosition) -> TableChanges | None:
        """Return the reading that ended at a position; None if the log has to be read again."""
        end, changes = self._end, self._changes
        self._end = self._changes = None
        if end is None or changes is None:
            return None
        if (end.lsn, end.part, end.timeline) == (begin.lsn, begin.part, begin.timeline):
            return changes
        changes.close()
        return None

    def close(self) -> None:
        """Let go of the reading."""
        if self._changes is not None:
            self._changes.close()
        self._end = self._changes = None
