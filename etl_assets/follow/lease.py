"""Who follows: a lock of the kernel on a file of the home folder, and in the file who holds it.

The lock goes with the process, however it ends. What is written in the file stays, and tells whoever looks next that
something may have been left undone, until that is found not to be so.
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

from etl_assets.delta.lock import locked
from etl_assets.errors import FollowerRunning

SILENT_AFTER_SECONDS = 900.0
"""A follower gives a sign of life with each step. After so long without one, nobody stands back for it any more."""
_FILE = "follower.lock"
_TRY_SECONDS = 2.0
"""Whoever looks whether somebody follows holds the lock for a moment."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """A process that follows, or did.

    Attributes:
        host: Its machine.
        pid: Its process id.
        since: When it began (UTC, ISO).
        silent_seconds: How long ago it gave the last sign of life.
    """

    host: str
    pid: int
    since: str
    silent_seconds: float

    @property
    def is_silent(self) -> bool:
        """Whether it has hung for too long to be waited for."""
        return self.silent_seconds > SILENT_AFTER_SECONDS

    def __str__(self) -> str:
        return f"the follower on {self.host} (process {self.pid}, since {self.since})"


class Lease:
    """The right to follow, while it is held."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def alive(self) -> None:
        """Give a sign of life."""
        with suppress(OSError):  # a full disk, for instance: it is a sign, not the lock
            os.utime(self._path)


@contextmanager
def lease(home: Path) -> Generator[Lease]:
    """Hold the right to follow on this home folder.

    Raises:
        FollowerRunning: another process holds it; the message names it.
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


def following(home: Path) -> Following | None:
    """Who follows now, None if nobody does."""
    held, found = _look(home)
    return found if held else None


def left_undone(home: Path) -> Following | None:
    """The last follower, if it is gone and nobody has found everything done since."""
    held, found = _look(home)
    return None if held else found


def found_done(home: Path) -> None:
    """Note that nothing is left undone of what the last follower began, unless somebody follows again."""
    with suppress(FileNotFoundError), (home / _FILE).open("r+", encoding="utf-8") as file:
        if locked(file, fcntl.LOCK_EX):
            file.truncate(0)


def _look(home: Path) -> tuple[bool, Following | None]:
    """Whether the lock is held, and what the file says."""
    try:
        with (home / _FILE).open(encoding="utf-8") as file:
            held = not locked(file, fcntl.LOCK_SH)
            return held, _read(file)
    except FileNotFoundError:
        return False, None


def _read(file: IO[str]) -> Following | None:
    file.seek(0)
    try:
        content = json.loads(file.read())
        return Following(
            host=str(content["host"]),
            pid=int(content["pid"]),
            since=str(content["since"]),
            silent_seconds=max(0.0, time.time() - os.fstat(file.fileno()).st_mtime),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _refused(other: Following | None) -> FollowerRunning:
    who = str(other or "another process")
    return FollowerRunning(
        f"{who} follows already, and one is enough",
        fix="let it go on, or end it first: `kill` sends the signal on which it leaves",
        holder=who,
    )
