"""One table of a capture as a source: its rows by a copy, and its changes from the spool, at the same time.

Copy and changes need no order between them. Every record has its place in the log, a copied row the one of
its snapshot, and the table applies changes by their places. So a batch has the next rows of the copy, if
there is one, and what the reader has spooled since the last batch. The log never waits for a copy.

Belongs here: what a batch of the table has, and the phases that follow from it. Does not belong here: the log
(`log_reader.py`), and which tables there are (`discovery.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from etl_assets.errors import EtlAssetsError, MessageMalformed, SourceLost, SourceRefused, SourceUnavailable
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sources.captures.copied_rows import CopiedRows
from etl_assets.sources.captures.followed_columns import FollowedColumns, has_columns
from etl_assets.sources.captures.log_reader import CaptureReader
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.spool import Segment, SpoolState
from etl_assets.sources.captures.spooled_changes import SpooledChanges, TakenBefore, next_changes
from etl_assets.sources.captures.table_retries import FoundBy
from etl_assets.sources.captures.table_states import CapturedTableState, StateChange, change_state, find_state
from etl_assets.sources.postgres_cdc.column_changes import column_marks
from etl_assets.sources.postgres_cdc.log_position import LOG, LogPosition
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.lsn import lsn_text
from etl_assets.sources.postgres_cdc.rows_again import RowsAgain
from etl_assets.sources.postgres_cdc.source_table import SourceTable, find_source_table
from etl_assets.sources.postgres_cdc.table_changes import ReadUntil
from etl_assets.sources.postgres_cdc.table_copy import TableCopy
from etl_assets.sources.postgres_cdc.transaction_parts import log_facts
from etl_assets.sources.ranges import Lag, Positions, RangeRead, ReadRange

_ESTIMATE = "SELECT reltuples::int8 FROM pg_catalog.pg_class WHERE oid = %s"


@dataclass(slots=True, kw_only=True)
class CapturedTable:
    """The source.

    Attributes:
        reader: The reader of the capture, which other tables use too.
        server: A server for the copy, with a session of this table's own.
        table: Schema and name.
        columns: Types of the columns of its pipeline, as this process knows it.
        followed: Decides about columns that change.
        opened: Its state before any position was read that is given to `plan`.
        now: Returns the time; its day is that of the records.
    """

    reader: CaptureReader
    server: LogServer
    table: str
    columns: Mapping[str, str]
    followed: FollowedColumns
    opened: CapturedTableState
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    _copy: TableCopy = field(init=False)
    _goal_lsn: int | None = field(default=None, init=False)
    """End of the log when the first range was read: a run ends there, however much is written meanwhile."""

    def __post_init__(self) -> None:
        self._copy = TableCopy(server=self.server)

    @property
    def is_repeatable(self) -> bool:
        """No: rows that are copied again are copied as they are then."""
        return False

    def plan(self, positions: Positions, *, max_bytes: int, max_records: int) -> ReadRange | None:
        """Return the next rows to copy and changes to read; None without any, or while in error."""
        spool = self.reader.look()
        position = LogPosition.of(positions)
        with self._errors():
            state = self._change(lambda each: each.attempted(self._seconds()))
            begin = self._next(position, spool, state, begins=True)
        if begin is None:
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
        )

    def read(self, wanted: ReadRange, folder: Path) -> RangeRead:
        """Write rows and changes into staged files."""
        begin = LogPosition.of(wanted.begin)
        assert begin is not None  # each range begins somewhere
        day = dt.date.fromisoformat(wanted.details["day"])
        with self._errors():
            end, files = begin, []
            if begin.is_copying:
                with self.server.asked():
                    end, files = self._copied().write(self._found(), begin, wanted, folder)
            try:
                changes = self._next_changes(end, wanted.details["max_records"])
                spooled = changes.stage(folder / day.isoformat(), day)
            except FileNotFoundError as error:
                raise self._was_taken_up() from error
            files += spooled
            end = replace(
                end,
                lsn=changes.until.lsn,
                part=changes.until.part,
                columns=changes.columns,
                columns_lsn=changes.columns_lsn,
            )
            end = self._again(folder).add(begin, end, spooled, files)
        state = self.reader.spool.state()
        assert state is not None  # the range was planned after it was read
        more = end.is_copying or self._is_short_of_goal(end, state)
        facts = log_facts(end.lsn, begin.part, end.part)
        read = replace(wanted, end={LOG: end.as_json()}, more=more, facts=facts)
        return RangeRead(read=read, files=tuple(files))

    def confirm(self, positions: Positions) -> None:
        """Remove committed changes from the spool, and let the table's phase follow."""
        position = LogPosition.of(positions)
        if position is None:
            return
        failpoint(Failpoint.CAPTURE_BEFORE_RELEASE, table=self.table)
        state = self._settle(position)
        self.reader.spool.remove(state.pipeline, until_lsn=position.lsn)

    def lag(self, positions: Positions) -> Lag:
        """Return whether there is something to read; how many changes is not known."""
        spool = self.reader.look()
        seen, table, is_copy = self.reader.seen, self.table, False
        quiet = seen.quiet_mark(table)
        try:
            state = seen.state(table).attempted(self._seconds())
            following = self._next(LogPosition.of(positions), spool, state, begins=False)
            is_behind, is_copy = following is not None, following is not None and following.is_copying
        except (SourceRefused, SourceLost, SourceUnavailable):
            is_behind = True  # the run says what it is
        return Lag(
            records=None if is_behind else 0,
            oldest=None,
            first_day=self.now().date(),
            is_copy=is_copy,
            is_same=None if is_behind or quiet is None else lambda: seen.quiet_mark(table) == quiet,
        )

    def close(self) -> None:
        """Close the session of the copy."""
        self.server.close()

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Note errors of the table in its state: it then waits for a rollback, and the others go on."""
        try:
            yield
        except EtlAssetsError as error:
            self.server.close()  # the snapshot too
            if isinstance(error, SourceRefused | MessageMalformed | SourceLost) or _is_of_server(error):
                failed, now = error, self._seconds()
                self._change(lambda each: each.failed_by(failed, FoundBy.STEP, now))
            raise

    def _seconds(self) -> float:
        return self.now().timestamp()

    def _state(self) -> CapturedTableState:
        return find_state(self.reader.states, self.reader.capture.name, self.table)

    def _change(self, change: StateChange) -> CapturedTableState:
        return change_state(self.reader.states, self.reader.capture.name, self.table, change)

    def _next(
        self, before: LogPosition | None, spool: SpoolState, state: CapturedTableState, *, begins: bool
    ) -> LogPosition | None:
        """Return where the next range begins; None if there is nothing to read now.

        Args:
            before: The position of the table.
            spool: Where the reader is.
            state: The table's state.
            begins: Whether a copy that waits for its place may begin.

        Raises:
            SourceLost: changes after the position are gone.
            SourceRefused: the table was read from another server, or cannot be copied.
            SourceUnavailable: another process has gone on from the position.
        """
        # A process that does not know all columns would leave values out; it takes them up soon.
        if state.phase in (TablePhase.ERRORED, TablePhase.LEFT):
            return None
        if not has_columns(state.declaration, self.columns):
            return None
        self._expect_same_server(before, spool)
        if state.phase is TablePhase.INIT:
            if not self._has_place():
                return None
            if begins:
                begun = self._begin_copy(spool, before, state)
                if begun is None:
                    return None
                state = begun
        if _lacks_changes(before, state):
            # Not where the position is older than the state: another process may have committed meanwhile.
            raise (
                self._changes_are_gone(state) if _lacks_changes(before, self.opened) else self._was_taken_up()
            )
        if before is None or before.copy_number != state.copies:
            return LogPosition(
                system=spool.system,
                lsn=state.since_lsn,
                is_copying=True,
                empties=before is not None,
                copy_number=state.copies,
            )
        is_noted = before.lsn <= state.released_lsn and state.phase is not TablePhase.DATA_SYNC
        if before.is_copying or self._segments(state, before.lsn, spool) or not is_noted:
            # A commit that nobody could take notice of is followed by an empty one.
            return before
        return None

    def _expect_same_server(self, before: LogPosition | None, spool: SpoolState) -> None:
        if before is not None and before.system != spool.system:
            raise SourceRefused(
                f"{self.table} was read from another server (system {before.system}) than the capture reads"
                f" now (system {spool.system})",
                fix="correct the connection; to read the new server, declare a capture with another name",
                source=self.table,
            )

    def _changes_are_gone(self, state: CapturedTableState) -> SourceLost:
        name = self.reader.capture.name
        return SourceLost(
            f"changes of {self.table} up to {lsn_text(state.released_lsn)} cannot be read again: they were"
            " committed, and the table was then set back",
            fix=f"copy the table again: `etl-assets cdc rollback {name} {self.table} --copy`",
            source=self.table,
            lost=f"the log up to {lsn_text(state.released_lsn)}",
        )

    def _was_taken_up(self) -> SourceUnavailable:
        return SourceUnavailable(
            f"changes of {self.table} were taken up by another process, or the table is copied again",
            fix="nothing: the step is repeated, and goes on from the newest state",
            source=self.table,
        )

    def _has_place(self) -> bool:
        copying = [each for each in self.reader.tables() if each.phase is TablePhase.DATA_SYNC]
        return len(copying) < self.reader.capture.max_copies

    def _begin_copy(
        self, spool: SpoolState, before: LogPosition | None, state: CapturedTableState
    ) -> CapturedTableState | None:
        """Begin the copy, if few enough tables are being copied and the pipeline has its columns."""
        with self.server.asked():
            table = self._found()
            if state.source_columns not in (None, column_marks(table.relation.columns)):
                return None  # the next discovery lets the pipeline have them
            row = self.server.session.execute(_ESTIMATE, [table.oid]).fetchone()
            if before is not None:
                self._expect_longer_log(max(before.read_until, self._state().catchup_lsn))
        total = -1 if row is None else row[0]
        with self.reader.alone():
            if not self._has_place():
                return None
            # Changes before this place are in the rows, which are read later.
            end = (self.reader.spool.state() or spool).end_lsn

            def begun(each: CapturedTableState) -> CapturedTableState:
                since = each.since_lsn or end
                return each.to(
                    TablePhase.DATA_SYNC,
                    # A table with a position that a lost control store does not know of is copied again.
                    copies=each.copies if before is None else max(each.copies, before.copy_number + 1),
                    since_lsn=since,
                    released_lsn=max(each.released_lsn, since),
                    rows_total=total,
                    rows_copied=0,
                )

            return self._change(begun)

    def _expect_longer_log(self, read_until: int) -> None:
        """Expect that another copy has a later place in the log than the rows that were read before.

        The log of a promoted standby may be shorter than that of its primary was: the former rows would seem
        to be newer.
        """
        if self.server.end_lsn() <= read_until + 1:
            self.server.write_message()  # an idle server's log gets longer too
        if (end := self.server.end_lsn()) <= read_until + 1:
            raise SourceUnavailable(
                f"{self.table} has rows from {lsn_text(read_until)}, and the server's log ends at"
                f" {lsn_text(end)}: a standby was promoted that lacks what was copied",
                fix="nothing: the table is copied again once the log is longer; on an idle server"
                " `SELECT pg_switch_wal()` makes it so",
                source=self.table,
            )

    def _found(self) -> SourceTable:
        return find_source_table(
            self.server.session,
            self.table,
            publication=self.reader.capture.publication,
            keys=self._state().keys,
        )

    def _copied(self) -> CopiedRows:
        sessions = self.reader.capture.read_sessions
        return CopiedRows(server=self.server, copy=self._copy, sessions=sessions, followed=self.followed)

    def _again(self, folder: Path) -> RowsAgain:
        return RowsAgain(server=self.server, find_table=self._found, keys=self._state().keys, folder=folder)

    def _settle(self, position: LogPosition) -> CapturedTableState:
        """Take notice of a position that is committed."""
        state, catchup = self._state(), 0
        if state.phase is TablePhase.DATA_SYNC and not position.is_copying:
            with self.server.asked():
                catchup = self.server.end_lsn()

        def change(each: CapturedTableState) -> CapturedTableState:
            if position.copy_number != each.copies:
                return each
            each = replace(
                each,
                part=position.part,
                released_lsn=max(each.released_lsn, position.lsn),
                rows_copied=max(each.rows_copied, position.copied),
                attempts=each.attempts if each.error is not None else None,
                # Rows that are read again after the copy may be newer than the log was at its end.
                catchup_lsn=max(each.catchup_lsn, position.ahead_until_lsn),
            )
            if each.phase is TablePhase.DATA_SYNC and catchup:
                return each.to(TablePhase.CATCHUP, catchup_lsn=catchup)
            return each

        return self._change(change)

    def _segments(self, state: CapturedTableState, after_lsn: int, spool: SpoolState) -> tuple[Segment, ...]:
        return self.reader.spool.segments(state.pipeline, after_lsn=after_lsn, until_lsn=spool.end_lsn)

    def _next_changes(self, begin: LogPosition, max_records: int) -> SpooledChanges:
        """Return the next changes after a position, which has the columns of the rows that are copied."""
        spool, capture = self.reader.spool.state(), self.reader.capture
        return next_changes(
            () if spool is None else self._segments(self._state(), begin.lsn, spool),
            ReadUntil(lsn=begin.lsn, part=begin.part),
            max_records=max_records,
            max_transaction=capture.part_records,
            taken=TakenBefore(followed=self.followed, columns=begin.columns, lsn=begin.columns_lsn),
        )

    def _is_short_of_goal(self, end: LogPosition, spool: SpoolState) -> bool:
        """Return whether there may be changes after a position that this run reads."""
        if self._goal_lsn is None:
            self._goal_lsn = self.reader.end_lsn() or spool.end_lsn
        if end.part is not None:
            return True
        if end.lsn >= self._goal_lsn:
            return False
        is_read_on = not spool.is_whole and spool.end_lsn < self._goal_lsn
        return is_read_on or bool(self._segments(self._state(), end.lsn, spool))


def _is_of_server(error: EtlAssetsError) -> bool:
    """Return whether the server said so, not a place of the platform that lets the step be repeated."""
    return isinstance(error, SourceUnavailable) and "sqlstate" in error.fields


def _lacks_changes(before: LogPosition | None, state: CapturedTableState) -> bool:
    """Return whether changes after a position were removed from the spool, by the state of the table."""
    if before is not None and before.copy_number == state.copies:
        return before.lsn < state.released_lsn
    return state.phase in (TablePhase.CATCHUP, TablePhase.READY)
