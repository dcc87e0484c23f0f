"""A table of PostgreSQL as a source: its rows at first, then the committed transactions of the log.

A position is the end of a transaction in the log, or a place within one that is read in parts. While the
table is copied, it is where the slot began, with the key of the last row that was copied. Every record has a
place in the log: that of its commit, or for a copied row the one of its snapshot. So whatever is copied or
read twice, the newest change of a row is known.

- Order: commits, and the changes of each in the order in which they were made.
- Replay: a transaction that ended at or before the position is left out.
- Retention: the slot keeps the log until `confirm`, which follows the commit of the rows.

Belongs here: what is read next. Does not belong here: SQL (`log_server.py`), rows of the copy
(`table_copy.py`), and files (`staged_changes.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree

from etl_assets.errors import (
    EtlAssetsError,
    SourceLost,
    SourceRefused,
    SourceSchemaChanged,
)
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.pipelines.postgres_cdc_spec import MAX_TRANSACTION_RECORDS, OnLostLog
from etl_assets.sources.postgres_cdc.log_position import LOG, LogPosition
from etl_assets.sources.postgres_cdc.log_server import LogServer, publication_lost
from etl_assets.sources.postgres_cdc.lsn import lsn_text
from etl_assets.sources.postgres_cdc.membership import may_lack_changes, membership_lost, read_membership
from etl_assets.sources.postgres_cdc.partitions import Partitions, read_partitions
from etl_assets.sources.postgres_cdc.rows_again import RowsAgain
from etl_assets.sources.postgres_cdc.source_table import (
    SourceTable,
    expect_source_table,
    find_source_table,
    quoted_table,
)
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter
from etl_assets.sources.postgres_cdc.table_changes import OpenReading, ReadUntil, TableChanges
from etl_assets.sources.postgres_cdc.table_copy import TableCopy
from etl_assets.sources.postgres_cdc.taken_columns import TakenColumns
from etl_assets.sources.postgres_cdc.transaction_parts import log_facts
from etl_assets.sources.ranges import Lag, Positions, RangeRead, ReadRange

UNCONFIRMED_BYTES = 64 << 20
"""After so much log without a change of the table a message is written, so that the server can forget it."""


@dataclass(slots=True, kw_only=True)
class PostgresLog:
    """The source.

    Attributes:
        server: The server, its slot and its publication.
        table: Schema and name of the table.
        keys: Columns that identify a row.
        schema: Decides about columns that change.
        on_lost: What happens if the log after the position is gone.
        needs_all_values: Whether an update has to have long values too that it did not change.
        max_transaction: A transaction with more changes of the table is read in parts of so many.
        now: Returns the time; its day is that of the records.
    """

    server: LogServer
    table: str
    keys: tuple[str, ...]
    schema: TakenColumns
    on_lost: OnLostLog = OnLostLog.FAIL
    needs_all_values: bool = False
    max_transaction: int = MAX_TRANSACTION_RECORDS
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    _copy: TableCopy = field(init=False)
    _open: OpenReading = field(default_factory=OpenReading, init=False)

    def __post_init__(self) -> None:
        self._copy = TableCopy(server=self.server)

    @property
    def is_repeatable(self) -> bool:
        """No: rows that are copied again are copied as they are then."""
        return False

    def plan(self, positions: Positions, *, max_bytes: int, max_records: int) -> ReadRange | None:
        """Return the next rows to copy, or transactions to read; None if there are none."""
        with self.server.asked():
            before = LogPosition.of(positions)
            begin, notes = self._begin(before)
            if not begin.is_copying and not self._is_behind(begin, writes=True):
                return None
            return ReadRange(
                begin={LOG: begin.as_json()},
                end={LOG: begin.as_json()},  # `read` says how far it came
                details={
                    "day": self.now().date().isoformat(),
                    "max_bytes": max_bytes,
                    "max_records": max_records,
                },
                more=begin.is_copying,
                notes=notes,
            )

    def read(self, wanted: ReadRange, folder: Path) -> RangeRead:
        """Write rows or changes into staged files."""
        begin = LogPosition.of(wanted.begin)
        assert begin is not None  # each range begins somewhere
        try:
            with self.server.asked():
                self.server.expect_timeline(begin.timeline, self.table)
                table = self._found()
                return (self._read_rows if begin.is_copying else self._read_log)(table, begin, wanted, folder)
        except EtlAssetsError:
            self._open.close()
            self.server.close()  # the snapshot too
            raise

    def confirm(self, positions: Positions) -> None:
        """Let the server forget the log before positions that are committed."""
        position = LogPosition.of(positions)
        if position is None or position.is_copying:
            return
        failpoint(Failpoint.SOURCE_BEFORE_CONFIRM)
        with self.server.asked():
            self.server.confirm(position.lsn)
        failpoint(Failpoint.SOURCE_AFTER_CONFIRM)

    def lag(self, positions: Positions) -> Lag:
        """Return whether there is something to read; how many changes is not known."""
        with self.server.asked():
            before = LogPosition.of(positions)
            is_behind = True
            if before is not None and not before.is_copying and self._lost(before) is None:
                is_behind = self._is_behind(before, writes=False)
            return Lag(records=None if is_behind else 0, oldest=None, first_day=self.now().date())

    def close(self) -> None:
        """Close the session."""
        self._open.close()
        self.server.close()

    def _begin(self, before: LogPosition | None) -> tuple[LogPosition, tuple[str, ...]]:
        """Return where the next range begins, and what people should know of it.

        Raises:
            SourceLost: the log after the position is gone.
            SourceRefused: the server holds other data, or lacks something.
        """
        notes: tuple[str, ...] = ()
        if before is not None:
            now = replace(  # read first: what changes after it was compared differs next time
                before,
                timeline=self.server.timeline(),
                partitions=self._partitions(before).marks,
                publication=self.server.publication_oid(),
                membership=self._membership(),
            )
            if (lost := self._lost(before)) is None:
                return now, ()
            if self.on_lost is OnLostLog.FAIL:
                raise self._log_is_gone(before, lost)
            notes = (f"{lost}; {self.table} is copied again",)
        slot = self.server.slot_state()
        if slot is not None and not slot.is_usable:
            raise SourceRefused(
                f"the slot {self.server.slot} is not one of pgoutput in the database of {self.server.name}",
                fix="name another slot in source.slot",
                source=self.server.name,
            )
        if slot is not None and (slot.is_lost or before is not None):
            self.server.drop_slot()
            slot = None
        expect_source_table(self.server.session, self.table)
        if not self.server.publication_exists():
            self.server.create_publication(quoted_table(self.table))
        found = self._found()  # before a slot keeps the log
        if slot is None:
            self.server.create_slot()
            slot = self.server.slot_state()
        assert slot is not None  # it was there or has been made
        return (
            LogPosition(
                system=self.server.system(),
                lsn=slot.confirmed_lsn,
                is_copying=True,
                timeline=self.server.timeline(),
                empties=before is not None,
                partitions=self._partitions(None).marks,
                publication=self.server.publication_oid(),
                membership=self._membership(),
                columns=found.relation.columns if before is None else before.columns,
            ),
            notes,
        )

    def _found(self) -> SourceTable:
        return find_source_table(
            self.server.session,
            self.table,
            publication=self.server.publication,
            keys=self.keys,
            needs_all_values=self.needs_all_values,
        )

    def _lost(self, position: LogPosition) -> str | None:
        """Return why the log after a position cannot be read any more; None if it can.

        Raises:
            SourceRefused: the server holds other data, whose places in the log mean something else.
        """
        if (system := self.server.system()) != position.system:
            raise SourceRefused(
                f"the connection {self.server.name} leads to another PostgreSQL server (system {system}) than"
                f" the one that {self.table} was read from (system {position.system})",
                fix="correct the connection; to read the new server, declare a pipeline with another name",
                source=self.server.name,
            )
        if (end_lsn := self.server.end_lsn()) < position.changes_until:
            raise SourceRefused(
                f"the log of the connection {self.server.name} ends at {lsn_text(end_lsn)}, before the"
                f" position {lsn_text(position.changes_until)} of {self.table}: the server was restored to an"
                " earlier time, or a standby was promoted that lacks the last transactions",
                fix="if a standby was promoted, run again once its log is longer, with `on_lost: copy`;"
                " to read it as it is now, declare a pipeline with another name and another slot",
                source=self.server.name,
            )
        if (lacks := self.server.diverged(position.timeline, position.read_until)) is not None:
            return lacks
        slot = self.server.slot_state()
        if slot is None:
            return f"the slot {self.server.slot} is gone"
        if slot.is_lost:
            return f"the slot {self.server.slot} is lost: the server removed log that was not read"
        if slot.confirmed_lsn > position.lsn:
            moved = lsn_text(slot.confirmed_lsn)
            return f"another reader moved the slot {self.server.slot} on to {moved}"
        if position.publication not in (0, self.server.publication_oid()):
            return publication_lost(self.server.publication)
        if position.partitions and self._partitions(position).moved_rows(position.partitions):
            return f"rows of {self.table} came or went with its partitions, which the log does not have"
        if position.membership is not None and may_lack_changes(position.membership, self._membership()):
            return membership_lost(self.server.publication, self.table)
        return None

    def _membership(self) -> tuple[str, ...]:
        return read_membership(self.server.session, self.server.publication, quoted_table(self.table))

    def _partitions(self, position: LogPosition | None) -> Partitions:
        """Return the partitions of the table. One without any at a position never gets some."""
        if position is not None and position.partitions == ():
            return Partitions()
        return read_partitions(self.server.session, quoted_table(self.table))

    def _log_is_gone(self, position: LogPosition, lost: str) -> SourceLost:
        return SourceLost(
            f"changes of {self.table} after {lsn_text(position.lsn)} cannot be read: {lost}",
            fix="`on_lost: copy` in the pipeline's source copies the table again; the table of the pipeline"
            " then has exactly its rows",
            source=self.server.name,
            lost=f"the log after {lsn_text(position.lsn)}",
        )

    def _is_behind(self, position: LogPosition, *, writes: bool) -> bool:
        """Return whether there is a transaction to read, or so much log that one is written."""
        if position.part is not None:
            return True
        table = self._found()
        if self.server.has_changes(table.oid, position.lsn):
            return True
        if self.server.end_lsn() - position.lsn < UNCONFIRMED_BYTES:
            return False
        if writes:
            self.server.write_message()
        return True

    def _writer(self, table: SourceTable, wanted: ReadRange, folder: Path, place: str) -> StagedChangesWriter:
        return StagedChangesWriter(
            self.server.session,
            folder,
            day=dt.date.fromisoformat(wanted.details["day"]),
            place=place,
            keys=table.keys,
            needs_all_values=self.needs_all_values,
        )

    def _read_rows(
        self, table: SourceTable, begin: LogPosition, wanted: ReadRange, folder: Path
    ) -> RangeRead:
        # 1. Place the rows directly before the first commit that their snapshot does not have.
        place = self._copy.place(table)
        number = begin.rows if place.lsn == begin.snapshot else 0
        writer = self._writer(table, wanted, folder, f"copy/{lsn_text(place.lsn)}/{number}")
        why = self.schema.quarantined(begin.columns, table.relation.columns, 0)
        writer.begin(table.relation, quarantined=why)
        if begin.empties:
            writer.copy_begins(place.numbered(number))
            number += 1
        # 2. Write the next rows, and remember the key of the last one.
        limit = self._copy.limit(table, wanted.details["max_records"], wanted.details["max_bytes"])
        rows, after = self._copy.write(writer, table, begin.after, limit, place.numbered(number))
        files = writer.close()
        # 3. The copy is complete where no more rows came.
        if rows < limit:
            self._copy.release()
            end = LogPosition(
                system=begin.system,
                lsn=begin.lsn,
                again_until_lsn=place.lsn,
                ahead_until_lsn=place.lsn,
                timeline=begin.timeline,
                columns=begin.columns,
                partitions=begin.partitions,
                publication=begin.publication,
                membership=begin.membership,
            )
        else:
            end = replace(begin, after=after, snapshot=place.lsn, rows=number + rows, empties=False)
        return RangeRead(read=replace(wanted, end={LOG: end.as_json()}, more=True), files=files)

    def _read_log(self, table: SourceTable, begin: LogPosition, wanted: ReadRange, folder: Path) -> RangeRead:
        try:
            return self._read_changes(table, begin, wanted, folder)
        except SourceSchemaChanged as changed:
            # What was changed before has to be committed: it fits the declaration as it is now.
            rmtree(folder / wanted.details["day"])
            commit_lsn = changed.fields["commit_lsn"]
            assert isinstance(commit_lsn, int)
            found = self._read_changes(table, begin, wanted, folder, before_lsn=commit_lsn)
            if found.read.end == wanted.begin:
                raise
            return replace(found, read=replace(found.read, more=True))

    def _read_changes(
        self,
        table: SourceTable,
        begin: LogPosition,
        wanted: ReadRange,
        folder: Path,
        before_lsn: int | None = None,
    ) -> RangeRead:
        place = f"log/{lsn_text(begin.lsn)}" + (f"/{begin.part.number}" if begin.part is not None else "")
        writer = self._writer(table, wanted, folder, place)
        limits = {"max_changes": wanted.details["max_records"], "max_bytes": wanted.details["max_bytes"]}
        changes = self._open.take(begin)
        if changes is not None:
            found = changes.go_on(writer, **limits)
        else:
            changes = TableChanges(
                writer=writer,
                table=table,
                after=ReadUntil(lsn=begin.lsn, part=begin.part),
                columns=begin.columns,
                schema=self.schema,
                max_transaction=self.max_transaction,
                before_lsn=before_lsn,
            )
            found = changes.read(self.server.messages, **limits)
        self.server.expect_publication(begin.publication)
        end = replace(begin, lsn=found.lsn, part=found.part, columns=changes.columns)
        if found.part is not None:
            self._open.keep(end, changes)
        files = [*writer.close()]
        again = RowsAgain(server=self.server, find_table=lambda: table, keys=table.keys, folder=folder)
        end = again.add(begin, end, tuple(files), files)
        facts = log_facts(found.lsn, begin.part, found.part)
        more = found.part is not None or not changes.is_at_end
        read = replace(wanted, end={LOG: end.as_json()}, more=more, facts=facts)
        return RangeRead(read=read, files=tuple(files))
