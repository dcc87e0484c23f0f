"""Which process an owner is, and whether it is certainly gone."""

from __future__ import annotations

import os
from pathlib import Path

from etl_assets.processes import started_at


def this_process() -> str:
    """Machine since it was started, its process namespace, process id and when that process started."""
    return f"{_machine()}/{os.getpid()}/{started_at(os.getpid())}"


def is_gone(process: str) -> bool:
    """Whether a process of this machine has ended. Of another machine's nothing can be told."""
    machine, _, rest = process.partition("/")
    pid, _, since = rest.partition("/")
    if machine != _machine() or not pid.isdigit():
        return False
    return started_at(int(pid)) != since.partition("/")[0]


def _machine() -> str:
    """Two containers on one machine do not see each other's processes: the namespace tells them apart."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    return f"{boot}.{Path('/proc/self/ns/pid').readlink().name}"
