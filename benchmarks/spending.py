"""What a process and all it starts spend, those included that end unnoticed by their parents or outlive
them.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 0.1


class Spending:
    """Looks at a process's descendants ten times a second; what one spends after the last look is missing."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._ticks: dict[tuple[int, str], int] = {}
        self._looking, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spending", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def cpu_seconds(self) -> float:
        """CPU seconds so far of the descendants seen, not of the process itself."""
        self._look()
        return sum(self._ticks.values()) / _TICKS_PER_SECOND

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        with self._looking:
            found = dict(_processes())
            ours = {self._root}
            # Parents may have larger numbers than their children once numbers are used again.
            known = {pid for pid, started in self._ticks if found.get(pid, (0, "", 0))[1] == started}
            grown = True
            while grown:
                new = {pid for pid, (parent, _, _) in found.items() if parent in ours or parent in known}
                grown = not new <= (ours | known)
                ours |= new
            for pid in (ours | known) - {self._root}:
                if pid in found:
                    _, started, ticks = found[pid]
                    self._ticks[pid, started] = ticks


def _processes() -> list[tuple[int, tuple[int, str, int]]]:
    """Number, then parent, start and ticks spent by the process itself."""
    processes = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text("utf-8", errors="replace")
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()
            processes.append(
                (int(entry.name), (int(fields[1]), fields[19], int(fields[11]) + int(fields[12])))
            )
    return processes
