"""Processes that end with the process that started them, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, or now if the parent has ended.

    Linux only. The setting survives `exec`.

    Args:
        parent: Id of the process that forked this one.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call above
        os.kill(os.getpid(), signal.SIGKILL)
