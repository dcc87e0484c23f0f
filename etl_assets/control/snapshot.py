"""The snapshot of declarations over REST in the home folder, which is all that runs read.

Belongs here: writing it from the control store. Does not belong here: reading it
(`pipelines/rest_declaration.py`).
"""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import orjson

from etl_assets.control.revisions import NewestRevisions, Revisions
from etl_assets.delta.log.durability import write_durably
from etl_assets.errors import StorageFailed
from etl_assets.pipelines.rest_declaration import snapshot_path


def refresh_snapshot(home: Path, revisions: Revisions) -> NewestRevisions:
    """Let the snapshot have the newest revisions, and return them.

    One process of the home folder at a time reads the store and writes the file, so that an older state
    never replaces a newer one.

    Raises:
        ControlStoreUnavailable: the store does not answer; the snapshot stays as it was.
        StorageFailed: the snapshot cannot be written; it stays as it was.
    """
    path = snapshot_path(home)
    try:
        with _alone(path.with_suffix(".lock")):
            newest = revisions.newest()
            content = _content(newest)
            if _read(path) != content and (newest.of or path.exists()):
                write_durably(path, content)
            return newest
    except OSError as error:
        raise StorageFailed(
            f"{path} cannot be written: {error.strerror or error}",
            fix="make room or give the right to write it; the server tries again every few seconds",
        ) from error


def _content(newest: NewestRevisions) -> bytes:
    entries = [
        {
            "name": each.pipeline,
            "tenant": each.tenant,
            "revision": each.revision,
            "declaration": each.declaration,
        }
        for each in newest.live()
    ]
    return orjson.dumps({"pipelines": entries}, option=orjson.OPT_INDENT_2) + b"\n"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@contextmanager
def _alone(path: Path) -> Generator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
