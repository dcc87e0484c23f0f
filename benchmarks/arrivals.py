"""When each of numbered events could first be read from a target, by asking the target again and again.

Belongs here: asking, and the clock. Does not belong here: what is asked (`cases/latency.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

AskAfter = Callable[[int], Iterable[int]]
"""Returns the numbers of events that a target has, from one number on."""


class Arrivals(threading.Thread):
    """A thread that notes on the machine's monotonic clock when events were first there.

    Args:
        ask: Asks the target.
        every_seconds: How long to wait between two questions; arrivals are known to as much.
    """

    def __init__(self, ask: AskAfter, every_seconds: float) -> None:
        super().__init__(daemon=True)
        self._ask, self._every_seconds = ask, every_seconds
        self._lowest, self._left = 0, threading.Event()
        self.at: dict[int, float] = {}
        self.error: Exception | None = None

    def run(self) -> None:
        """Ask until `leave`."""
        while not self._left.is_set():
            began = time.monotonic()
            try:
                found = list(self._ask(self._lowest))
            except Exception as error:  # noqa: BLE001 - raised in the thread that waits
                self.error = error
                return
            now = time.monotonic()
            for number in found:
                self.at.setdefault(number, now)
            while self._lowest in self.at:
                self._lowest += 1
            self._left.wait(max(0.0, began + self._every_seconds - time.monotonic()))

    def has(self, events: int) -> bool:
        """Return whether the events below a number have arrived.

        Raises:
            Exception: of the question that failed.
        """
        if self.error is not None:
            raise self.error
        return self._lowest >= events

    def leave(self) -> None:
        """Ask no more."""
        self._left.set()
        self.join()
