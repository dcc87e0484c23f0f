"""Processes that go with the one that started them, whatever ends it."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def dies_with_its_parent() -> None:
    """Have the kernel kill this process when its parent ends. Linux only; it lasts beyond `exec`."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
