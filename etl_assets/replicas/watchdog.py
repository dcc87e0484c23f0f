"""What becomes of a step whose own root begins to hang while it works there.

Spark hangs with it, in its tasks and in its driver, and so does whoever waits for Spark. Nothing in the process can cut that
short: a task that was cancelled still holds its slot, so that a repetition in the same process would wait for ever. So the
process is ended. To the table that is a leader that died: what was not acknowledged is done again by the run that is
started in its place, and is placed elsewhere.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from etl_assets.delta.session import running_driver_pid
from etl_assets.errors import Unanswered
from etl_assets.mirroring.circuit_breaker import Hangs, ask, hanging
from etl_assets.mirroring.local_store import LocalStore
from etl_assets.placement.domain_registry import MARKER

EVERY_SECONDS = 1.0
LOOKS_IN_VAIN = 3
"""A process that was stopped for a while takes its root for hung at the first look, and no more at the second."""
logger = logging.getLogger("etl_assets")


@contextmanager
def killed_on_hang(
    root: Path, *, timeout_seconds: float, end: Callable[[], None] | None = None
) -> Generator[None]:
    """End this process, by `end`, if a root hangs during the block, for about `timeout_seconds` and three looks more."""
    done = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(root, timeout_seconds, done, end or _end), name=f"watch-{root}", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        done.set()


def _watch(root: Path, timeout_seconds: float, done: threading.Event, end: Callable[[], None]) -> None:
    store, in_vain = LocalStore(root), 0
    while not done.wait(EVERY_SECONDS):
        in_vain = in_vain + 1 if _hangs(root, store, timeout_seconds) else 0
        if in_vain >= LOOKS_IN_VAIN and not done.is_set():
            logger.critical(
                "%s has not answered for more than %g s, and Spark with it. This process ends; its run is started again, and"
                " placed in another failure domain that is allowed",
                root,
                timeout_seconds,
            )
            end()
            return


def _hangs(root: Path, store: LocalStore, timeout_seconds: float) -> bool:
    try:
        ask(str(root), lambda: store.get(MARKER), timeout_seconds)
    except Hangs:
        return hanging(str(root)) > 0
    except Unanswered:
        return False  # it is gone: what works there will notice
    return False


def _end() -> None:
    """The driver first: while it hangs in the kernel with the lock of a folder, whoever looks there cannot even be killed."""
    if (driver := running_driver_pid()) is not None:
        with suppress(ProcessLookupError):
            os.kill(driver, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
