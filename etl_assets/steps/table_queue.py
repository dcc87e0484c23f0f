"""Turns at a table: whoever writes the same table on one machine works one after the other, first come, first served.

Belongs here: waiting, so that no step works in vain. Does not belong here: correctness. A step that works without a turn, on
another machine or past a lock that was lost, is told of what came in between by its commit (`delta/commit.py`).

A turn is a lock of the kernel on `<table>.turn`, so that it ends with its process. Whoever wants it holds `<table>.next`
until it is theirs: only one process looks for the turn at a time, so that one that ends its turn and wants the next at once
comes after whoever waited.
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

from etl_assets.delta.lock import POLL_SECONDS, locked

MAX_WAIT_SECONDS = 3_600.0
"""A holder that hangs does not keep others from working for ever: after so long they work beside it, which is safe."""
SAID_AFTER_SECONDS = 2.0
logger = logging.getLogger("etl_assets")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQueue:
    """Where the processes of this machine take turns at tables.

    Attributes:
        folder: The locks' folder, on this machine; made when absent. Files in it are never removed.
        waiting: Called again and again while there is somebody to wait for; what it raises ends the wait.
    """

    folder: Path
    waiting: Callable[[], object] = lambda: None

    @contextmanager
    def take(self, *tables: str) -> Generator[None]:
        """Have the turns at some tables during the block, after those who came before. An interrupt ends the wait.

        A thread that has a turn, at whatever table, takes no second one and goes on at once, and several are waited for in
        the order of their names: so nobody waits in a circle.
        """
        with self._having(tables, MAX_WAIT_SECONDS):
            yield

    @contextmanager
    def take_if_free(self, table: str) -> Generator[bool]:
        """Have the turn at a table during the block if nobody has it or waits for it; gives whether that is so."""
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
    """Let whoever waits for a turn of this thread go first: for a step that has just committed and has more to do.

    The table may have moved on afterwards: what follows is to be planned on its newest version.
    """
    for turn in _mine.get():
        turn.end()
    _begin(_mine.get(), MAX_WAIT_SECONDS)


def _begin(turns: Iterable[_Turn], wait_seconds: float) -> bool:
    """Wait for each; whether all came in time."""
    begun = [turn.begin(wait_seconds) for turn in turns]
    return all(begun)


class _Turn:
    """A turn at a table, to be had, given up and had again."""

    def __init__(self, turns: TableQueue, table: str) -> None:
        self._turns, self._table = turns, table
        self._held = ExitStack()

    def begin(self, wait_seconds: float) -> bool:
        """Wait for it; whether it came in time."""
        with ExitStack() as files:
            try:
                self._turns.folder.mkdir(parents=True, exist_ok=True)
                turn = files.enter_context(self._open("turn"))
                following = files.enter_context(self._open("next"))
            except OSError as error:  # turns save work; nothing is wrong without them
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
        """Lock one file after the other; whether both came in time."""
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
"""The turns of this thread, in the order of their names."""
_hung: dict[str, bytes] = {}
"""For each file of a turn who was waited for in vain: not again in the same turn of theirs."""


def _sign(turn: IO[bytes]) -> None:
    with suppress(OSError):  # a full disk, for instance: it is for others' logs, not the lock
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
