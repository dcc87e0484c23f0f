"""A disk of a few megabytes, and a file that fills it.

Belongs here: mounting it for a test. Does not belong here: disks that fail in other ways (`chaos/roots.py`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PIECE = b"\0" * 4_096


@contextmanager
def small_disk(folder: Path, *, mebibytes: int) -> Generator[Path]:
    """Mount a disk in a new folder until the block ends; skip the test where this user may not mount."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a size-limited tmpfs cannot be mounted by this user: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        # Lazily, because a process of the test may still have a file open.
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Write until the disk is full, and return the file to remove."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(_PIECE)
        except OSError:
            return filler
