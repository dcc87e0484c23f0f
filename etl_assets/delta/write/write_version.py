"""One version of a table: written by any writer, verified, durable, and acknowledged where the table is
mirrored.

Every commit is made here: of rows (`commit.py`), of files (`rewrite.py`, `compaction.py`), of records
(`records.py`), of an undo (`replacement.py`). Belongs here: what holds for all of them. Does not belong here:
what is committed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.checkpoint import checkpoint_in_place
from etl_assets.delta.log.durability import sync_commit
from etl_assets.delta.log.entries import LogEntry, entry_path, parse_entry
from etl_assets.delta.log.gate import Access, allows
from etl_assets.delta.log.lasting_cursors import LASTING
from etl_assets.delta.log.log_truncation import truncate_log
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.log.overtaken import expect_one_domain, not_ours
from etl_assets.delta.log.own_commit import expect_last_commit, keep_last_commit
from etl_assets.delta.replicated.replication import WRITE_SETTINGS, make_mirrored
from etl_assets.delta.session import driver_pid, scoped_settings
from etl_assets.delta.write.run_fence import expect_current_run, keep_fence
from etl_assets.errors import CommitConflict, CommitUnverified
from etl_assets.failpoints import Failpoint, failpoint, killed_while_writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.delta.run_token import RunToken
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table


DEFAULT_LOCK_WAIT_SECONDS = 60.0

_WRITE_SETTINGS = {
    # One attempt: Delta would otherwise rebase the commit onto a version that another writer made meanwhile.
    "spark.databricks.delta.maxCommitAttempts": "0",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a commit is made, and under which rights.

    Attributes:
        path: The folder to commit to.
        epoch: The leader's fence epoch; None with one failure domain.
        run: The run that commits; None for work of no run.
    """

    path: Path
    epoch: str | None = None
    run: RunToken | None = None


@contextmanager
def acknowledged(spark: SparkSession | None, table: Table, *, version: int) -> Generator[Place]:
    """Yield the place to commit a version to, then have the commit acknowledged if the table is mirrored.

    Raises:
        CommitConflict: the table has moved past the planned base.
        CommitOverwritten: another program wrote over the last own commit.
        DomainUnavailable: this process works with one domain, and the table has become mirrored.
        Fenced, QuorumUnavailable: it could not be acknowledged; see `mirroring`.
    """
    mirrored = table.replication
    if mirrored is None:
        expect_one_domain(table, table.path, version - 1)
        expect_last_commit(table, version - 1)
        yield Place(table.path, run=table.run)
        return
    make_mirrored(table.name, table.domain)
    planned_in = mirrored.folder_read_last()
    lead = mirrored.lead()
    if lead.version + 1 != version:
        raise moved_on(table, current=lead.version, base=version - 1)
    path = mirrored.folder(lead)
    _expect_folder_of_plan(table, planned_in, path)
    with nullcontext() if spark is None else scoped_settings(spark, WRITE_SETTINGS):
        yield Place(path, str(lead.epoch), table.run)
    mirrored.acknowledge(lead, entry_path(path, version).read_bytes())


def _expect_folder_of_plan(table: Table, planned_in: Path | None, path: Path) -> None:
    """Refuse a commit planned on a folder of this domain that has been rebuilt since.

    The old folder was not the acknowledged one. A log that another program wrote into may lack rows, whose
    offsets would then be assigned again.
    """
    if planned_in is None or planned_in == path or not planned_in.is_relative_to(table.domain.root):
        return
    mirrored = table.replication
    if mirrored is not None:
        mirrored.bind()  # so that the next plan uses the new folder
    raise CommitConflict(
        f"the replica of the table {table.name} in {table.domain.name} was built again in {path} since the"
        " batch was planned",
        fix="run the batch again: it is planned again on the newest version",
        table=table.name,
        planned_in=str(planned_in),
    )


def moved_on(table: Table, *, current: int, base: int) -> CommitConflict:
    """Return the error of a commit whose base is no longer the newest version."""
    return CommitConflict(
        f"the table {table.name} is at version {current}, the batch was planned on {base}",
        fix="run the batch again: it is planned again on the newest version",
        table=table.name,
        version=current,
        base_version=base,
    )


