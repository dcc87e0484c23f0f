"""The worker's lease: a kernel lock on a file of the home folder that also names the holder.

The kernel releases the lock with the process, however the process ends. The file's content stays. It shows
later processes that work may be unfinished, until one of them finds none.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from etl_assets.delta.write.lock import locked
from etl_assets.errors import WorkerRunning

SILENT_AFTER_SECONDS = 900.0
"""Timeout of the heartbeat, which the worker sends with each step.

After it, other processes stop deferring to the worker.
"""
_FILE = "follower.lock"  # from when the worker was called follower: an older one must be noticed
_TRY_SECONDS = 2.0
"""How long to retry the lock: a process that only checks for a worker holds it for a moment."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """A worker that runs, or ran.

    Attributes:
        host: Its machine.
        pid: Its process id.
        since: Its start (UTC, ISO).
        silent_seconds: Age of its last heartbeat.
    """

    host: str
    pid: int
    since: str
    silent_seconds: float

    @property
    def is_silent(self) -> bool:
        """Whether its last heartbeat is too old to defer to it."""
        return self.silent_seconds > SILENT_AFTER_SECONDS

    def __str__(self) -> str:
        return f"the worker on {self.host} (process {self.pid}, since {self.since})"


class Lease:
    """The right to work on the sources, while it is held."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def alive(self) -> None:
        """Send a heartbeat."""
        with suppress(OSError):  # a full disk, for instance: the heartbeat is not the lock
            os.utime(self._path)


@contextmanager
def lease(home: Path) -> Generator[Lease]:
    """Hold the right to be the worker of this home folder.

    Raises:
        WorkerRunning: another process holds it; the message names that process.
    """
    home.mkdir(parents=True, exist_ok=True)
    path = home / _FILE
    deadline = time.monotonic() + _TRY_SECONDS
    with path.open("a+", encoding="utf-8") as file:
        while not locked(file, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise _refused(_read(file))
            time.sleep(_POLL_SECONDS)
        file.truncate(0)
        since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        json.dump({"host": socket.gethostname(), "pid": os.getpid(), "since": since}, file)
        file.flush()
        yield Lease(path)


def running_worker(home: Path) -> WorkerProcess | None:
    """Return the running worker; None if there is none."""
    held, found = _look(home)
    return found if held else None


def left_undone(home: Path) -> WorkerProcess | None:
    """Return the last worker, if it ended and no process has found all its work finished since."""
    held, found = _look(home)
    return None if held else found


def found_done(home: Path) -> None:
    """Record that the last worker left no unfinished work, unless a worker runs again."""
    with suppress(FileNotFoundError), (home / _FILE).open("r+", encoding="utf-8") as file:
        if locked(file, fcntl.LOCK_EX):
            file.truncate(0)


def _look(home: Path) -> tuple[bool, WorkerProcess | None]:
    """Return whether the lock is held, and the file's content."""
    try:
        with (home / _FILE).open(encoding="utf-8") as file:
            held = not locked(file, fcntl.LOCK_SH)
            return held, _read(file)
    except FileNotFoundError:
        return False, None


def _read(file: IO[str]) -> WorkerProcess | None:
    file.seek(0)
    try:
        content = json.loads(file.read())
        return WorkerProcess(
            host=str(content["host"]),
            pid=int(content["pid"]),
            since=str(content["since"]),
            silent_seconds=max(0.0, time.time() - os.fstat(file.fileno()).st_mtime),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _refused(other: WorkerProcess | None) -> WorkerRunning:
    who = str(other or "another process")
    return WorkerRunning(
        f"{who} runs already, and one is enough",
        fix="let it go on, or end it first: `kill` sends the signal on which it leaves",
        holder=who,
    )
