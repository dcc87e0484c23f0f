"""Processes that go with the one that started them, whatever ends it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, or has ended already. Linux only; it lasts beyond `exec`.

    Args:
        parent: Process id of the one that has forked this process.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)
