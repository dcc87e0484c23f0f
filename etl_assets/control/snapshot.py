"""The snapshots of declarations and connections over REST in the home folder, which are all that runs read.

Belongs here: writing them from the control store. Does not belong here: reading them
(`pipelines/rest_declaration.py`, `settings/rest_connections.py`).
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson

from etl_assets.control.connection_rows import ConnectionRows, StoredConnection
from etl_assets.control.revisions import NewestRevisions, Revisions
from etl_assets.delta.log.durability import write_durably
from etl_assets.errors import StorageFailed
from etl_assets.pipelines.rest_declaration import snapshot_path
from etl_assets.settings.rest_connections import snapshot_path as connections_path


def refresh_snapshot(home: Path, revisions: Revisions) -> NewestRevisions:
    """Let the snapshot have the newest revisions, and return them.

    One process of the home folder at a time reads the store and writes the file, so that an older state
    never replaces a newer one.

    Raises:
        ControlStoreUnavailable: the store does not answer; the snapshot stays as it was.
        StorageFailed: the snapshot cannot be written; it stays as it was.
    """
    newest: list[NewestRevisions] = []

    def content() -> bytes | None:
        newest.append(revisions.newest())
        return _content(newest[0]) if newest[0].of else None

    _refresh(snapshot_path(home), content, _content(NewestRevisions(last_id=0, of={})))
    return newest[0]


def refresh_connections(home: Path, rows: ConnectionRows) -> Mapping[str, StoredConnection]:
    """Let the snapshot of connections have what is stored, and return it, deleted ones included.

    Raises:
        ControlStoreUnavailable: the store does not answer; the snapshot stays as it was.
        StorageFailed: the snapshot cannot be written; it stays as it was.
    """
    found: dict[str, StoredConnection] = {}

    def content() -> bytes | None:
        found.update(rows.all())
        return _connections(found.values()) if found else None

    _refresh(connections_path(home), content, _connections(()))
    return found


def _refresh(path: Path, content: Callable[[], bytes | None], empty: bytes) -> None:
    """Write a snapshot if it is not as it should be. One that does not exist is not made for nothing.

    Args:
        path: The snapshot.
        content: Reads the store, and returns what the snapshot should have; None if the store has nothing.
        empty: What it has then.
    """
    try:
        with _alone(path.with_suffix(".lock")):
            wanted = content()
            if wanted is None and not path.exists():
                return
            if _read(path) != (wanted or empty):
                write_durably(path, wanted or empty)
    except OSError as error:
        raise StorageFailed(
            f"{path} cannot be written: {error.strerror or error}",
            fix="make room or give the right to write it; the server tries again every few seconds",
        ) from error


def _connections(found: Iterable[StoredConnection]) -> bytes:
    entries = [
        {"name": each.name, "tenant": each.tenant, "revision": each.revision, "connection": each.content}
        for each in found
        if each.content is not None
    ]
    return orjson.dumps({"connections": entries}, option=orjson.OPT_INDENT_2) + b"\n"


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
