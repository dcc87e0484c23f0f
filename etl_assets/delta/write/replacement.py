"""The commit of an undo: files are removed and restored in one computed log entry, without Spark.

Belongs here: carrying out an undo. Does not belong here: which files are removed and restored
(`undo/plan.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.entries import UNDO
from etl_assets.delta.log.gate import Access, expect
from etl_assets.delta.log.lasting_cursors import lasting_cursors
from etl_assets.delta.log.new_entry import NewEntry, missing_files
from etl_assets.delta.log.own_commit import expect_last_commit
from etl_assets.delta.write.content import KeptRows, StoredFile, content_of
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    commit_metadata,
    moved_on,
    write_version,
)
from etl_assets.delta.write.writing import writing
from etl_assets.errors import FilesGone

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.delta.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The commit of an undo to one table: files to remove and to restore, without rows to evaluate.

    Attributes:
        table: The table.
        base_version: Its version that the undo was planned on; the commit becomes the next one.
        removed: Files to remove.
        restored: Files of an older version to restore.
        kept: Rows of removed files that stay in the table.
        cursors: Cursors to set; -1 sets a cursor back.
        transactions: Other transaction ids to set.
        undo: Description of the undo, kept with the commit; empty if no operator asked for one.
        facts: Metrics to keep with the commit.
    """

    table: Table
    base_version: int
    removed: tuple[StoredFile, ...] = ()
    restored: tuple[StoredFile, ...] = ()
    kept: tuple[KeptRows, ...] = ()
    cursors: Mapping[str, int] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    undo: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def undo_access(table: Table) -> Access:
    """Return the access that an undo of a table is."""
    return Access.RESTORE if table.contract is None else Access.UNDO


def remove_all_rows(
    table: Table, base_version: int, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS
) -> int:
    """Commit that a table has no rows, and return its new version. Uses no Spark.

    Raises:
        CommitConflict, TableBusy, CommitOverwritten, FeatureUnsupported: as `replace_contents` says.
    """
    snapshot = table.snapshot(base_version)
    removed = () if snapshot is None else tuple(content_of(snapshot).values())
    replacement = Replacement(table=table, base_version=base_version, removed=removed)
    return replace_contents([replacement], wait_seconds=wait_seconds)[0]


def replace_contents(
    replacements: Sequence[Replacement], *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS
) -> list[int]:
    """Commit an undo to some tables, in this order, and make each commit durable. Uses no Spark.

    All of their locks are held meanwhile, so that no run reads one table before the undo and another after
    it.

    Returns:
        The new version of each table.

    Raises:
        CommitConflict: one of the tables has moved past its base version; nothing was written. Plan again.
        TableBusy: another process held a lock for too long; nothing was written.
        CommitOverwritten: another program wrote over a table's last own commit; nothing was written.
        FeatureUnsupported: a table uses a feature of Delta that this does not know; nothing was written.
        FilesGone: files to be restored are missing.
    """
    with ExitStack() as locks:
        # Every process locks several tables in this order, so that two of them do not wait for each other.
        for each in sorted(replacements, key=lambda each: each.table.name):
            locks.enter_context(writing(each.table, wait_seconds=wait_seconds, driver_pid=None))
        for each in replacements:
            if (current := each.table.version()) != each.base_version:
                raise moved_on(each.table, current=current, base=each.base_version)
            if each.table.replication is None:
                expect_last_commit(each.table, each.base_version)
            if (base := each.table.snapshot(each.base_version)) is not None:
                expect(each.table.name, base, undo_access(each.table))
        return [_replace_content(each) for each in replacements]


def _replace_content(replacement: Replacement) -> int:
    version = replacement.base_version + 1
    return write_version(None, replacement.table, version, partial(_put_undo, replacement)).version


def _put_undo(replacement: Replacement, place: Place, writer: str) -> None:
    restored = _bring_back(replacement, place.path)
    kept = tuple(rows.write(place.path) for rows in replacement.kept)
    added = (*restored, *kept)
    entry = NewEntry(
        operation="RESTORE",
        base_version=replacement.base_version,
        metrics={"numRemovedFiles": len(replacement.removed), "numRestoredFiles": len(added)},
        removed=replacement.removed,
        added=added,
        transactions={
            **replacement.transactions,
            **lasting_cursors(replacement.table, replacement.base_version, replacement.cursors),
        },
        user_metadata={
            **commit_metadata(place, writer, replacement.facts, cursors=replacement.cursors, last=True),
            **({UNDO: dict(replacement.undo)} if replacement.undo else {}),
        },
    )
    # An existing entry is another program's; the verification of the commit reports it.
    snapshot = replacement.table.snapshot(replacement.base_version)
    entry.put(place.path, stamped=snapshot is not None and snapshot.has_commit_timestamps)


def _bring_back(replacement: Replacement, folder: Path) -> tuple[StoredFile, ...]:
    """Restore the files under new names, which no vacuum under way knows.

    Raises:
        FilesGone: one of the files is missing or incomplete.
    """
    missing = missing_files(folder, replacement.restored)
    if not missing:
        try:
            return tuple(file.bring_back(folder) for file in replacement.restored)
        except FileNotFoundError as error:
            missing = [str(error.filename)]  # a vacuum has just removed it
    raise FilesGone(
        f"{len(missing)} files of that version of {replacement.table.name} are gone from {folder}:"
        f" {missing[0]}",
        fix="choose a newer version; files that are out of use are removed when a table is vacuumed",
        table=replacement.table.name,
        missing=missing,
    )
