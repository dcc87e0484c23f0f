"""Processes of this machine, told apart also when their numbers are used again."""

from __future__ import annotations

from pathlib import Path


def started_at(pid: int) -> str | None:
    """When a process started, in the kernel's clock ticks; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]
