"""Failpoints: named places around every write at which a test can kill or pause the process.

A failpoint does nothing unless `ETL_ASSETS_FAILPOINT` names it. Then the process ends by SIGKILL, as if by
the kernel's out-of-memory killer or the loss of the machine: no `finally`, no `atexit`, no flushed buffers.
The driver JVM of a process killed at a failpoint is idle and follows within seconds; at
`killed_while_writing` it is killed with the process.

After `pause:` the process stops itself by SIGSTOP instead, as in a suspended virtual machine, until it gets
SIGCONT. It does so once: what it repeats after that passes the failpoint.

After `hold:` only the thread that comes to the failpoint stops, for ever, as if a disk or server never
answered. The others go on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from etl_assets.environment import FAILPOINT

_PAUSE = "pause:"
_HOLD = "hold:"
_paused_at: set[tuple[str, str]] = set()
"""Failpoints and tables at which this process was paused."""


class Failpoint(StrEnum):
    """All failpoints, in the order of one run of the data path, then of maintenance."""

    RUN_BEFORE_REQUEST = "run.before_request"
    RUN_DURING_REQUEST = "run.during_request"
    RUN_AFTER_REQUEST = "run.after_request"
    STAGE_AFTER_WRITE = "stage.after_write"
    EXCEPTIONS_BEFORE_COMMIT = "exceptions.before_commit"
    EXCEPTIONS_AFTER_COMMIT = "exceptions.after_commit"
    TABLE_BEFORE_COMMIT = "table.before_commit"
    TABLE_DURING_COMMIT = "table.during_commit"
    TABLE_AFTER_COMMIT = "table.after_commit"
    TABLE_AFTER_SYNC = "table.after_sync"
    SOURCE_BEFORE_CONFIRM = "source.before_confirm"
    SOURCE_AFTER_CONFIRM = "source.after_confirm"
    SPOOL_BEFORE_STATE = "spool.before_state"
    SPOOL_AFTER_STATE = "spool.after_state"
    CAPTURE_BEFORE_RELEASE = "capture.before_release"
    CAPTURE_BETWEEN_STORES = "capture.between_stores"
    SINK_BEFORE_DELIVERY = "sink.before_delivery"
    SINK_BEFORE_TARGET_COMMIT = "sink.before_target_commit"
    SINK_AFTER_TARGET_COMMIT = "sink.after_target_commit"
    REPLAY_AFTER_REQUEST = "replay.after_request"
    LEDGER_BEFORE_WRITE = "ledger.before_write"
    LEDGER_AFTER_WRITE = "ledger.after_write"
    SINK_DURING_DELIVERY = "sink.during_delivery"
    VACUUM_DURING_REMOVE = "vacuum.during_remove"
    LOG_BEFORE_REMOVE = "log.before_remove"
    SEARCH_AFTER_REQUEST = "search.after_request"
    SEARCH_BEFORE_ALIAS = "search.before_alias"
    SEARCH_AFTER_ALIAS = "search.after_alias"
    WEBHOOK_AFTER_CALL = "webhook.after_call"
    WEBHOOK_AFTER_SAVE = "webhook.after_save"


def failpoint(name: Failpoint, *, table: str = "") -> None:
    """Kill or pause this process, or hold this thread, if a test requested it here.

    The variable holds `name` or `name@table`, either of them after `pause:` to pause, after `hold:` to hold;
    one with a table applies to that table only.
    """
    if _wanted(name, table):
        os.kill(os.getpid(), signal.SIGKILL)
    if (name, table) not in _paused_at and _wanted(name, table, action=_PAUSE):
        _paused_at.add((name, table))
        # Sent to the process, it would first stop the main thread, and this one a moment later.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    if _wanted(name, table, action=_HOLD):
        threading.Event().wait()


@contextmanager
def killed_while_writing(
    name: Failpoint, *, table: str, folder: Path, driver_pid: int | None
) -> Generator[None]:
    """Kill this process and its JVM as soon as the block has begun a new data file in the table's folder.

    Does nothing unless a test requested it, like `failpoint`. A block that creates no new file is killed at
    its end.
    """
    if not _wanted(name, table):
        yield
        return
    there = set(folder.rglob("*.parquet"))

    def watch() -> None:
        while there.issuperset(folder.rglob("*.parquet")):
            time.sleep(0.001)
        _kill_with_driver(driver_pid)

    threading.Thread(target=watch, daemon=True).start()
    yield
    _kill_with_driver(driver_pid)


def _wanted(name: Failpoint, table: str, *, action: str = "") -> bool:
    return FAILPOINT.read() in (f"{action}{name.value}", f"{action}{name.value}@{table}")


def _kill_with_driver(driver_pid: int | None) -> None:
    if driver_pid is not None:
        os.kill(driver_pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
