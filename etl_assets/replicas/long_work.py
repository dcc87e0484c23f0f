"""Work that may take longer than its caller can wait.

Belongs here: continuing such work in a thread of its own, and returning its result later. Does not belong
here: the work itself. It must be safe to repeat, because it ends with the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class LongWork:
    """The work under way in this process: one piece of work at a time for each name."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: dict[Hashable, Future[Any]] = {}

    def ask(self, name: Hashable, work: Callable[[], T], seconds: float) -> T | None:
        """Start work under a name, or look up the work already under way there, and return its result.

        Work that is already under way is neither started again nor waited for. Once it is done, the next call
        under its name returns its result, or raises its error.

        Args:
            name: The name of the work.
            work: Returns anything but None.
            seconds: How long to wait for work that this call starts.

        Returns:
            The result; None if the work is not done yet.
        """
        with self._lock:
            begun = name not in self._under_way
            future = self._under_way.setdefault(name, Future())
        if begun:
            Thread(target=_do, args=(future, work), name="long-work", daemon=True).start()
            wait([future], None if seconds == math.inf else seconds)
        if not future.done():
            return None
        with self._lock:
            if self._under_way.get(name) is future:
                del self._under_way[name]
        return future.result()


def _do(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised to the next caller
        future.set_exception(error)
