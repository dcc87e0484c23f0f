"""Processes that end with the process that started them, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent ends, or now if the parent has ended.

    Linux only. The setting survives `exec`.

    Args:
        parent: Id of the process that forked this one.
        number: The signal. SIGTERM lets a process end its own children, which SIGKILL leaves behind.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent ended before the call above
        os.kill(os.getpid(), number)
