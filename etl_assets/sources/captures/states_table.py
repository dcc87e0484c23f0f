"""The states of captures in the mirrored table `capture_states`.

The table's own protocol makes them durable in a majority of the failure domains. It refuses what was decided
on an older version: of another process of the machine by the table's lock and version, of another machine by
the fence epoch.

Belongs here: rows and commits. Does not belong here: which change may follow (`mirrored_states.py`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.tables.capture_states import CAPTURE_STATES
from etl_assets.delta.replicated.replication import make_mirrored
from etl_assets.delta.write.rows_by_key import Row, RowsByKey
from etl_assets.delta.write.write_version import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.delta.write.writing import storage_named, writing
from etl_assets.errors import CommitConflict, DomainUnavailable, MirrorError, QuorumUnavailable, StorageFailed
from etl_assets.sources.captures.shared_states import CaptureChange, CaptureStates
from etl_assets.sources.captures.spool import KnownSpool
from etl_assets.sources.captures.table_states import CapturedTableState
from etl_assets.steps.placing import once_led, place
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.delta.table import Table
    from etl_assets.placement.domains import Placement

_ATTEMPTS = 5
_KEY = CAPTURE_STATES.merge_key
_SPOOL = "*"
"""In the place of a table's name: no name is without a schema."""
_ELSEWHERE = (MirrorError, DomainUnavailable, StorageFailed)
"""Errors after which another failure domain may be the one that leads."""


class StatesTable:
    """The table, for one process. Any number of threads may use it."""

    def __init__(
        self, placement: Callable[[], Placement], *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS
    ) -> None:
        """Prepare the table; nothing is asked yet.

        Args:
            placement: Returns the failure domains.
            wait_seconds: How long a commit waits for the table's lock.
        """
        self._placement = placement
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._table: Table | None = None
        """Where the last commit was made."""
        self._rows: RowsByKey | None = None

    def read(self, capture: str) -> CaptureStates:
        """Return what is agreed on; see `SharedStates`."""
        with self._lock:
            placement = self._placement()
            try:
                return once_led(placement, lambda: self._read(placement, capture))
            except QuorumUnavailable:
                # Domains that the platform file has since now have no root yet.
                with suppress(DomainUnavailable):
                    place(placement, CAPTURE_STATES.name)
                return once_led(placement, lambda: self._read(placement, capture))

    def update(self, capture: str, change: CaptureChange) -> CaptureStates:
        """Change what is agreed on; see `SharedStates`."""
        with self._lock:
            if self._table is not None:
                try:
                    return self._updated(self._table, capture, change, takes_lead=False)
                except _ELSEWHERE:
                    self._table = None
            placement = self._placement()
            table = platform_table(CAPTURE_STATES.name, place(placement, CAPTURE_STATES.name))
            found = self._updated(table, capture, change, takes_lead=True)
            self._table = table
            return found

    def _read(self, placement: Placement, capture: str) -> CaptureStates:
        table = platform_table(CAPTURE_STATES.name, placement.reader())
        if (pinned := table.pin()) is None:
            return CaptureStates()
        with storage_named(table):
            return _capture_in(self._loaded(pinned.path, pinned.version), capture)

    def _updated(
        self, table: Table, capture: str, change: CaptureChange, *, takes_lead: bool
    ) -> CaptureStates:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with writing(table, wait_seconds=self._wait_seconds, driver_pid=None):
                    return self._committed(table, capture, change, takes_lead=takes_lead)
            except CommitConflict:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError  # the last attempt returns or raises

    def _committed(
        self, table: Table, capture: str, change: CaptureChange, *, takes_lead: bool
    ) -> CaptureStates:
        rows, epoch = self._opened(table, takes_lead=takes_lead)
        before = _capture_in(rows, capture)
        after = change(before)
        if changed := list(_changed_rows(capture, before, after)):
            self._rows = None  # until the commit is known to have been made
            rows.commit(table, changed, epoch=epoch)
            self._rows = rows
        return after

    def _opened(self, table: Table, *, takes_lead: bool) -> tuple[RowsByKey, str | None]:
        """Return the newest rows, with the fence epoch under which they are the newest."""
        mirrored = table.replication
        if mirrored is None:
            path, version, epoch = table.path, table.version(), None
        else:
            make_mirrored(table.name, table.domain)
            if not takes_lead:
                mirrored.mirror.leading()
            lead = mirrored.lead()
            path, version, epoch = mirrored.folder(lead), lead.version, str(lead.epoch)
        return self._loaded(path, version), epoch

    def _loaded(self, path: Path, version: int) -> RowsByKey:
        rows = self._rows
        if rows is None or (rows.path, rows.version) != (path, version):
            rows = self._rows = RowsByKey.load(path, version, _KEY, long=("state",))
        return rows


def _capture_in(rows: RowsByKey, capture: str) -> CaptureStates:
    found = {table: row["state"] for (of, table), row in rows.rows.items() if of == capture}
    spool = found.pop(_SPOOL, None)
    return CaptureStates(
        spool=None if spool is None else KnownSpool.of(json.loads(spool)),
        tables={table: _state_of(text) for table, text in sorted(found.items())},
    )


def _changed_rows(capture: str, before: CaptureStates, after: CaptureStates) -> Iterator[Row]:
    if after.spool is not None and after.spool != before.spool:
        yield _row(capture, _SPOOL, 0, after.spool.as_json())
    for name, state in after.tables.items():
        if state != before.tables.get(name):
            yield _row(capture, name, state.version, state.as_json())


def _row(capture: str, table: str, version: int, content: Any) -> Row:
    return {
        "capture": capture,
        "source_table": table,
        "version": version,
        "state": json.dumps(content, separators=(",", ":")),
    }


@lru_cache(maxsize=4_096)
def _state_of(text: str) -> CapturedTableState:
    return CapturedTableState.of(json.loads(text))
