"""Threads of the worker that repeat a task until the process leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable

from etl_assets.steps.step import logger


def repeat(
    task: Callable[[], object],
    *,
    name: str,
    interval_seconds: float,
    leaving: threading.Event,
    lost: Callable[[Exception], object],
) -> threading.Thread:
    """Start a thread that repeats a task.

    Args:
        task: What it does.
        name: Name of the thread.
        interval_seconds: From the end of the task to its next begin.
        leaving: Ends it.
        lost: Takes an error of the task, which ends the thread.
    """

    def again() -> None:
        while not leaving.wait(interval_seconds):
            try:
                task()
            except Exception as error:  # noqa: BLE001 - raised in the main thread, which ends the process
                if not leaving.is_set():
                    logger.exception("the thread %s cannot go on", name)
                lost(error)
                return

    thread = threading.Thread(target=again, name=name, daemon=True)
    thread.start()
    return thread
