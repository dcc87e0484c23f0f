"""The tables of a capture as they were seen a moment ago: all of them ask, and one look answers.

Belongs here: what is kept for `look_interval_seconds`, and which tables have nothing to read. Does not belong
here: what there is to read (`captured_table.py`), and reading the log (`log_reader.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl_assets.errors import EtlAssetsError
from etl_assets.sources.captures.phases import TablePhase
from etl_assets.sources.captures.table_states import CapturedTableState, find_state

if TYPE_CHECKING:
    from etl_assets.sources.captures.log_reader import CaptureReader


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One look.

    Attributes:
        at: When it began.
        end_lsn: Up to where the log was read.
        states: The states of the tables.
        quiet: The tables without files in the spool, each with the version of its state.
    """

    at: float
    end_lsn: int
    states: Mapping[str, CapturedTableState]
    quiet: Mapping[str, int]


@dataclass(slots=True)
class SeenTables:
    """What was seen last. Any number of threads may ask.

    Attributes:
        reader: The reader of the capture.
    """

    reader: CaptureReader
    _last: _Seen | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def state(self, table: str) -> CapturedTableState:
        """Return the state of a table as of at most `look_interval_seconds` ago.

        Raises:
            NotFound: the capture has no such table.
            EtlAssetsError: the log cannot be read now, as `CaptureReader.look` says.
        """
        found = self._seen().states.get(table)
        return find_state(self.reader.states, self.reader.capture.name, table) if found is None else found

    def earlier_state(self, table: str) -> CapturedTableState:
        """Return the state of a table as it was seen last, or else as it is; the log is not looked at.

        Raises:
            NotFound: the capture has no such table.
            ControlStoreUnavailable: the control store does not answer.
        """
        found = None if self._last is None else self._last.states.get(table)
        return found or find_state(self.reader.states, self.reader.capture.name, table)

    def quiet_mark(self, table: str) -> int | None:
        """Return what stays the same for as long as a table has nothing to read; None if it may have
        something, or the log cannot be read now.

        Changes of its state change the mark, and with files in its spool there is none. The log is looked at
        if that is due.
        """
        try:
            seen = self._seen()
        except EtlAssetsError:
            # One look tells all tables. Their own looks say what it is.
            seen = self._last = _Seen(at=self.reader.clock(), end_lsn=-1, states={}, quiet={})
        if self.reader.is_replaced or (state := seen.states.get(table)) is None:
            return None
        if state.phase is TablePhase.INIT:  # it waits for a place, which other tables have
            return None
        if state.attempted(time.time()) is not state:  # its next attempt is due
            return None
        # The step of a table removes its files after its state has changed.
        is_quiet = table in seen.quiet or self.reader.spool.is_empty(state.pipeline)
        return state.version if is_quiet else None

    def _seen(self) -> _Seen:
        """Return the last look, or a new one if that is due.

        A look that another thread has begun is not waited for: its reading of the log may take long.
        """
        now, last = self.reader.clock(), self._last
        if last is not None and now - last.at < self.reader.capture.look_interval_seconds:
            return last
        end_lsn = self.reader.look().end_lsn
        states = {each.table: each for each in self.reader.states.of_capture(self.reader.capture.name)}
        if last is not None and (last.end_lsn, last.states) == (end_lsn, states):
            quiet = last.quiet  # files come with another end of the log, and go with another state
        else:
            spool = self.reader.spool
            quiet = {name: each.version for name, each in states.items() if spool.is_empty(each.pipeline)}
        seen = _Seen(at=now, end_lsn=end_lsn, states=states, quiet=quiet)
        with self._lock:
            if self._last is None or self._last.at <= seen.at:
                self._last = seen
        return seen
