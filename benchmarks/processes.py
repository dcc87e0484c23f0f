"""What processes have used, from /proc: CPU seconds and resident memory of a process and all it has
started.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One line of /proc: CPU seconds include those of children that have ended and were waited for."""

    pid: int
    parent: int
    cpu_seconds: float
    resident_bytes: int


def tree_cpu_seconds(root: int) -> float:
    """CPU seconds of a process and its descendants so far, those that have ended included."""
    return sum(process.cpu_seconds for process in tree(root))


def tree_resident_bytes(root: int) -> int:
    """Resident memory of a process and its descendants; a page that two of them share counts twice."""
    return sum(process.resident_bytes for process in tree(root))


def tree(root: int) -> Iterator[Process]:
    """A process and its descendants that are alive."""
    children: defaultdict[int, list[Process]] = defaultdict(list)
    for process in _all():
        children[process.parent].append(process)
        if process.pid == root:
            yield process
    waiting = [root]
    while waiting:
        for process in children[waiting.pop()]:
            yield process
            waiting.append(process.pid)


def machine_cpu_seconds() -> float:
    """CPU seconds that all processes of this machine together have used since it started."""
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = (
        int(field) for field in Path("/proc/stat").read_text("utf-8").split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS_PER_SECOND


def _all() -> Iterator[Process]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (process := _read(int(entry.name))) is not None:
            yield process


def _read(pid: int) -> Process | None:
    try:
        # The command stands in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        cpu_seconds=sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_SECOND,
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
    )
