"""Named places around every write at which a test can kill the process.

A failpoint does nothing unless `ETL_ASSETS_FAILPOINT` names it; then the process ends by SIGKILL, as it would by the
kernel's out-of-memory killer or a lost machine: no `finally`, no `atexit`, no flushed buffers.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum

from etl_assets.environment import FAILPOINT


class Failpoint(StrEnum):
    """Every place where a process can be killed by a test, in the order of one run of the data path."""

    PLAN_BEFORE_WRITE = "plan.before_write"
    PLAN_AFTER_WRITE = "plan.after_write"
    STAGE_AFTER_WRITE = "stage.after_write"
    EXCEPTIONS_BEFORE_COMMIT = "exceptions.before_commit"
    EXCEPTIONS_AFTER_COMMIT = "exceptions.after_commit"
    TABLE_BEFORE_COMMIT = "table.before_commit"
    TABLE_DURING_COMMIT = "table.during_commit"
    TABLE_AFTER_COMMIT = "table.after_commit"
    TABLE_AFTER_SYNC = "table.after_sync"
    LEDGER_BEFORE_WRITE = "ledger.before_write"
    LEDGER_AFTER_WRITE = "ledger.after_write"
    PLAN_BEFORE_REMOVE = "plan.before_remove"


def failpoint(name: Failpoint, *, table: str = "") -> None:
    """Kill this process if a test asked for it here.

    The variable holds `name` or `name@table`; the latter waits for that table's turn.
    """
    wanted = FAILPOINT.read()
    if wanted is not None and wanted in (name.value, f"{name.value}@{table}"):
        os.kill(os.getpid(), signal.SIGKILL)
