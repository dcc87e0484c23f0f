"""The writer lock: one writer of a table at a time on one machine.

Delta's commit on a local file system looks for the next version and renames over it, so that two processes
can both win one version. The lock makes the look and the rename one step. It is the kernel's lock (`flock`),
so it is released when the process that holds it ends, in any way. The driver JVM of a killed Python process
lives on for a moment and may still be writing; the next holder waits until that JVM has ended. A next holder
that uses that JVM itself would wait for its own end, so it fails at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from etl_assets.delta.session import running_driver_pid
from etl_assets.errors import TableBusy, WriterLeftBehind
from etl_assets.processes import started_at

POLL_SECONDS = 0.05


@contextmanager
def writer_lock(path: Path, *, table: str, wait_seconds: float, driver_pid: int | None) -> Generator[None]:
    """Hold the table's writer lock.

    Args:
        path: The lock file; created with its folder if absent, never removed.
        table: The table's name, for the error.
        wait_seconds: How long to wait for another holder, and for a dead holder's JVM.
        driver_pid: Process id of the JVM that will write, if it runs on this machine.

    Raises:
        TableBusy: the lock was not free in time; the message names the holder.
        WriterLeftBehind: this process uses the JVM of a dead holder. Raised at once: that JVM ends after the
            last process that uses it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_seconds
    with path.open("a+", encoding="utf-8") as file:
        _acquire(file, table, deadline)
        _await_orphan(file, table, deadline)
        _record(file, driver_pid)
        try:
            yield
        except Exception:
            file.truncate(0)
            raise
        # An interrupt leaves the record: the JVM may still be writing, and the next holder waits for its end.
        file.truncate(0)


def locked(file: IO[Any], kind: int) -> bool:
    """Try to take the kernel's lock on a file, `fcntl.LOCK_EX` or `LOCK_SH`, without waiting.

    Returns:
        Whether the lock is taken.
    """
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(file: IO[str], table: str, deadline: float) -> None:
    while not locked(file, fcntl.LOCK_EX):
        if time.monotonic() >= deadline:
            raise _busy(table, _holder(file))
        time.sleep(POLL_SECONDS)


def _await_orphan(file: IO[str], table: str, deadline: float) -> None:
    """Wait for the JVM of a holder that died without releasing."""
    holder = _holder(file)
    if holder.get("host") != socket.gethostname() or holder.get("driver_pid") is None:
        return
    if holder.get("pid") == os.getpid():
        return
    while started_at(holder["driver_pid"]) == holder["driver_started_at"] is not None:
        if holder["driver_pid"] == running_driver_pid():
            who = _name(holder)
            raise WriterLeftBehind(
                f"{who} died or was cancelled while it wrote the table {table}, and the Spark that this run"
                " shares with it may still be writing",
                fix="run it again: that Spark ends with the last run that is at it, and no new run gets it",
                table=table,
                holder=who,
            )
        if time.monotonic() >= deadline:
            raise _busy(table, holder)
        time.sleep(POLL_SECONDS)


def _record(file: IO[str], driver_pid: int | None) -> None:
    file.truncate(0)
    json.dump(
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "driver_pid": driver_pid,
            "driver_started_at": None if driver_pid is None else started_at(driver_pid),
        },
        file,
    )
    file.flush()


def _holder(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        return json.loads(file.read() or "{}")
    except json.JSONDecodeError:
        return {}


def _busy(table: str, holder: dict[str, Any]) -> TableBusy:
    who = _name(holder)
    return TableBusy(
        f"the table {table} is being written by {who}",
        fix="wait for that run to end, or end it if it hangs; raise runs.lock_wait_seconds for longer"
        " commits",
        table=table,
        holder=who,
    )


def _name(holder: dict[str, Any]) -> str:
    return f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
