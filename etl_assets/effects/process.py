"""Which process an owner is, and whether it is certainly gone."""

from __future__ import annotations

import os
import socket

from etl_assets.processes import namespace, started_at


def this_process() -> str:
    """Machine since it was started, its process namespace, process id and when that process started."""
    pid = os.getpid()
    return f"{namespace() or socket.gethostname()}/{pid}/{started_at(pid)}"


def is_gone(process: str) -> bool:
    """Whether a process of this machine has ended. Of another machine's nothing can be told, nor where a system says too little."""
    machine, _, rest = process.partition("/")
    pid, _, since = rest.partition("/")
    if machine != namespace() or not pid.isdigit():
        return False
    return started_at(int(pid)) != since.partition("/")[0]
