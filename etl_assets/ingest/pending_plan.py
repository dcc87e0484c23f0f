"""The plan of a run that ended after the commit of its rejects and before that of its rows.

This module finds such a plan, and takes its rejects back.

The outcome of a line depends on the whole batch: which of two lines with one event comes first, and which
events the table already has. So the rejects of a batch count only once its rows are committed; until then no
reader uses them. If other lines are validated instead, because a file is missing or the batch is cut
differently, the rejects are removed from the table first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.entries import commit_notes, read_entry
from etl_assets.delta.write.content import KeptRows, StoredFile, content_of, rows_kept
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.delta.write.write_version import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.sources.batch_plan import BatchPlan, plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.delta.table import Table

FILES = "files"
"""Transaction id under which a source's table commits batches of files; the version is the batch id."""
REMEMBERED_COMMITS = 100
"""Number of recent commits that are searched for a plan: compactions may have come after it."""
_TAKEN_BACK = "plan_taken_back"
"""Fact of the commit that takes back the rejects of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPlan:
    """A plan whose rows are not committed.

    Attributes:
        plan: The plan.
        first_version: The version of the exceptions table that has the plan's first rejects. All later
            versions are the plan's as well, or compactions.
    """

    plan: BatchPlan
    first_version: int


def committed_batch(table: Table) -> int:
    """Return the last batch of files in a source's table, from its log, without Spark. -1 if there is
    none.
    """
    snapshot = table.snapshot()
    return -1 if snapshot is None else snapshot.transaction_version(FILES)


def pending_plan(exceptions: Table, table: Table) -> PendingPlan | None:
    """Return the plan of the most recent rejects, if its rows are not committed. Reads the logs only."""
    if exceptions.version() < 0:
        return None
    committed = committed_batch(table)
    return _pending(exceptions, exceptions.version(), committed)


def settled_version(exceptions: Table, table: Table) -> int:
    """Return the newest version of the exceptions table whose rejects all count. -1 if there is none."""
    if exceptions.version() < 0:
        return -1
    committed = committed_batch(table)
    version = exceptions.version()
    pending = _pending(exceptions, version, committed)
    return version if pending is None else pending.first_version - 1


def _pending(exceptions: Table, version: int, committed: int) -> PendingPlan | None:
    found: PendingPlan | None = None
    for note in islice(commit_notes(exceptions.path, version), REMEMBERED_COMMITS):
        facts: Mapping[str, Any] = note.user_metadata.get("facts") or {}
        if _TAKEN_BACK in facts:
            break
        if (plan := plan_of(facts)) is None:
            continue
        if plan.batch_id <= committed:
            break
        found = PendingPlan(plan=plan if found is None else found.plan, first_version=note.version)
    return found


def take_back(
    exceptions: Table, pending: PendingPlan, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS
) -> None:
    """Take the rejects of a pending plan out of the exceptions table, in one commit. No Spark.

    Only the process that ingests may call this, in the domain that leads the source's table. Otherwise
    rejects of a plan that is still carried out are lost.

    Raises:
        CommitConflict: the table changed in the meantime; nothing was written.
        TableBusy: another process is writing the table; nothing was written.
    """
    snapshot = exceptions.snapshot()
    assert snapshot is not None
    entries = (
        read_entry(exceptions.path, version) for version in range(pending.first_version, snapshot.version + 1)
    )
    written = {file.path for entry in entries for file in entry.added}
    removed = tuple(file for file in content_of(snapshot).values() if file.path in written)
    kept = (_before(exceptions.path, file, pending.first_version) for file in removed)
    replacement = Replacement(
        table=exceptions,
        base_version=snapshot.version,
        removed=removed,
        kept=tuple(rows for rows in kept if rows.rows.num_rows),
        facts={_TAKEN_BACK: pending.plan.batch_id},
    )
    replace_contents([replacement], wait_seconds=wait_seconds)


def _before(folder: Path, file: StoredFile, version: int) -> KeptRows:
    """Return the rows of a file that belong to earlier versions: a file of a later compaction has some."""
    import pyarrow.compute as pc

    return rows_kept(folder, file, pc.field("batch_id") < version)
