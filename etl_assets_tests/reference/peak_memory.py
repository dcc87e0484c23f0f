"""Memory of this process: now, and how much a block needs at most beyond what the process had before."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SELF = Path("/proc/self")


@dataclass
class Growth:
    """The memory of a block, known when it has ended."""

    mib: int = -1


@contextmanager
def growth() -> Generator[Growth]:
    """Measure a block.

    The kernel's peak is set back first. Otherwise what other tests needed before would hide what this block
    needs.
    """
    (_SELF / "clear_refs").write_text("5")
    found, before = Growth(), _kib("VmRSS")
    yield found
    found.mib = max(0, _kib("VmHWM") - before) // 1024


def resident_mib() -> int:
    """Return how much memory this process has now."""
    return _kib("VmRSS") // 1024


def _kib(name: str) -> int:
    value = re.search(rf"{name}:\s+(\d+) kB", (_SELF / "status").read_text("utf-8"))
    assert value is not None
    return int(value[1])
