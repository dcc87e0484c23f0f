"""The identity of an owner's process, and whether the process has certainly ended."""

from __future__ import annotations

import os
import socket

from etl_assets.processes import namespace, started_at


def this_process() -> str:
    """Return the identity of this process: machine and boot, process namespace, process id and start time."""
    pid = os.getpid()
    return f"{namespace() or socket.gethostname()}/{pid}/{started_at(pid)}"


def is_gone(process: str) -> bool:
    """Return whether a process of this machine has ended.

    False for a process of another machine, and for systems that do not report enough: its end cannot be
    known.
    """
    machine, _, rest = process.partition("/")
    pid, _, since = rest.partition("/")
    if machine != namespace() or not pid.isdigit():
        return False
    return started_at(int(pid)) != since.partition("/")[0]
