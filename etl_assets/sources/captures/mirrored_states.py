"""The states of captured tables in a home folder and, durable in a majority, in the failure domains.

The home folder is asked, the failure domains decide:

```
of_capture, spool    home folder; the domains first if another home folder reads the log, or none yet
put, put_spool       1. domains, if they have the version before, and the spool that this home folder knows
                     2. home folder
refresh              domains, then home folder: when the session to the server was opened again
```

A process that dies between 1 and 2, or gets no answer from the domains, leaves a home folder that may say
what was so before, and a mark of that (`states.doubtful`). The next look at the log begins with a refresh,
whichever process makes it. A change that is decided on before that is refused by its version. What the caller
does after a change, such as removing files or telling the server what it may forget, comes after 2.

Another machine that takes over puts a spool of its own in use. From then on the domains refuse the changes of
this home folder, until a process of it takes over again.

Belongs here: the two stores. Does not belong here: either of them (`control/capture_tables.py`,
`states_table.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from etl_assets.contracts.tables.capture_states import CAPTURE_STATES
from etl_assets.delta.write.lock import writer_lock
from etl_assets.delta.write.write_version import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.errors import StorageFailed
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sources.captures.shared_states import CaptureStates, SharedStates, is_read_elsewhere
from etl_assets.sources.captures.spool import KnownSpool, Spool
from etl_assets.sources.captures.table_states import CapturedTableState, TableStates


class HomeStates(TableStates, Protocol):
    """A store in a home folder."""

    def adopt(self, capture: str, states: CaptureStates) -> None:
        """Have of a capture what was agreed on, and nothing else, in one transaction."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTableStates:
    """The states as `TableStates` says.

    Attributes:
        home: The store in the home folder.
        shared: The store in the failure domains.
        folder: The folder of each capture's spool is in it.
        wait_seconds: How long to wait for another process of the home folder.
    """

    home: HomeStates
    shared: SharedStates
    folder: Path
    wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS

    def of_capture(self, capture: str) -> tuple[CapturedTableState, ...]:
        """Return the tables of a capture, by name.

        Raises:
            QuorumUnavailable: this home folder does not read its log, and too few failure domains answer.
        """
        self._ask_unless_reading(capture)
        return self.home.of_capture(capture)

    def spool(self, capture: str) -> KnownSpool | None:
        """Return the spool from which the tables of a capture are served; None: none is known.

        Raises:
            QuorumUnavailable: this home folder does not read its log, and too few failure domains answer.
        """
        self._ask_unless_reading(capture)
        return self.home.spool(capture)

    def put_spool(self, capture: str, before: KnownSpool | None, spool: KnownSpool) -> bool:
        """Store a spool in the place of another one, if that is still there.

        Raises:
            QuorumUnavailable: too few failure domains answer.
        """
        with self._alone(capture):
            mine, is_stored = self._of_home(capture), False

            def change(found: CaptureStates) -> CaptureStates:
                nonlocal is_stored
                found = found.with_newer(mine)
                if is_stored and found.spool == spool:
                    return found  # it was stored, and the answer was lost
                is_stored = found.spool_id == ("" if before is None else before.id)
                return replace(found, spool=spool) if is_stored else found

            agreed = self.shared.update(capture, change)
            failpoint(Failpoint.CAPTURE_BETWEEN_STORES, table=capture)
            self._keep(capture, mine, agreed)
            return is_stored

    def put(self, state: CapturedTableState) -> bool:
        """Store a state if it follows the stored one.

        Raises:
            SourceUnavailable: another home folder reads the log of the capture.
            QuorumUnavailable: too few failure domains answer.
        """
        capture = state.capture
        with self._alone(capture):
            mine, is_stored = self._of_home(capture), False

            def change(found: CaptureStates) -> CaptureStates:
                nonlocal is_stored
                found = found.with_newer(mine)
                if found.spool_id != mine.spool_id:
                    raise is_read_elsewhere(capture)
                if is_stored and found.tables.get(state.table) == state:
                    return found  # it was stored, and the answer was lost
                is_stored = found.version_of(state.table) == state.version - 1
                return found.having(state) if is_stored else found

            agreed = self.shared.update(capture, change)
            failpoint(Failpoint.CAPTURE_BETWEEN_STORES, table=state.table)
            if not (is_stored and agreed == mine.having(state) and self.home.put(state)):
                self._keep(capture, mine, agreed)
            return is_stored

    def refresh(self, capture: str, *, if_doubtful: bool = False) -> None:
        """Take up what is agreed on.

        Raises:
            QuorumUnavailable: too few failure domains answer.
        """
        if if_doubtful and not self._mark(capture).exists():
            return
        with self._alone(capture):
            mine, agreed = self._of_home(capture), self.shared.read(capture)
            if agreed.with_newer(mine) != agreed:
                agreed = self.shared.update(capture, lambda found: found.with_newer(mine))
            self._keep(capture, mine, agreed)

    def _ask_unless_reading(self, capture: str) -> None:
        """Refresh, unless this home folder reads the log: only then does it hear of each change.

        A home folder is empty after a takeover, and one that waits for its turn may have old states.
        """
        used, own = self.home.spool(capture), Spool(folder=self.folder / capture).state()
        if used is None or own is None or used.id != own.id:
            self.refresh(capture)

    def _mark(self, capture: str) -> Path:
        """Return the file that is there while the home folder may say what was so before."""
        return self.folder / capture / "states.doubtful"

    def _of_home(self, capture: str) -> CaptureStates:
        return CaptureStates(
            spool=self.home.spool(capture),
            tables={each.table: each for each in self.home.of_capture(capture)},
        )

    def _keep(self, capture: str, mine: CaptureStates, agreed: CaptureStates) -> None:
        if agreed != mine:
            self.home.adopt(capture, agreed)

    @contextmanager
    def _alone(self, capture: str) -> Generator[None]:
        """Let one process of the home folder at a time change both stores, and mark that it does.

        Otherwise one that was slow could let the home folder say what was so before the change of another one
        that has gone on already. An error leaves the mark: the change may be stored all the same.

        Raises:
            TableBusy: another process has been at it for `wait_seconds`.
            StorageFailed: the home folder cannot be written.
        """
        lock, mark = self.folder / capture / "states.lock", self._mark(capture)
        name = f"{CAPTURE_STATES.name} of {capture}"
        try:
            with writer_lock(lock, table=name, wait_seconds=self.wait_seconds, driver_pid=None):
                mark.touch()
                yield
                mark.unlink(missing_ok=True)
        except OSError as error:
            raise StorageFailed(
                f"changes cannot be written into {lock.parent}: {error.strerror or type(error).__name__}",
                fix="make room, or give the right to write there; the server keeps the log until then",
            ) from error
