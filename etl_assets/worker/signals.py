"""Signals that end the worker.

Belongs here: how they reach the main thread. Does not belong here: leaving (`worker.py`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Generator[None]:
    """Raise `KeyboardInterrupt` on the signals during the block, where this is the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, interrupt) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
