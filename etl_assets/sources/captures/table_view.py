"""A captured table as people see it.

Belongs here: what is shown of a state, and its lag. Does not belong here: reading it
(`etl_assets/captures.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from etl_assets.sources.captures.spool import Spool, SpoolState
from etl_assets.sources.captures.table_states import CapturedTableState, time_text
from etl_assets.sources.postgres_cdc.lsn import lsn_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table.

    Attributes:
        state: Its state.
        committed_lsn: Its changes up to here are committed.
        lag_bytes: Log after that place, of all tables; None if the server was not asked.
        lag_seconds: For how long changes of the table may have been waiting, in the spool or in the server's
            log; None before the first reading.
    """

    state: CapturedTableState
    committed_lsn: int
    lag_bytes: int | None
    lag_seconds: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON."""
        state, error = self.state, self.state.error
        return {
            "capture": state.capture,
            "table": state.table,
            "pipeline": state.pipeline,
            "phase": state.phase.value,
            "rows_copied": state.rows_copied,
            "rows_total": None if state.rows_total < 0 else state.rows_total,
            "committed_lsn": lsn_text(self.committed_lsn),
            "transaction": None
            if state.part is None
            else {
                "commit_lsn": lsn_text(state.part.commit_lsn),
                "parts": state.part.number,
                "changes": state.part.sequence,
            },
            "lag_bytes": self.lag_bytes,
            "lag_seconds": None if self.lag_seconds is None else round(self.lag_seconds, 1),
            "error": None
            if error is None
            else {
                "reason": error.reason,
                "solution": error.solution,
                "retry_policy": error.retry.value,
                "next_attempt_at": None if state.attempts is None else time_text(state.attempts.next_at),
                "attempts": 0 if state.attempts is None else state.attempts.number,
                "ended_by": state.ended_by(),
                "needs_copy": error.needs_copy,
            },
        }

    def line(self) -> str:
        """Return the table for people."""
        state = self.state
        total = "" if state.rows_total < 0 else f" of about {state.rows_total:,}"
        behind = [
            *([] if self.lag_bytes is None else [f"{self.lag_bytes:,} bytes"]),
            *([] if self.lag_seconds is None else [f"{self.lag_seconds:.0f} s"]),
        ]
        lag = f", {' and '.join(behind)} behind" if behind else ""
        text = f"{state.capture}  {state.table}  {state.phase}  {state.rows_copied:,}{total} rows copied{lag}"
        if state.part is not None:
            changes, commit = f"{state.part.sequence:,}", lsn_text(state.part.commit_lsn)
            text += f"\n    has {changes} changes of the transaction {commit}, and lacks others of it"
        if state.error is not None:
            text += f"\n    {state.error.reason}\n    fix: {state.error.solution}"
            text += f"\n    then ({state.error.retry}): {state.ended_by()}"
        return text


def lag_seconds(
    spool: Spool, table: CapturedTableState, committed_lsn: int, state: SpoolState, end_lsn: int | None
) -> float | None:
    """Return for how long changes of a table may have been waiting, in the spool or in the server's log.

    Args:
        spool: The spool of the capture.
        table: The table.
        committed_lsn: Its changes up to here are committed.
        state: Where the reader is.
        end_lsn: End of the server's log; None if the server does not answer.

    Returns:
        Seconds, 0.0 if there is nothing to read; None if it is not known since when the log is not read.
    """
    spooled = spool.age(table.pipeline, after_lsn=committed_lsn)
    if end_lsn == state.seen_lsn:
        return spooled
    if (read_until := spool.read_until()) is None:
        return spooled or None
    return max(spooled, time.time() - read_until)
