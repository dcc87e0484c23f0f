"""Whether a captured table still has nothing to read, at less cost than a look at the table.

Belongs here: what has to stay the same. Does not belong here: what there is to read (`captured_table.py`).
"""

from __future__ import annotations

import time

from etl_assets.sources.captures.log_reader import CaptureReader
from etl_assets.sources.captures.phases import TablePhase


def quiet_mark(reader: CaptureReader, table: str) -> int | None:
    """Return what stays the same for as long as a table has nothing to read; None if it may have something.

    Changes of its state change the mark, and with files in its spool there is none. The log is looked at if
    that is due.

    Raises:
        EtlAssetsError: the log cannot be read now, as `CaptureReader.look` says.
    """
    reader.look()
    state = reader.seen_state(table)
    waits = state.phase is TablePhase.INIT  # for a place, which other tables have
    is_due = state.attempted(time.time()) is not state
    if reader.is_replaced or waits or is_due or not reader.spool.is_empty(state.pipeline):
        return None
    return state.version
