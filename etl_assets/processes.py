"""Processes of this machine, told apart also when their numbers are used again."""

from __future__ import annotations

import os
from pathlib import Path


def started_at(pid: int) -> str | None:
    """When a process started, in the kernel's clock ticks; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def since_1970(ticks: str) -> float:
    """The time of `started_at` in seconds since 1970, by this machine's clock."""
    lines = Path("/proc/stat").read_text("utf-8").splitlines()
    boot = next(line.split()[1] for line in lines if line.startswith("btime"))
    return int(boot) + int(ticks) / os.sysconf("SC_CLK_TCK")
