"""The last versions of each table's log that this process has read."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from etl_assets.delta.log.entries import (
    checkpoint_path,
    checkpoints,
    entry_identity,
    entry_path,
    log_names,
    newest_checkpoint,
)
from etl_assets.delta.snapshot import Snapshot

_REMEMBERED_TABLES = 512
"""A worker looks at all its tables in turn: with fewer than it has, every look would read every log."""
_REMEMBERED_VERSIONS = 2
"""A step asks for the version it builds on and, after its commit, for the new one."""


def snapshot_in(path: Path, version: int) -> Snapshot:
    """Return the log of a version, cached: a step asks for few versions repeatedly, and none ever changes.

    A recreated table may have the same path and version, but not the same entry file, so the file is part of
    the cache key. A cached snapshot reads more of the log when it is used. It is valid until the file that
    its log begins with is cleaned up behind a newer checkpoint.
    """
    if (entry := entry_identity(path, version)) is None:  # cleaned up behind a checkpoint
        return _load(path, version)
    begins, snapshot = _remembered(path)(version, entry)
    return snapshot if begins.exists() else _load(path, version)


def _load(path: Path, version: int) -> Snapshot:
    from deltalake import DeltaTable

    return Snapshot(DeltaTable(str(path), version=version))


@lru_cache(maxsize=_REMEMBERED_TABLES)
def _remembered(path: Path) -> Callable[[int, tuple[int, int]], tuple[Path, Snapshot]]:
    """Return a loader that caches the last versions of a table's log.

    Few versions are kept: one takes 3 to 4 kB of memory per data file, and a long-lived process asks for
    one version after another.
    """

    @lru_cache(maxsize=_REMEMBERED_VERSIONS)
    def load(version: int, _entry: tuple[int, int]) -> tuple[Path, Snapshot]:
        """Load a version's log, and the path of the file that its log begins with."""
        newest = newest_checkpoint(path)
        if not 0 <= newest <= version:
            newest = max((each for each in checkpoints(log_names(path)) if each <= version), default=-1)
        begins = checkpoint_path(path, newest) if newest >= 0 else entry_path(path, 0)
        return begins, _load(path, version)

    return load
