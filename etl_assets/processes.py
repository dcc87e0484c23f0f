"""Processes of this machine, told apart also when their numbers are used again."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def started_at(pid: int) -> str | None:
    """When a process started, in the kernel's clock ticks; None when it is gone or a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def is_there(pid: int) -> bool:
    """Whether there is a process of that id, also on a system that says no more of it; a zombie may count there."""
    if started_at(pid) is not None:
        return True
    return not (_PROC / "self").exists() and _answers(pid)


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, and belongs to somebody else
    return True


def namespace() -> str | None:
    """Where process ids are told apart by `started_at`: this machine since it was started, and a container of it, for two of them
    do not see each other's processes. None on a system that does not say.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot}.{(_PROC / 'self/ns/pid').readlink().name}"
    except FileNotFoundError:
        return None


def since_1970(ticks: str) -> float:
    """The time of `started_at` in seconds since 1970, by this machine's clock."""
    lines = (_PROC / "stat").read_text("utf-8").splitlines()
    boot = next(line.split()[1] for line in lines if line.startswith("btime"))
    return int(boot) + int(ticks) / os.sysconf("SC_CLK_TCK")
