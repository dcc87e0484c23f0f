"""Slots of connections: how many steps use one, or write one target by it, at the same time.

A slot is a kernel lock on a file of the home folder, so it ends with its process, however that ends. The
worker, commands and runs of Dagster take slots in the same place, right before a step opens its source or
sink.

Belongs here: slots, the wait for one, and who has them. Does not belong here: order among writers of one
table (`table_queue.py`).
"""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from etl_assets.delta.write.lock import POLL_SECONDS, locked
from etl_assets.errors import ConnectionBusy
from etl_assets.steps.step import Step, StepContext, StepReport

if TYPE_CHECKING:
    from etl_assets.settings import Settings

logger = logging.getLogger("etl_assets")
_said: dict[str, float] = {}
"""For each limit, when its wait was logged last, by the monotonic clock."""
_SAID_EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimit:
    """How many steps may use something at the same time.

    Attributes:
        name: What it is, for people.
        file: Name of its slots' files, without their numbers.
        slots: The number of steps.
        field: The setting.
    """

    name: str
    file: str
    slots: int
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHolder:
    """A step that has a slot.

    Attributes:
        table: The table that it writes.
        pid: Its process.
        since: Since when (UTC, ISO).
    """

    table: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"{self.table} (process {self.pid}, since {self.since})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedStep:
    """A step that has a slot of each of its limits while it runs.

    Attributes:
        step: The step.
        context: Its context.
        table: The table that it writes.
        limits: What it has to have slots of, in the order in which it waits for them.
        folder: Folder of the slots.
        wait_seconds: How long it waits.
    """

    step: Step
    context: StepContext
    table: str
    limits: Sequence[ConnectionLimit]
    folder: Path
    wait_seconds: float

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Wait for slots, and run the step.

        Raises:
            ConnectionBusy: other steps had them for longer than this one may wait. Nothing was done.
        """
        waiting = (lambda: None) if self.context.turns is None else self.context.turns.waiting
        with slots_taken(self.limits, self.folder, self.table, self.wait_seconds, waiting=waiting):
            return self.step.run(days)


def limited(
    step: Step,
    settings: Settings,
    context: StepContext,
    *,
    table: str,
    connection: str | None,
    target: str = "",
) -> Step:
    """Return the step with the limits of the connection that it uses; the step itself if there are none."""
    limits = limits_of(settings, connection, target)
    if not limits:
        return step
    wait = context.connection_wait_seconds
    return LimitedStep(
        step=step,
        context=context,
        table=table,
        limits=limits,
        folder=settings.slots_path,
        wait_seconds=settings.runs.connection_wait_seconds if wait is None else wait,
    )


def limits_of(settings: Settings, connection: str | None, target: str = "") -> tuple[ConnectionLimit, ...]:
    """Return the limits of a connection, and of a target that is written by it."""
    found = None if connection is None else settings.connections.get(connection)
    if connection is None or found is None:
        return ()
    limits = []
    if found.max_concurrency is not None:
        limits.append(
            ConnectionLimit(
                name=f"the connection {connection}",
                file=connection,
                slots=found.max_concurrency,
                field=f"connections.{connection}.max_concurrency",
            )
        )
    if target and found.max_concurrency_per_target is not None:
        limits.append(
            ConnectionLimit(
                name=f"the target {target} of the connection {connection}",
                file=f"{connection}-{hashlib.sha256(target.encode()).hexdigest()[:16]}",
                slots=found.max_concurrency_per_target,
                field=f"connections.{connection}.max_concurrency_per_target",
            )
        )
    return tuple(limits)


@contextmanager
def slots_taken(
    limits: Sequence[ConnectionLimit],
    folder: Path,
    table: str,
    wait_seconds: float,
    *,
    waiting: Callable[[], object] = lambda: None,
) -> Generator[None]:
    """Have a slot of each limit during the block.

    Slots are waited for in the order of the limits, which is the same for all steps: first the connection,
    then its target. So no two steps wait for each other.

    Args:
        limits: The limits.
        folder: Folder of the slots.
        table: The table that the step writes, for others to see.
        wait_seconds: How long to wait, for all of them together.
        waiting: Called repeatedly during a wait; an exception it raises ends the wait.

    Raises:
        ConnectionBusy: other steps had them for longer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_seconds
    with ExitStack() as held:
        for limit in limits:
            while (slot := _free_slot(limit, folder)) is None:
                if time.monotonic() >= deadline:
                    raise _busy(limit, folder, table, wait_seconds)
                _say(limit, folder, table)
                waiting()
                time.sleep(POLL_SECONDS)
            held.enter_context(slot)
            _sign(slot, table)
        yield


def holders(limit: ConnectionLimit, folder: Path) -> Iterator[SlotHolder]:
    """Yield the steps that have slots of a limit now."""
    for number in range(limit.slots):
        with suppress(OSError, ValueError, KeyError), _path(limit, folder, number).open("rb") as file:
            if not locked(file, fcntl.LOCK_SH):
                yield SlotHolder(**json.loads(file.read()))


def _free_slot(limit: ConnectionLimit, folder: Path) -> IO[bytes] | None:
    """Take a slot, if there is a free one."""
    for number in range(limit.slots):
        file = _path(limit, folder, number).open("a+b", buffering=0)
        if locked(file, fcntl.LOCK_EX):
            return file
        file.close()
    return None


def _path(limit: ConnectionLimit, folder: Path, number: int) -> Path:
    return folder / f"{limit.file}.{number}"


def _sign(slot: IO[bytes], table: str) -> None:
    with suppress(OSError):  # a full disk, for instance: the content is for people, the lock is the slot
        since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        slot.truncate(0)
        slot.write(json.dumps({"table": table, "pid": os.getpid(), "since": since}).encode())


def _say(limit: ConnectionLimit, folder: Path, table: str) -> None:
    now = time.monotonic()
    if now - _said.get(limit.file, -_SAID_EVERY_SECONDS) >= _SAID_EVERY_SECONDS:
        _said[limit.file] = now
        logger.warning("%s waits for %s: %s", table, limit.name, _in_use(limit, folder))


def _in_use(limit: ConnectionLimit, folder: Path) -> str:
    found = ", ".join(map(str, holders(limit, folder))) or "steps that have just ended"
    return f"{limit.slots} of {limit.slots} slots are in use, by {found}"


def _busy(limit: ConnectionLimit, folder: Path, table: str, waited: float) -> ConnectionBusy:
    return ConnectionBusy(
        f"{table} waited {waited:g} s for {limit.name}: {_in_use(limit, folder)}",
        fix="nothing, if that is a busy time: the step is tried again. If it comes often, raise"
        f" {limit.field}, run fewer pipelines at the same time, or look at what the steps named wait for",
        table=table,
        field=limit.field,
    )
