"""The phases of a captured table: who sets each, whether it is stored, and which may follow.

Belongs here: values and pure decisions. Does not belong here: storing them (`table_states.py`).

Postgres' own table synchronization has more phases, because a second process with a slot of its own copies
and then hands the table over. Here one reader follows the log from the beginning, and the copy only adds
rows with their places in the log, so nothing is handed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class TablePhase(StrEnum):
    """Where a table is. Every phase is stored in the control store before anything acts on it.

    INIT: set by discovery when a table is taken up, and by a rollback that copies again. Its changes are read
        from the log; the copy waits for a free place (`max_copies`).
    DATA_SYNC: set by the table's own step when it begins the copy. Its last key is in the table's positions.
    CATCHUP: set by the table's step after the commit of the last copied rows. The table may still have rows
        that were deleted meanwhile, until its changes up to `catchup_lsn` are applied.
    READY: set by the reader once they are. The table equals the source at its position.
    ERRORED: set by what found the error: discovery, the reader or the table's step. Left by a rollback, by
        discovery when what it refused is corrected, or by the step when the next attempt is due.
    LEFT: set by discovery when a table is no longer in the publication or matched. Its destination stays as
        it is. If the table comes back, it is copied again.
    """

    INIT = "init"
    DATA_SYNC = "data_sync"
    CATCHUP = "catchup"
    READY = "ready"
    ERRORED = "errored"
    LEFT = "left"


FOLLOWING: Mapping[TablePhase, frozenset[TablePhase]] = {
    TablePhase.INIT: frozenset({TablePhase.DATA_SYNC, TablePhase.ERRORED, TablePhase.LEFT}),
    TablePhase.DATA_SYNC: frozenset(
        {TablePhase.CATCHUP, TablePhase.ERRORED, TablePhase.LEFT, TablePhase.INIT}
    ),
    TablePhase.CATCHUP: frozenset({TablePhase.READY, TablePhase.ERRORED, TablePhase.LEFT, TablePhase.INIT}),
    TablePhase.READY: frozenset({TablePhase.ERRORED, TablePhase.LEFT, TablePhase.INIT}),
    TablePhase.ERRORED: frozenset(
        {TablePhase.INIT, TablePhase.DATA_SYNC, TablePhase.CATCHUP, TablePhase.READY, TablePhase.LEFT}
    ),
    TablePhase.LEFT: frozenset({TablePhase.INIT, TablePhase.ERRORED}),
}
"""The phases that may follow each."""
FOLLOWS_LOG = frozenset(TablePhase) - {TablePhase.LEFT}
"""Phases in which the reader keeps a table's changes."""
