"""Writing a table: under its lock, and with a named error for each refusal of the file system under its root.

Belongs here: the error that a caller of a commit, an effect or a replay gets for a disk that is full,
read-only or not mounted, and for a data file that is missing or damaged. Does not belong here: the lock
itself (`lock.py`), and the content of a write (`commit.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.write.lock import writer_lock
from etl_assets.errors import EtlAssetsError, FilesGone, ReplicaCorrupt, StorageFailed

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

_FIXES = {
    errno.ENOSPC: "free space there, then run it again; nothing that was acknowledged is lost",
    errno.EDQUOT: "free space there or raise the quota, then run it again; nothing that was acknowledged is"
    " lost",
    errno.EROFS: "mount it writable again; the kernel makes a disk read-only that fails (`dmesg`)",
    errno.EACCES: "let this user read and write there",
    errno.EPERM: "let this user read and write there",
}
_LOST = {errno.ENOENT, errno.EBADMSG}


@contextmanager
def writing(table: Table, *, wait_seconds: float, driver_pid: int | None) -> Generator[None]:
    """Hold a table's writer lock, see `writer_lock`, and name its storage errors, see `storage_named`."""
    with (
        storage_named(table),
        writer_lock(table.lock_path, table=table.name, wait_seconds=wait_seconds, driver_pid=driver_pid),
    ):
        yield


@contextmanager
def storage_named(table: Table) -> Generator[None]:
    """Turn an `OSError` from under the root of a table's domain into a named error; others pass unchanged.

    Raises:
        StorageFailed: the root is full, read-only or missing, or refuses for another reason.
        ReplicaCorrupt: a data file of a mirrored table is missing or damaged.
        FilesGone: a data file of a table with one domain is missing or damaged.
    """
    try:
        yield
    except OSError as error:
        if (named := _named(table, error)) is None:
            raise
        raise named from error


def _named(table: Table, error: OSError) -> EtlAssetsError | None:
    # A connection that failed is no error of a file system, nor is an error without a number.
    if isinstance(error, ConnectionError | TimeoutError) or error.errno is None:
        return None
    root, name = table.domain.root, error.filename
    file = Path(name) if isinstance(name, str) else None
    if file is not None and not file.is_relative_to(root):
        return None
    if file is not None and error.errno in _LOST and _is_lost(table, file, error.errno):
        return _lost(table, file)
    where = root if file is None else file
    return StorageFailed(
        f"the table {table.name} cannot be written in {table.domain.name}: {where}:"
        f" {error.strerror or error}",
        fix=_FIXES.get(
            error.errno,
            f"see that its disk is mounted and whole (`etl-assets domains probe {table.domain.name}`), then"
            " run it again",
        ),
        table=table.name,
        domain=table.domain.name,
        file=str(where),
    )


def _is_lost(table: Table, file: Path, number: int) -> bool:
    """Return whether the table's folder exists and the file is missing or damaged.

    A root that was away for a moment has lost nothing.
    """
    folder = table.domain.root / "tables" / table.name
    try:
        return (
            file.is_relative_to(folder) and folder.is_dir() and (number != errno.ENOENT or not file.exists())
        )
    except OSError:
        return False


def _lost(table: Table, file: Path) -> EtlAssetsError:
    what = f"{file}, a file of the table {table.name}, is gone or damaged"
    if not table.domain.sites:
        return FilesGone(
            what,
            fix="look for what removed it; restore it from a backup",
            table=table.name,
            missing=[str(file)],
        )
    return ReplicaCorrupt(
        f"{what} in {table.domain.name}",
        fix=f"`etl-assets tables relocate {table.name} --to` another domain, then `etl-assets tables repair"
        f" {table.name}`",
        table=table.name,
        domain=table.domain.name,
    )