def write_version(
    spark: SparkSession | None, table: Table, version: int, execute: Callable[[Place, str], None]
) -> LogEntry:
    """Write a version by calling `execute`, then verify it and make it durable.

    `execute` gets the place to commit to and the writer's mark. The commit's user metadata must carry that
    mark: the verification recognizes the entry by it.

    Raises:
        LeaseLost: the commit is of a run, and a runner with a higher token has begun; nothing was written.
    """
    with acknowledged(spark, table, version=version) as place:
        failpoint(Failpoint.TABLE_BEFORE_COMMIT, table=table.name)
        expect_current_run(table, place.path, version - 1)
        writer = uuid.uuid4().hex
        with killed_while_writing(
            Failpoint.TABLE_DURING_COMMIT,
            table=table.name,
            folder=place.path,
            driver_pid=None if spark is None else driver_pid(spark),
        ):
            execute(place, writer)
        failpoint(Failpoint.TABLE_AFTER_COMMIT, table=table.name)
        entry, content = _verify(table, place, version, writer)
        keep_fence(table, place.path, entry)
        sync_commit(place.path, entry)
        if table.replication is None:
            keep_last_commit(place.path, version, content)
        failpoint(Failpoint.TABLE_AFTER_SYNC, table=table.name)
    if table.replication is None and (keep := table.domain.keep_log_versions) is not None:
        truncate_log(table.path, version, keep, table=table.name)
    return entry


def put_entry(table: Table, place: Place, snapshot: Snapshot, entry: NewEntry) -> None:
    """Put an entry that names new data files after a snapshot, and a checkpoint where one is due."""
    # An existing entry is another program's; the verification of the commit reports it.
    entry.put(place.path, stamped=snapshot.has_commit_timestamps)
    version = entry.base_version + 1
    # Replicas get their checkpoints from the reconciliation of replicas, of acknowledged versions only.
    is_due = version % snapshot.checkpoint_interval == 0
    if table.replication is None and is_due and allows(snapshot, Access.APPEND):
        checkpoint_in_place(place.path, version)


def commit_metadata(
    place: Place,
    writer: str,
    facts: Mapping[str, Any],
    *,
    cursors: Mapping[str, int] = MappingProxyType({}),
    last: bool = False,
) -> dict[str, Any]:
    """Return the user metadata of a commit: its writer, epoch, fencing token, cursors and metrics.

    Args:
        place: Where the commit is made.
        writer: The writer's mark.
        facts: Metrics to keep with the commit.
        cursors: Cursors to keep in it as text. They are read from it until a later commit says `last`.
        last: From this commit on, all cursors of the table are transaction ids.
    """
    epoch = {} if place.epoch is None else {"epoch": place.epoch}
    lasting = {LASTING: True} if last else {}
    run = {} if place.run is None else {"run": {"pipeline": place.run.pipeline, "token": place.run.token}}
    return {"writer": writer, **epoch, **run, **lasting, "cursors": dict(cursors), "facts": dict(facts)}


def write_settings(
    place: Place, writer: str, cursors: Mapping[str, int], facts: Mapping[str, Any]
) -> dict[str, str]:
    """Return the Spark settings of every commit by Delta's writer: one attempt, and the commit's metadata."""
    metadata = commit_metadata(place, writer, facts, cursors=cursors)
    return {
        **_WRITE_SETTINGS,
        "spark.databricks.delta.commitInfo.userMetadata": json.dumps(metadata, separators=(",", ":")),
    }


def _verify(table: Table, place: Place, version: int, writer: str) -> tuple[LogEntry, bytes]:
    """Return the log entry of the commit just made, if it is this writer's, and its content.

    On some versions of Delta a MERGE without changes makes no commit. Here it does, because of its
    transaction id, so that a missing entry is an error.
    """
    try:
        content = entry_path(place.path, version).read_bytes()
    except FileNotFoundError as error:
        if not place.path.is_dir() or entry_path(place.path, version).exists():
            raise  # The root was away and may be back. A repetition finds out whether the commit counts.
        raise CommitUnverified(
            f"the table {table.name} has no version {version} after its commit",
            fix="look for another program that writes or cleans this table, then run the batch again",
            table=table.name,
            version=version,
        ) from error
    entry = parse_entry(version, content)
    if entry.user_metadata.get("writer") != writer:
        raise not_ours(table, place.epoch, entry)
    return entry, content
