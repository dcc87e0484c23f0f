"""Interrupts in a process that waits for Spark: cancel the jobs first, then pass the interrupt on.

Dagster ends a run by SIGINT, and the exception is raised in the main thread wherever that is. Nearly always
it waits for an answer of the JVM. Raised there, the exception would leave the answer unread: every later call
of the thread, such as those of `finally` blocks, would wait for the whole job and take another call's answer
for its own. PySpark's own handler cancels from within the wait and has the same fault: the run failed as if
the connection had been lost, and was retried.

So while a call waits, the interrupt only cancels the session's jobs, from another thread with a connection of
its own. The call then ends with an error, and the interrupt is raised outside of it.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_SECONDS = 0.25
_WAITING_IN = ("py4j.", "grpc.")
"""Modules in which a call waits for Spark's answer."""
_logger = logging.getLogger("etl_assets")


class InterruptedSpark:
    """Signal handler that cancels a session's jobs before it passes the signal to the previous handler."""

    def __init__(self, session: SparkSession, then: Callable[[int, FrameType | None], Any]) -> None:
        self.session = session
        self._then = then
        self.came = False
        self._handed_on = threading.Event()
        self._canceller: threading.Thread | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        if not _waits_for_spark(frame):
            self._handed_on.set()
            self._then(number, frame)
            return
        if self._canceller is None:
            self._canceller = threading.Thread(target=self._cancel, args=(number,), daemon=True)
            self._canceller.start()

    def _cancel(self, number: int) -> None:
        """Cancel running jobs, and new ones until the interrupt is raised; then send the signal again."""
        main = threading.main_thread().ident
        while not self._handed_on.is_set():
            try:
                self.session.interruptAll()
            except Exception:  # the interrupt must be raised whatever state Spark is in
                _logger.warning("Spark's jobs could not be cancelled", exc_info=True)
            if main is None or self._handed_on.wait(_EVERY_SECONDS):
                return
            signal.pthread_kill(main, signal.Signals(number))
            if signal.getsignal(number) is not self:
                return


def cancel_on_interrupt(session: SparkSession) -> None:
    """Cancel the session's jobs when this process is interrupted.

    Does nothing outside the main thread, to which signals belong. Dagster sets its own handlers for every
    part of a step, and so undoes this call.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        if callable(before) and not (isinstance(before, InterruptedSpark) and before.session is session):
            signal.signal(number, InterruptedSpark(session, before))


def interrupted() -> bool:
    """Return whether this process was interrupted. True from the signal on, before the interrupt is raised.

    Jobs that were running fail in between.
    """
    handlers = (signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))
    return any(isinstance(handler, InterruptedSpark) and handler.came for handler in handlers)


def _waits_for_spark(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_WAITING_IN):
            return True
        frame = frame.f_back
    return False
