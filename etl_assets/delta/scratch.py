"""Temporary folders outside of any table."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "etl-assets-"
_LEFT_SECONDS = 3600.0


@contextmanager
def scratch_folder(purpose: str) -> Generator[Path]:
    """Yield an empty folder on this machine, removed afterwards.

    Folders that killed processes left for the same purpose are removed first.
    """
    prefix = f"{_PREFIX}{purpose}-"
    _sweep(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)


def _sweep(prefix: str) -> None:
    """Remove old folders of this user. A live one is finished within seconds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            found = folder.lstat()
            if found.st_uid == os.getuid() and found.st_mtime < time.time() - _LEFT_SECONDS:
                shutil.rmtree(folder)
