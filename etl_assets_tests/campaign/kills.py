"""What befalls a command from outside, and when: its whole group, its JVM or a worker killed, or put to
sleep.

Moments are of two sorts: after some time, and as soon as a table has a new commit or a new data file, so that
kills come where something has just been written.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from etl_assets_tests.commands.home import Home, Running, StepOutcome

TABLES = (
    "raw_events_exceptions", "raw_events", "normalized_orders_exceptions", "normalized_orders",
    "warehouse_rows",
    "order_status_view", "dead_letters", "audit_log",
)  # fmt: skip
VICTIMS = ("group", "group", "command", "jvm", "worker", "asleep, then killed", "asleep for a while")
MAX_SECONDS = 300.0
_LOOKS_PER_SECOND = 40


def at_some_moment(home: Home, running: Running, dice: random.Random, usual_seconds: float) -> str:
    """Wait for a moment of a command that dice choose, or its end; which moment it was."""
    kind = dice.choice(["time", "commit", "commit", "file"])
    after = dice.uniform(0, 0.6)
    table = dice.choice(TABLES)
    if kind == "time":
        after = dice.uniform(0.2, usual_seconds)
        _until(running, lambda: False, after)
        return f"after {after:.1f} s"
    look = _commits if kind == "commit" else _data_files
    before = look(home, table)
    _until(running, lambda: look(home, table) > before, MAX_SECONDS)
    _until(running, lambda: False, after)
    return f"{after:.2f} s after a new {kind} of {table}"


def befall(home: Home, running: Running, dice: random.Random, usual_seconds: float) -> StepOutcome:
    """Something happens to a command; how it ended. Says in the home's history what it was."""
    victim = dice.choice(VICTIMS)
    moment = at_some_moment(home, running, dice, usual_seconds)
    alive = running.process.poll() is None
    home.history.append(f"    {victim}: {moment}" + ("" if alive else "; it had ended before"))
    if alive:
        _strike(running, victim, dice.uniform(0.5, 4))
    done = running.ended(MAX_SECONDS)
    home.history.append(f"    ended with exit code {done.code}")
    return done


def _strike(running: Running, victim: str, pause_seconds: float) -> None:
    if victim.startswith("asleep"):
        running.send(signal.SIGSTOP)
        time.sleep(pause_seconds)
        running.send(signal.SIGKILL if victim.endswith("killed") else signal.SIGCONT)
        return
    words = {"jvm": "/java ", "worker": "pyspark"}
    found = [pid for pid, command in running.members() if words.get(victim, "") in command]
    if victim == "command":
        found = [running.process.pid]
    for pid in found or [running.process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if victim == "worker":
            break


def _until(running: Running, reached: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while running.process.poll() is None and time.monotonic() < deadline and not reached():
        time.sleep(1 / _LOOKS_PER_SECOND)


def _commits(home: Home, table: str) -> int:
    folder = home.folder(table)
    return len(list((folder / "_delta_log").glob("*.json"))) if folder else 0


def _data_files(home: Home, table: str) -> int:
    folder = home.folder(table)
    return len(list(folder.rglob("*.parquet"))) if folder else 0
