"""Which spool a capture's tables are served from. The control store names it, and each home folder has one.

A machine that takes over has another home folder. Two readers with a spool each could leave changes out: one
does not know yet what the other has taken up. So the one that starts last reads, from a spool that it begins
where the slot is, and a process that has read before is refused.

Belongs here: which home folder reads. Does not belong here: files (`spool.py`), reading (`log_reader.py`).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from etl_assets.errors import SourceUnavailable
from etl_assets.sources.captures.spool import Spool, SpoolState
from etl_assets.sources.captures.table_states import TableStates
from etl_assets.sources.postgres_cdc.log_server import LogServer


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
    id: str = field(default="", init=False)
    """Name of the spool, once `state` was asked."""

    def state(self) -> SpoolState | None:
        """Return where the reader is; None if a spool has to be begun here, which is in use from now on.

        Raises:
            SourceUnavailable: this process has read the log, and another home folder has it now.
        """
        found, used = self.spool.state(), self.states.spool(self.capture)
        if found is not None and found.id == used:
            self.id = used
            return found
        if found is not None and self.has_read:
            raise self._is_taken_over()
        # A process that was stopped in the middle of a look would go on with it: its session ends.
        self.server.end_sessions_of_others()
        self.id = uuid.uuid4().hex
        if not self.states.take_spool(self.capture, used, self.id):
            raise self._is_taken_over()
        return None

    def _is_taken_over(self) -> SourceUnavailable:
        return SourceUnavailable(
            f"another home folder reads the log of the capture {self.capture} now",
            fix="end the platform there or here: one home folder reads a capture, the one whose worker was"
            " started last",
            source=self.capture,
        )
