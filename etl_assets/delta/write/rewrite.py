"""Copy-on-write without Delta's writer: files are removed and added in one computed log entry.

Does the work of Delta's MERGE for a caller that finds the files and computes the rows itself. See
`append.py`, which only adds files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.gate import Access
from etl_assets.delta.log.lasting_cursors import lasting_cursors
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.write.append import can_write_files, write_files
from etl_assets.delta.write.commit import Commit, commit_report, committed_before
from etl_assets.delta.write.content import StoredFile
from etl_assets.delta.write.write import Transaction
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    commit_metadata,
    moved_on,
    put_entry,
    write_version,
)
from etl_assets.delta.write.writing import writing

if TYPE_CHECKING:
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Result of a rewrite's `write`: the files that the new ones replace, and metrics in rows."""

    removed: tuple[StoredFile, ...]
    source_rows: int
    inserted: int
    updated: int
    deleted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A rewrite to commit.

    Attributes:
        base_version: The table's version it was planned on; the commit becomes the next one.
        write: Writes Parquet files with the contract's columns into a new folder, as for `write_files`.
            Called once, with the table's lock held.
        transaction: Identity of the write, as in `Write`.
        cursors: Progress on the inputs that this commit consumes.
        transactions: Other transaction ids to set with this commit, as in `Write`.
        facts: Facts to keep with the commit.
    """

    base_version: int
    write: Callable[[Path], Rewritten]
    transaction: Transaction | None = None
    cursors: Mapping[str, int] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def can_rewrite(table: Table, snapshot: Snapshot) -> bool:
    """Return whether files of a table can be replaced here. If not, Delta does it or reports the reason."""
    return can_write_files(table, snapshot, Access.REPLACE)


def commit_rewrite(
    table: Table, rewrite: Rewrite, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS
) -> Commit:
    """Commit a rewrite as the version after its base and make it durable, as `commit` does.

    `can_rewrite` must hold for the table.

    Raises:
        CommitConflict: the table has moved past `base_version` by another write; nothing was written. Plan
            again.
        TableBusy: another process held the table's lock for too long; nothing was written.
        CommitUnverified: the log's entry is not the one that was to be written.
    """
    # No JVM commits here: files of Spark's workers count only by the entry, which this process puts.
    with writing(table, wait_seconds=wait_seconds, driver_pid=None):
        if (found := committed_before(table, rewrite.transaction)) is not None:
            return found
        if (current := table.version()) != rewrite.base_version:
            raise moved_on(table, current=current, base=rewrite.base_version)
        execute = partial(_execute, table, rewrite)
        return commit_report(table, write_version(None, table, rewrite.base_version + 1, execute))


def _execute(table: Table, rewrite: Rewrite, place: Place, writer: str) -> None:
    snapshot = table.snapshot(rewrite.base_version)
    assert snapshot is not None  # without the snapshot there would be no base
    written: list[Rewritten] = []

    def write(folder: Path) -> int:
        written.append(rewrite.write(folder))
        return 0

    new = write_files(table, place.path, snapshot, write)
    (done,) = written
    stay = sum(file.rows for file in new.files) - done.inserted
    wanted = sum(file.rows for file in done.removed) - done.deleted
    if stay != wanted and all(file.tells_rows for file in done.removed):
        raise RuntimeError(f"{wanted} rows of {table.name} became {stay} when rewritten")
    transaction = rewrite.transaction
    entry = NewEntry(
        operation="MERGE",
        base_version=rewrite.base_version,
        metrics={
            "numSourceRows": done.source_rows,
            "numTargetRowsInserted": done.inserted,
            "numTargetRowsUpdated": done.updated,
            "numTargetRowsDeleted": done.deleted,
            "numTargetRowsCopied": sum(file.rows for file in new.files) - done.inserted - done.updated,
            "numOutputRows": sum(file.rows for file in new.files),
            "numTargetFilesAdded": len(new.files),
            "numTargetFilesRemoved": len(done.removed),
        },
        removed=done.removed,
        added=new.files,
        transactions={
            **lasting_cursors(table, rewrite.base_version, rewrite.cursors),
            **rewrite.transactions,
            **({} if transaction is None else {transaction.app_id: transaction.version}),
        },
        user_metadata=commit_metadata(place, writer, rewrite.facts, last=True),
    )
    put_entry(table, place, snapshot, entry)
