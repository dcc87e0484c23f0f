"""Writing a table under its lock, and a named error for each refusal of the file system under its root.

Belongs here: the error that a caller of a commit, a delivery, an effect or a replay gets for a disk that is
full, read-only or not mounted, and for a data file that is missing or damaged. Does not belong here: the lock
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
    file = Path(error.filename) if isinstance(error.filename, str) else None
    if (place := _place_of(table, file)) is None:
        return None
    domain, root = place
    if file is not None and error.errno in _LOST and _is_lost(root / "tables", file, error.errno):
        # A commit also reads the tables that its rows are made of.
        name = file.relative_to(root / "tables").parts[0]
        return _lost(name, file, domain, is_mirrored=bool(table.domain.sites))
    where = root if file is None else file
    return StorageFailed(
        f"the storage of the table {table.name} in {domain} failed: {where}: {error.strerror or error}",
        fix=_FIXES.get(
            error.errno,
            f"see that its disk is mounted and whole (`etl-assets domains probe {domain}`), then run it"
            " again",
        ),
        table=table.name,
        domain=domain,
        file=str(where),
    )


def _place_of(table: Table, file: Path | None) -> tuple[str, Path] | None:
    """Return the name and the root of the domain that has a file; None if it is under no root.

    A table may be read from the replica of another domain.
    """
    own = (table.domain.name, table.domain.root)
    if file is None or file.is_relative_to(own[1]):
        return own
    others = ((site.name, Path(site.root)) for site in table.domain.sites)
    return next((each for each in others if file.is_relative_to(each[1])), None)


def _is_lost(tables: Path, file: Path, number: int) -> bool:
    """Return whether the folder of the file's table exists and the file is missing or damaged.

    A root that was away for a moment has lost nothing.
    """
    try:
        if not file.is_relative_to(tables) or not (tables / file.relative_to(tables).parts[0]).is_dir():
            return False
        return number != errno.ENOENT or not file.exists()
    except OSError:
        return False


def _lost(table: str, file: Path, domain: str, *, is_mirrored: bool) -> EtlAssetsError:
    what = f"{file}, a file of the table {table}, is gone or damaged"
    if not is_mirrored:
        return FilesGone(
            what,
            fix="look for what removed it; restore it from a backup",
            table=table,
            missing=[str(file)],
        )
    return ReplicaCorrupt(
        f"{what} in {domain}",
        fix=f"`etl-assets tables relocate {table} --to` another domain, then `etl-assets tables repair"
        f" {table}`",
        table=table,
        domain=domain,
    )
