"""Work that may take longer than whoever asks for it can wait.

Belongs here: leaving such work to go on in a thread of its own, and handing over what became of it later. Does not belong here:
what is done; it must be safe to repeat, as it ends with the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class LongWork:
    """What is under way in this process: under each name one piece of work at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: dict[Hashable, Future[Any]] = {}

    def ask(self, name: Hashable, work: Callable[[], T], seconds: float) -> T | None:
        """What work gave; None if it is not done yet.

        Work that was left under way is not begun again and not waited for: once it is done, whoever asks next gets what it gave.
        What it raised is raised here.

        Args:
            name: What the work is known by.
            work: Gives anything but None.
            seconds: How long to wait for work that is begun now.
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
    except BaseException as error:  # noqa: BLE001 - raised to whoever asks
        future.set_exception(error)
