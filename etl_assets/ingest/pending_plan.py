"""The plan of a run that ended between what it refused and its rows: found, and taken back where it is not carried out.

What a batch refuses is judged by the whole batch: which of two lines of one event comes first, and what stands in the
table. So it counts only once the batch's rows are committed. Until then nobody reads it, and if other lines are judged
instead, because a file is gone or the batch is cut in another way, it leaves the table again before they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from etl_assets.delta.commit import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.delta.content import KeptRows, StoredFile, content_of, rows_kept
from etl_assets.delta.log import commit_notes, read_entry
from etl_assets.delta.replacement import Replacement, replace_contents
from etl_assets.sources.batch_plan import BatchPlan, plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.delta.table import Table

FILES = "files"
"""Transaction id under which raw_events' batches of files are committed; the version is the batch id."""
REMEMBERED_COMMITS = 100
"""How many commits back a plan is looked for: compactions may have come after it."""
_TAKEN_BACK = "plan_taken_back"
"""Fact of the commit that takes back what a plan refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPlan:
    """A plan whose rows are not committed.

    Attributes:
        plan: The plan.
        first_version: The version of the exceptions table that has what it refused; all after it are the plan's as well, or
            compactions.
    """

    plan: BatchPlan
    first_version: int


def committed_batch(table: Table) -> int:
    """The last batch of files in raw_events, from its log: no Spark. -1 for none."""
    snapshot = table.snapshot()
    return -1 if snapshot is None else snapshot.transaction_version(FILES)


def pending_plan(exceptions: Table, raw_events: Table) -> PendingPlan | None:
    """The plan that what was refused last belongs to, if its rows are not committed. From the logs."""
    committed = committed_batch(raw_events)
    return _pending(exceptions, exceptions.version(), committed)


def settled_version(exceptions: Table, raw_events: Table) -> int:
    """The newest version of the exceptions table of which all that was refused counts. -1 for none."""
    committed = committed_batch(raw_events)
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
    """Take what a pending plan refused out of the exceptions table, in one commit. No Spark.

    To be called by the one process that ingests, and where raw_events is led: what it refused is lost otherwise.

    Raises:
        CommitConflict: the table moved on meanwhile; nothing was changed.
        TableBusy: it is being written; nothing was changed.
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
    """The rows of a file that are of earlier versions: of one that a compaction has made since."""
    import pyarrow.compute as pc

    return rows_kept(folder, file, pc.field("batch_id") < version)
