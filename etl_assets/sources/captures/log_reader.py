"""The one reader of a capture's log: looks at the slot, reads changes of all tables, tells the server how
far it may forget.

Belongs here: one look. Does not belong here: which tables there are (`discovery.py`), and what a table's step
reads of the spool (`captured_table.py`).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from etl_assets.errors import EtlAssetsError, SourceLost, SourceRefused, SourceUnavailable
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.pipelines.capture_spec import CaptureSpec
from etl_assets.pipelines.postgres_cdc_spec import OnLostLog
from etl_assets.sources.captures.confirmation import TableProgress, confirmable
from etl_assets.sources.captures.phases import FOLLOWS_LOG, TablePhase
from etl_assets.sources.captures.routed_changes import RoutedChanges
from etl_assets.sources.captures.seen_tables import SeenTables
from etl_assets.sources.captures.spool import Spool, SpoolState
from etl_assets.sources.captures.spool_in_use import SpoolInUse
from etl_assets.sources.captures.table_retries import FoundBy
from etl_assets.sources.captures.table_states import (
    CapturedTableState,
    StateChange,
    TableStates,
    change_state,
)
from etl_assets.sources.postgres_cdc.log_server import LogServer, LogSlot, publication_lost
from etl_assets.sources.postgres_cdc.lsn import lsn_text

HEARTBEAT_BYTES = 16 << 20
"""After so much log without a transaction of the publication a message is written, which moves the slot."""
_EVERYTHING = 1 << 64
MAX_READING_BYTES = 256 << 20
"""Values of one reading; a transaction is never divided."""


@dataclass(slots=True, kw_only=True)
class CaptureReader:
    """The reader. Any number of threads and processes may call it; one of them reads at a time.

    Attributes:
        capture: The capture.
        server: Its server, slot and publication; nobody else uses its session.
        states: Where the states of tables are stored.
        spool: Where changes are kept.
        clock: Returns seconds that only rise.
        described: The mark of the catalog when the tables were described last, and after how many discoveries
            without a change of it they are described again; None: this process has not described them.
        is_replaced: Whether the capture was declared differently since, so that another reader took over.
        seen: Its tables as they were a moment ago.
    """

    capture: CaptureSpec
    server: LogServer
    states: TableStates
    spool: Spool
    clock: Callable[[], float] = time.monotonic
    described: tuple[str, int] | None = field(default=None, init=False)
    is_replaced: bool = field(default=False, init=False)
    seen: SeenTables = field(init=False, repr=False, compare=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _in_use: SpoolInUse = field(init=False)
    _looked: float | None = field(default=None, init=False)
    _confirmed: tuple[object, int] | None = field(default=None, init=False)
    """What the place that was confirmed last follows from, and the place."""
    _confirmed_lsn: int = field(default=0, init=False)
    """The server may have forgotten its log up to here."""

    def __post_init__(self) -> None:
        self.seen = SeenTables(self)
        self._in_use = SpoolInUse(
            capture=self.capture.name, spool=self.spool, states=self.states, server=self.server
        )

    def look(self, *, at_once: bool = False) -> SpoolState:
        """Read what is new in the log, unless that was done a moment ago, and return where the reader is.

        While another thread reads, it is not waited for, except `at_once` or for the first look.

        Raises:
            SourceUnavailable: the server does not answer, or another session reads the slot.
            SourceRefused: the server holds other data, or refuses.
            SourceLost: the log after the reader's place is gone.
            StorageFailed: the spool cannot be written.
        """
        with self._taken(waits=at_once) as is_taken:
            state = self.spool.state()
            if not is_taken and state is not None:
                return state
        with self._lock:
            state = self.spool.state()
            is_fresh = self._looked is not None and (
                self.clock() - self._looked < self.capture.look_interval_seconds
            )
            if state is not None and is_fresh and not at_once:
                return state
            with self.spool.alone(), self.server.asked():
                try:
                    state = self._looked_at(self._begun())
                except EtlAssetsError:
                    self.server.close()
                    raise
            self._looked, self._in_use.has_read = self.clock(), True
            return state

    @contextmanager
    def _taken(self, *, waits: bool) -> Generator[bool]:
        """Have the lock of the threads during a block, if it is free; yield whether."""
        is_taken = self._lock.acquire(blocking=waits)
        try:
            yield is_taken
        finally:
            if is_taken:
                self._lock.release()

    @contextmanager
    def alone(self) -> Generator[None]:
        """Keep other threads and processes from reading the log, and from changing which tables there are."""
        with self._lock, self.spool.alone():
            yield

    def tables(self) -> tuple[CapturedTableState, ...]:
        """Return the tables whose changes are kept."""
        return tuple(each for each in self.states.of_capture(self.capture.name) if each.phase in FOLLOWS_LOG)

    def committed_lsn(self, table: CapturedTableState, state: SpoolState) -> int:
        """Return up to where a table has committed its changes: without unread ones, the reader's place."""
        return self._progress(table, state).committed_lsn

    def _progress(self, table: CapturedTableState, state: SpoolState, held_up: bool = False) -> TableProgress:
        after = max(table.since_lsn, table.released_lsn)
        unread = self.spool.segments(table.pipeline, after_lsn=after, until_lsn=state.end_lsn)
        return TableProgress(
            committed_lsn=after if unread else state.end_lsn,
            unread_lsn=unread[0].end_lsn if unread else None,
            is_held_up=held_up,
            was_only_spooled=table.is_only_spooled,
        )

    def end_lsn(self) -> int | None:
        """Return the end of the server's log; None if it does not answer."""
        try:
            with self._lock, self.server.asked():
                return self.server.end_lsn()
        except (SourceUnavailable, SourceRefused):
            return None

    def slot(self) -> tuple[bool, LogSlot | None]:
        """Return whether the server answers, and the slot if it has one."""
        try:
            with self._lock, self.server.asked():
                return True, self.server.slot_state()
        except (SourceUnavailable, SourceRefused):
            return False, None

    def close(self) -> None:
        """Close the session once nobody reads. Never raises."""
        with self._lock:
            self.server.close()

    def _begun(self) -> SpoolState:
        """Return where the reader is, with a slot that has everything after it.

        Raises:
            SourceRefused, SourceLost: as `look` says.
        """
        slot, system = self.server.slot_state(), self.server.system()
        name = self.capture.slot
        if slot is not None and not slot.is_usable:
            text = f"the slot {name} is not one of pgoutput in the database of {self.server.name}"
            fix = f"name another slot in the capture {self.capture.name}"
            raise SourceRefused(text, fix=fix, source=self.server.name)
        own = self._in_use.state()
        if (state := own or self._in_use.read_before(self.tables())) is None:
            return self._begin_spool(slot, system)
        self._in_use.expect_same_log(state, system)
        timeline = self.server.timeline()
        is_promoted = state.timeline not in (0, timeline)
        if is_promoted and (lacks := self.server.diverged(state.timeline, state.end_lsn)) is not None:
            return self._lost(lacks, slot, system)
        if slot is None:
            return self._lost(f"the slot {name} is gone", None, system)
        if slot.is_lost:
            return self._lost(
                f"the slot {name} is lost: the server removed log that was not read", slot, system
            )
        if own is not None and slot.confirmed_lsn > state.end_lsn:
            moved = lsn_text(slot.confirmed_lsn)
            return self._lost(f"another reader moved the slot {name} on to {moved}", slot, system)
        self._confirmed_lsn = slot.confirmed_lsn
        publication = self.server.publication_oid()
        if state.publication not in (0, publication):
            return self._lost(publication_lost(self.capture.publication), slot, system)
        if is_promoted:
            self._copy_what_is_ahead(state)
        if own is None:
            return self._begin_spool(slot, system)
        return self._noted(state, publication, timeline)

    def _copy_what_is_ahead(self, state: SpoolState) -> None:
        """Go on with the log of a promoted standby, which has everything that was read.

        Copied rows can be newer than what was read of the log, and the standby may lack their transactions:
        such tables are copied again.
        """
        for table in self.tables():
            is_ahead = self.server.diverged(state.timeline, table.catchup_lsn) is not None
            if table.phase is TablePhase.DATA_SYNC or (table.phase is TablePhase.CATCHUP and is_ahead):
                self._copy_again(table, state.end_lsn)

    def _noted(self, state: SpoolState, publication: int, timeline: int) -> SpoolState:
        state = replace(state, publication=publication)
        if state.timeline != timeline:
            # The log may be as long as it was, and have other transactions.
            state = replace(state, timeline=timeline, seen_lsn=0)
            self.spool.write_state(state)
        self._in_use.note(state)
        return state

    def _begin_spool(self, slot: LogSlot | None, system: str) -> SpoolState:
        """Begin where the slot is. Tables whose changes were in a lost spool alone are copied again."""
        if slot is None or slot.is_lost:
            if any(each.was_read for each in self.tables()):
                return self._lost(f"the slot {self.capture.slot} is gone", slot, system)
            slot = self.server.make_slot_again()
        for table in self.tables():
            if table.is_only_spooled:
                self._copy_again(table, slot.confirmed_lsn)
        return self._begin_at(slot.confirmed_lsn, system)

    def _lost(self, why: str, slot: LogSlot | None, system: str) -> SpoolState:
        if self.capture.on_lost is OnLostLog.FAIL:
            raise SourceLost(
                f"changes of the tables of the capture {self.capture.name} cannot be read: {why}",
                fix="`on_lost: copy` in the capture copies its tables again; they then have exactly"
                " the rows of"
                " the source",
                source=self.server.name,
                lost=f"the log of {self.server.name}",
            )
        slot = self.server.make_slot_again()
        for table in self.tables():
            self._copy_again(table, slot.confirmed_lsn)
        return self._begin_at(slot.confirmed_lsn, system)

    def _begin_at(self, lsn: int, system: str) -> SpoolState:
        timeline, publication = self.server.timeline(), self.server.publication_oid()
        state = SpoolState(
            system=system, end_lsn=lsn, timeline=timeline, publication=publication, id=self._in_use.id
        )
        self._confirmed_lsn = lsn
        self.spool.remove_beyond(lsn)
        self.spool.write_state(state)
        self._in_use.note(state)
        return state

    def _copy_again(self, table: CapturedTableState, lsn: int) -> None:
        self._change(table, lambda each: each.copied_again(lsn))

    def _change(self, table: CapturedTableState, change: StateChange) -> None:
        change_state(self.states, self.capture.name, table.table, change)

    def _looked_at(self, state: SpoolState) -> SpoolState:
        """Confirm what is committed, then read what is new."""
        tables = self.tables()
        self._confirm(tables, state)
        end_lsn = self.server.end_lsn()
        if end_lsn == state.seen_lsn:
            self.spool.note_read_until(time.time())
            self._heartbeat(tables, state, end_lsn)
            return state
        self.spool.remove_beyond(state.end_lsn)
        folder = self.spool.folder / "reading"
        try:
            routed = self._read(tables, state, folder)
            self.server.expect_publication(state.publication)
            reached, files = routed[0], routed[1].files()
            by_oid = {each.oid: each for each in tables}
            for oid, error in routed[1].failed.items():
                self._failed(by_oid[oid], error)
            for oid, found in files.items():
                self.spool.add(by_oid[oid].pipeline, found)
            failpoint(Failpoint.SPOOL_BEFORE_STATE)
            # Where all there was has been read, nothing is looked for until the log is longer.
            is_all = reached == state.end_lsn
            state = replace(
                state,
                end_lsn=reached,
                seen_lsn=end_lsn if is_all else state.seen_lsn,
                is_whole=is_all,
            )
            self.spool.write_state(state)
            failpoint(Failpoint.SPOOL_AFTER_STATE)
            self._note_read_until(state, routed[1])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._bound(tables)
        self._heartbeat(tables, state, end_lsn)
        return state

    def _note_read_until(self, state: SpoolState, routed: RoutedChanges) -> None:
        if state.is_whole:
            self.spool.note_read_until(time.time())
        elif routed.committed_at is not None:
            self.spool.note_read_until(routed.committed_at)

    def _read(
        self, tables: Sequence[CapturedTableState], state: SpoolState, folder: Path
    ) -> tuple[int, RoutedChanges]:
        most = self.capture.max_batch_records
        routed = RoutedChanges(
            session=self.server.session,
            folder=folder,
            keys={each.oid: each.keys for each in tables if each.keeps_changes},
            after_lsn=state.end_lsn,
        )
        limits = {"max_changes": most, "max_bytes": MAX_READING_BYTES}
        reached = routed.read(self.server.messages(most), **limits)
        if reached == state.end_lsn:
            # The first transactions had been read, and not confirmed: read beyond them.
            reached = routed.read(self.server.messages(None), **limits)
        return reached, routed

    def _failed(self, table: CapturedTableState, error: EtlAssetsError) -> None:
        """Note that changes of a table could not be kept: it has to be copied again.

        The state comes first: a table whose changes are gone must never look as if it had them all.
        """
        self._change(table, lambda each: each.failed_by(error, FoundBy.READER, time.time()))
        self.spool.remove(table.pipeline, until_lsn=_EVERYTHING)

    def _bound(self, tables: Sequence[CapturedTableState]) -> None:
        """Give up the changes of tables that have too many in the spool."""
        for table in tables:
            if self.spool.size(table.pipeline) <= self.capture.max_spool_bytes:
                continue
            most = self.capture.max_spool_bytes
            error = SourceLost(
                f"{table.table} has more than {most:,} bytes of changes in the spool that it did not take up",
                fix="correct what keeps it from running, then copy it again: `etl-assets cdc rollback"
                f" {self.capture.name} {table.table} --copy`",
                source=self.capture.name,
            )
            self._failed(table, error)

    def _confirm(self, tables: Sequence[CapturedTableState], state: SpoolState) -> None:
        """Tell the server what it may forget. As long as no state changes, that stays the same."""
        now = time.time()
        held_up = frozenset(each.table for each in tables if not each.holds_log(now))
        basis = (tables, state.end_lsn, held_up)
        if self._confirmed is None or self._confirmed[0] != basis:
            self._confirmed = (basis, self._settled(tables, state, held_up))
        failpoint(Failpoint.SOURCE_BEFORE_CONFIRM)
        if self._confirmed[1] > self._confirmed_lsn:
            self._confirmed_lsn = self._confirmed[1]
            self.server.confirm(self._confirmed_lsn)
        failpoint(Failpoint.SOURCE_AFTER_CONFIRM)

    def _settled(
        self, tables: Sequence[CapturedTableState], state: SpoolState, held_up: frozenset[str]
    ) -> int:
        """Let the phases of tables follow what they have committed; return what the server may forget."""
        progress = [self._progress(each, state, each.table in held_up) for each in tables]
        found = confirmable(
            progress, state.end_lsn, self.capture.max_held_bytes, confirmed_lsn=self._confirmed_lsn
        )
        for table, at in zip(tables, progress, strict=True):
            if table.phase is TablePhase.CATCHUP and at.committed_lsn >= table.catchup_lsn:
                self._change(
                    table,
                    lambda each, seen=table: (
                        each.to(TablePhase.READY)
                        if (each.phase, each.copies, each.catchup_lsn)
                        == (seen.phase, seen.copies, seen.catchup_lsn)
                        else each
                    ),
                )
        # What only the spool will have is noted before the server may forget it.
        for number, table in enumerate(tables):
            is_only_spooled = number in found.only_spooled
            if table.is_only_spooled is not is_only_spooled:
                self._change(
                    table,
                    lambda each, is_so=is_only_spooled: replace(each, is_only_spooled=is_so),
                )
        return found.lsn

    def _heartbeat(self, tables: Sequence[CapturedTableState], state: SpoolState, end_lsn: int) -> None:
        """Write a message where the log has grown by nothing of the tables, or a table waits for its end."""
        waits = any(each.phase is TablePhase.CATCHUP and each.catchup_lsn > state.end_lsn for each in tables)
        if state.seen_lsn == end_lsn and (waits or end_lsn - state.end_lsn >= HEARTBEAT_BYTES):
            self.server.write_message()
