"""A watchdog that ends the process when the root its step works in begins to hang.

Spark hangs with the root, in its tasks and in its driver, and so does every thread that waits for Spark.
Nothing in the process can interrupt that: a cancelled task still holds its slot, so a retry in the same
process would wait forever. The watchdog therefore kills the process. For the table this is the crash of a
leader: the run that is started in its place repeats what was not acknowledged, and is placed in another
domain.
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
from etl_assets.mirroring.stores.circuit_breaker import Hangs, ask, hanging
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.placement.domain_registry import MARKER

EVERY_SECONDS = 1.0
LOOKS_IN_VAIN = 3
"""Probes in a row that must fail before the process is ended.

A process that was itself stopped for a while finds its root hung at the first probe, and no longer at the
second.
"""
logger = logging.getLogger("etl_assets")


@contextmanager
def killed_on_hang(
    root: Path, *, timeout_seconds: float, end: Callable[[], None] | None = None
) -> Generator[None]:
    """Call `end`, which kills this process by default, if a root hangs during the block.

    It takes about `timeout_seconds` and three more probes to notice.
    """
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
                "%s has not answered for more than %g s, and Spark with it. This process ends; its run is"
                " started again, and placed in another failure domain that is allowed",
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
        return False  # The root is missing, which is no hang: the step that works there will notice.
    return False


def _end() -> None:
    """Kill the driver, then this process.

    The driver comes first. While it hangs in the kernel with the lock of a folder, a process that accesses
    the folder cannot even be killed.
    """
    if (driver := running_driver_pid()) is not None:
        with suppress(ProcessLookupError):
            os.kill(driver, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
