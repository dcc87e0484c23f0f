"""A time limit that holds even where the file system hangs: what does not answer is given up, and left behind.

A call that hangs in the kernel cannot be ended from outside. It is made in a thread of its own, and as long as one hangs
no other is started for the same root: one thread a root, however long it hangs and however often it is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar, cast

from etl_assets.errors import Unanswered

T = TypeVar("T")


class _Errand(threading.Thread):
    """One question under way. A daemon thread: a process must be able to end while it hangs."""

    def __init__(self, root: str, question: Callable[[], object]) -> None:
        super().__init__(name=f"look-{root}", daemon=True)
        self.began = time.monotonic()
        self.answer: object = None
        self.error: Exception | None = None
        self._question = question

    def run(self) -> None:
        try:
            self.answer = self._question()
        except Exception as error:  # noqa: BLE001 - handed over to whoever asked
            self.error = error


_under_way: dict[str, _Errand] = {}
_lock = threading.Lock()


def ask(root: str, question: Callable[[], T], seconds: float) -> T:
    """The answer to a question about a root.

    Raises:
        Unanswered: not within `seconds`; at once if an earlier question has hung longer than that.
    """
    deadline = time.monotonic() + seconds
    while True:
        with _lock:
            other = _under_way.get(root)
            mine = other is None or not other.is_alive()
            errand = _Errand(root, question) if other is None or mine else other
            if mine:
                _under_way[root] = errand
                errand.start()
        # Somebody else's question is waited for, unless it was given up already.
        errand.join(max(0.0, min(deadline, errand.began + seconds) - time.monotonic()))
        if errand.is_alive():
            raise Unanswered(
                f"{root}: did not answer within {seconds:g} s",
                fix="see that it is mounted or reachable, and that its disk or server is not stuck",
                store=root,
                key="",
            )
        if not mine:
            continue
        with _lock:
            if _under_way.get(root) is errand:
                del _under_way[root]
        if errand.error is not None:
            raise errand.error
        return cast("T", errand.answer)
