"""A queue for each table: processes of one machine write the same table one after the other.

They do so in order of arrival.

Belongs here: waiting, so that no step does work that its commit would reject. Does not belong here:
correctness. A step that works without its turn, on another machine or after a lock was lost, still detects
concurrent commits when it commits (`delta/write/commit.py`).

A turn is a kernel lock on `<table>.turn`, so that it ends with its process. A process that wants the turn
holds `<table>.next` until it has it, so only one process at a time polls for the turn. A process that ends
its turn and wants the next one at once therefore comes after those that waited.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from etl_assets.delta.write.lock import POLL_SECONDS, locked

MAX_WAIT_SECONDS = 3_600.0
"""Longest wait for a turn.

A holder that hangs must not block others forever: after this time they work beside it, which is safe.
"""
SAID_AFTER_SECONDS = 2.0
logger = logging.getLogger("etl_assets")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQueue:
    """The queues in which processes of this machine wait for tables.

    Attributes:
        folder: Folder of the locks, on this machine; created if missing. Files in it are never removed.
        waiting: Called repeatedly during a wait; an exception it raises ends the wait.
    """

    folder: Path
    waiting: Callable[[], object] = lambda: None

    @contextmanager
    def take(self, *tables: str) -> Generator[None]:
        """Hold the turns at some tables during the block, after the processes that came before.

        An interrupt ends the wait.

        A thread that holds a turn, at any table, takes no second one and continues at once. Several turns are
        waited for in the order of their tables' names. So no two processes wait for each other.
        """
        with self._having(tables, MAX_WAIT_SECONDS):
            yield

    @contextmanager
    def take_if_free(self, table: str) -> Generator[bool]:
        """Hold the turn at a table during the block if no process holds it or waits for it.

        Yields:
            Whether the turn is held.
        """
        with self._having((table,), 0.0) as has_it:
            yield has_it

    @contextmanager
    def _having(self, tables: Collection[str], wait_seconds: float) -> Generator[bool]:
        if _mine.get():
            yield True
            return
        turns = tuple(_Turn(self, table) for table in sorted(set(tables)))
        with ExitStack() as ending:
            for turn in turns:
                ending.callback(turn.end)
            has_them = _begin(turns, wait_seconds)
            before = _mine.set(turns)
            ending.callback(_mine.reset, before)
            yield has_them


def give_way() -> None:
    """Let the processes that wait for a turn of this thread go first, then wait for the turn again.

    For a step that has just committed and has more to do. The table may have changed afterwards: the next
    work must be planned on its newest version.
    """
    for turn in _mine.get():
        turn.end()
    _begin(_mine.get(), MAX_WAIT_SECONDS)


def _begin(turns: Iterable[_Turn], wait_seconds: float) -> bool:
    """Wait for each turn; return whether all were obtained in time."""
    begun = [turn.begin(wait_seconds) for turn in turns]
    return all(begun)


class _Turn:
    """A turn at a table that can be acquired, released and acquired again."""

    def __init__(self, turns: TableQueue, table: str) -> None:
        self._turns, self._table = turns, table
        self._held = ExitStack()

    def begin(self, wait_seconds: float) -> bool:
        """Wait for the turn; return whether it was obtained in time."""
        with ExitStack() as files:
            try:
                self._turns.folder.mkdir(parents=True, exist_ok=True)
                turn = files.enter_context(self._open("turn"))
                following = files.enter_context(self._open("next"))
            except OSError as error:  # turns only save work; the result is correct without them
                logger.warning("%s: goes on without its turn: %s", self._table, error)
                return False
            if not self._wait_for((following, turn), wait_seconds):
                return False
            following.close()
            _sign(turn)
            self._held = files.pop_all()
        return True

    def end(self) -> None:
        self._held.close()

    def _open(self, kind: str) -> IO[bytes]:
        return (self._turns.folder / f"{self._table}.{kind}").open("a+b", buffering=0)

    def _wait_for(self, files: tuple[IO[bytes], IO[bytes]], wait_seconds: float) -> bool:
        """Lock one file after the other; return whether both locks were obtained in time."""
        began, said = time.monotonic(), False
        for file in files:
            while not locked(file, fcntl.LOCK_EX):
                waited = time.monotonic() - began
                if waited >= wait_seconds or _hung.get(files[-1].name) == _sign_of(files[-1]):
                    if wait_seconds and waited >= wait_seconds:
                        _hung[files[-1].name] = _sign_of(files[-1])
                        logger.warning("%s: goes on without its turn; %s", self._table, _holder(files[-1]))
                    return False
                if waited >= SAID_AFTER_SECONDS and not said:
                    said = True
                    logger.warning("%s: waits for its turn; %s", self._table, _holder(files[-1]))
                self._turns.waiting()
                time.sleep(POLL_SECONDS)
        return True


_mine: ContextVar[tuple[_Turn, ...]] = ContextVar("turns", default=())
"""The turns of this thread, in the order of their tables' names."""
_hung: dict[str, bytes] = {}
"""For each turn file, its content when a wait timed out: the same turn is not waited for again."""


def _sign(turn: IO[bytes]) -> None:
    # A failure, for instance a full disk, does no harm: the content is for the logs of others, not for the
    # lock.
    with suppress(OSError):
        since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        turn.truncate(0)
        turn.write(json.dumps({"pid": os.getpid(), "since": since}).encode())


def _sign_of(turn: IO[bytes]) -> bytes:
    turn.seek(0)
    return turn.read()


def _holder(turn: IO[bytes]) -> str:
    try:
        content = json.loads(_sign_of(turn))
        return f"process {int(content['pid'])} has it since {content['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process has it"
