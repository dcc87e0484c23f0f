"""Which spool a capture's tables are served from. The states' store names it, and each home folder has one.

A machine that takes over has another home folder. Two readers with a spool each could leave changes out: one
does not know yet what the other has taken up. So the one that starts last reads, from a spool that it begins
where the slot is, and a process that has read before is refused.

Belongs here: which home folder reads. Does not belong here: files (`spool.py`), reading (`log_reader.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from etl_assets.errors import SourceRefused
from etl_assets.sources.captures.shared_states import is_read_elsewhere
from etl_assets.sources.captures.spool import KnownSpool, Spool, SpoolState
from etl_assets.sources.captures.table_states import CapturedTableState, TableStates
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.lsn import lsn_text


@dataclass(slots=True, kw_only=True)
class SpoolInUse:
    """The spool of this home folder, as long as it is the one in use. Callers hold the spool's lock.

    Attributes:
        capture: Name of the capture.
        spool: The spool of this home folder.
        states: The store that says which one is in use.
        server: The server, with the session that reads.
        has_read: Whether this process has read the log.
    """

    capture: str
    spool: Spool
    states: TableStates
    server: LogServer
    has_read: bool = False
    _known: KnownSpool | None = field(default=None, init=False)
    _session: object = field(default="", init=False, repr=False)
    """The session in which it was last looked at what other machines have stored."""

    @property
    def id(self) -> str:
        """Name of the spool, once `state` was asked."""
        return "" if self._known is None else self._known.id

    def state(self) -> SpoolState | None:
        """Return where the reader is; None if a spool has to be begun here, which is in use from now on.

        Raises:
            SourceUnavailable: this process has read the log, and another home folder has it now.
            QuorumUnavailable: too few failure domains answer to know, where they keep it.
        """
        # A machine that takes over ends this session, and may have done so.
        session = self.server.session
        self.states.refresh(self.capture, if_doubtful=session is self._session)
        self._session = session
        found, self._known = self.spool.state(), self.states.spool(self.capture)
        if found is not None and found.id == self.id:
            return found
        if found is not None and self.has_read:
            raise is_read_elsewhere(self.capture)
        # A process that was stopped in the middle of a look would go on with it: its session ends.
        self.server.end_sessions_of_others()
        self._put(replace(self._known or KnownSpool(id=""), id=uuid.uuid4().hex))
        # A session that was opened again meanwhile may have looked before that.
        self.server.end_sessions_of_others()
        return None

    def read_before(self, tables: Iterable[CapturedTableState]) -> SpoolState | None:
        """Return what tables have read from a spool that is not here; None: nothing."""
        places = [each.released_lsn for each in tables if each.was_read]
        known = self._known
        if known is None or not known.system or not places:
            return None
        return SpoolState(
            system=known.system,
            end_lsn=max(places),
            timeline=known.timeline,
            publication=known.publication,
            id=known.id,
        )

    def expect_same_log(self, state: SpoolState, system: str) -> None:
        """Expect that the server has the log that was read, as far as its length and its server tell.

        Raises:
            SourceRefused: it has another one.
        """
        if state.system != system:
            raise SourceRefused(
                f"the connection {self.server.name} leads to another PostgreSQL server (system {system}) than"
                f" the one that the capture {self.capture} has read (system {state.system})",
                fix="correct the connection; to read the new server, declare a capture with another name",
                source=self.server.name,
            )
        if self.server.end_lsn() < state.end_lsn:
            raise SourceRefused(
                f"the log of the connection {self.server.name} ends before"
                f" {lsn_text(state.end_lsn)}, up to where"
                f" the capture {self.capture} has read it: the server was restored to an earlier time,"
                " or a standby was promoted that lacks the last transactions",
                fix="if a standby was promoted, run again once its log is longer, with `on_lost: copy`;"
                " to read it as it is now, declare a capture with another name and another slot",
                source=self.server.name,
            )

    def note(self, state: SpoolState) -> None:
        """Let the control store know which log the spool is of.

        Raises:
            SourceUnavailable: another home folder reads the log now.
        """
        self._put(
            KnownSpool(
                id=state.id, system=state.system, timeline=state.timeline, publication=state.publication
            )
        )

    def _put(self, spool: KnownSpool) -> None:
        if spool == self._known:
            return
        if not self.states.put_spool(self.capture, self._known, spool):
            raise is_read_elsewhere(self.capture)
        self._known = spool
