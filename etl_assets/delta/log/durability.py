"""Durability over a power loss: contents and the folders that name them are fsynced.

Neither Spark nor Delta does that; a commit counts as acknowledged only after `sync_commit`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from etl_assets.delta.log.entries import LogEntry, checkpoint_path, entry_path, last_checkpoint_path

_AT_ONCE = 16
_FEW = 4
"""Below this number, threads cost more than they save."""


def sync_commit(table_path: Path, entry: LogEntry) -> None:
    """Make a commit durable: its data files, its log entry and their folders."""
    log_entry = entry_path(table_path, entry.version)
    files = [table_path / file.path for file in entry.added] + [log_entry]
    # Readers believe a checkpoint that Delta wrote with this commit, so it must be durable as well.
    checkpoint = [checkpoint_path(table_path, entry.version), last_checkpoint_path(table_path)]
    sync_files(table_path, [*files, *(file for file in checkpoint if file.exists())])


def sync_files(table_path: Path, files: Collection[Path]) -> None:
    """Make files of a table durable, and the folders that name them."""
    _fsync_all(files)
    _fsync_all({folder for file in files for folder in _folders(file, table_path)})


def write_durably(path: Path, content: bytes, *, mtime_ns: int | None = None) -> None:
    """Replace a small file as a whole: readers see the old or the new content, also after a power loss.

    Args:
        path: The file; its folder is created.
        content: The new content.
        mtime_ns: Its modification time in nanoseconds, if not now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if mtime_ns is not None:
                os.utime(file.name, ns=(mtime_ns, mtime_ns))
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    _fsync(path.parent)


def write_all_durably(contents: Mapping[Path, bytes]) -> None:
    """Replace some small files of one folder, each as `write_durably` does.

    In parallel, because a disk then waits less.
    """
    with ThreadPoolExecutor(_AT_ONCE) as writers:
        for written in [writers.submit(write_durably, path, content) for path, content in contents.items()]:
            written.result()


def remove_durably(paths: Iterable[Path]) -> None:
    """Remove files durably; absent files are fine."""
    folders = set()
    for path in paths:
        path.unlink(missing_ok=True)
        folders.add(path.parent)
    for folder in folders:
        if folder.is_dir():
            _fsync(folder)


def _folders(file: Path, table_path: Path) -> Iterable[Path]:
    """Return the folders from the file's up to the table's, and the folder that names the table's."""
    yield from (folder for folder in file.parents if folder.is_relative_to(table_path))
    yield table_path.parent


def _fsync_all(paths: Collection[Path]) -> None:
    """Return once all are durable. In parallel, because a disk then flushes once for several of them."""
    if len(paths) < _FEW:
        for path in paths:
            _fsync(path)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(paths))) as threads:
        for done in [threads.submit(_fsync, path) for path in paths]:
            done.result()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
