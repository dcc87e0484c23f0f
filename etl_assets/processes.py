"""Processes of this machine, told apart even when the kernel reuses their ids, and who runs this one."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

_PROC = Path("/proc")


def started_at(pid: int) -> str | None:
    """Return when a process started, in the kernel's clock ticks; None if it has ended or is a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def is_there(pid: int) -> bool:
    """Return whether a process of that id exists. Works without /proc, where a zombie may count."""
    if started_at(pid) is not None:
        return True
    return not (_PROC / "self").exists() and _answers(pid)


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists and belongs to another user
    return True


def namespace() -> str | None:
    """Return the scope in which `started_at` tells processes apart: boot of the machine, and container.

    Two containers do not see each other's processes. None on a system without this information.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot}.{(_PROC / 'self/ns/pid').readlink().name}"
    except FileNotFoundError:
        return None


def since_1970(ticks: str) -> float:
    """Convert a time from `started_at` to seconds since 1970, by this machine's clock."""
    lines = (_PROC / "stat").read_text("utf-8").splitlines()
    boot = next(line.split()[1] for line in lines if line.startswith("btime"))
    return int(boot) + int(ticks) / os.sysconf("SC_CLK_TCK")


def user_and_host() -> str:
    """Return who runs this process, and where: `anna@etl-1`."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under an id that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
