"""Commits: rows and cursors go into a table in one Delta commit, which is durable before it is reported.

Every write is an append, an upsert or a replacement of declared rows on a pinned base version. An upsert into
an empty table is carried out as an append. A commit whose transaction id the table already has does nothing
and says so. A commit that finds the table past its planned base fails before it writes. With several failure
domains a commit counts once it is acknowledged, that is, held by a majority.

Belongs here: what a write of rows is, and by which way it is carried out. Does not belong here: the commit
itself (`write_version.py`), and commits of files, of records and of an undo.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.sql_text import delta_table, identifier
from etl_assets.delta.log.entries import LogEntry
from etl_assets.delta.log.lasting_cursors import lasting_cursors
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.read.rows import DAY_COLUMN, After, files_with, known_files, whole_days
from etl_assets.delta.session import driver_pid, scoped_settings
from etl_assets.delta.write.append import can_append, rows_as_files, write_files
from etl_assets.delta.write.partition_files import few_rows_of_many_partitions
from etl_assets.delta.write.upsert import UpsertSpec, check_columns, insert_sql, merge_sql
from etl_assets.delta.write.write import ALL_ROWS, DeferredRows, Transaction, Write
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    commit_metadata,
    moved_on,
    put_entry,
    write_settings,
    write_version,
)
from etl_assets.delta.write.writing import writing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Result of a write, from the commit's own metrics. Counts are rows.

    `repeated` means that the transaction had been committed before. Then nothing was written now, `version`
    is the table's newest version, and all counts are 0.
    """

    table: str
    version: int
    repeated: bool
    source_rows: int
    inserted: int
    updated: int
    net_rows_by_partition: Mapping[str, int]
    facts: Mapping[str, Any]
    deleted: int = 0

    @property
    def ignored(self) -> int:
        """Rows that the table already had, the same or newer."""
        return self.source_rows - self.inserted - self.updated - self.deleted


def commit(table: Table, write: Write, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS) -> Commit:
    """Commit a write as the version after its base and make it durable.

    Running the same write twice, in this process or another, commits once. The second one is reported as
    repeated if it has a transaction of its own, and is a `CommitConflict` if not.

    Raises:
        CommitConflict: the table has moved past `base_version` by another write; nothing was written. Plan
            again.
        TableBusy: another process held the table's lock for too long; nothing was written.
        CommitUnverified: the log's entry is not the one that was to be written.
    """
    write = _without_deferred_rows(table, write)
    spark = None if isinstance(write.rows, DeferredRows) else write.rows.sparkSession
    version = write.base_version + 1
    driver = None if spark is None else driver_pid(spark)
    with writing(table, wait_seconds=wait_seconds, driver_pid=driver):
        if (found := committed_before(table, write.transaction)) is not None:
            return found
        if (current := table.version()) != write.base_version:
            raise moved_on(table, current=current, base=write.base_version)
        entry = write_version(spark, table, version, partial(_execute, spark, table, write))
        done = commit_report(table, entry, write.upsert, write.facts)
        wanted = {**write.cursors, **write.transactions}
        if all(entry.transactions.get(name) == cursor for name, cursor in wanted.items()):
            return done
        # Delta's own writer takes one transaction id: the others would be forgotten with this entry. A
        # process that dies here leaves positions that lag.
        return replace(done, version=_make_cursors_last(table, version, write.transactions))


def _make_cursors_last(table: Table, base_version: int, transactions: Mapping[str, int]) -> int:
    """Commit the cursors that are in user metadata only as transaction ids, with others, and nothing else.

    Returns:
        The table's new version.
    """

    def execute(place: Place, writer: str) -> None:
        entry = NewEntry(
            operation="SET TRANSACTIONS",
            base_version=base_version,
            metrics={},
            transactions={**lasting_cursors(table, base_version, {}), **transactions},
            user_metadata=commit_metadata(place, writer, {}, last=True),
            changes_rows=False,
        )
        snapshot = table.snapshot(base_version)
        assert snapshot is not None  # this process has just committed that version
        put_entry(table, place, snapshot, entry)

    return write_version(None, table, base_version + 1, execute).version


def committed_before(table: Table, transaction: Transaction | None) -> Commit | None:
    """Return the report of a transaction that the table already has, None if there is no such transaction."""
    if transaction is None:
        return None
    snapshot = table.snapshot()
    if snapshot is None or snapshot.transaction_version(transaction.app_id) < transaction.version:
        return None
    return Commit(
        table=table.name,
        version=snapshot.version,
        repeated=True,
        source_rows=0,
        inserted=0,
        updated=0,
        net_rows_by_partition={},
        facts={},
    )


def _without_deferred_rows(table: Table, write: Write) -> Write:
    """Return a write with a frame if Delta's writer has to write it. The base version decides, which is
    fixed.
    """
    if not isinstance(write.rows, DeferredRows):
        return write
    snapshot = table.snapshot(write.base_version)
    return write if _appends(table, snapshot, write) else replace(write, rows=write.rows.frame())


def _appends(table: Table, snapshot: Snapshot | None, write: Write) -> bool:
    """Return whether a write is an append of files without Delta's writer, where no stored row changes."""
    return (
        write.replaces is None
        and can_append(table, snapshot, write.rows.schema)
        and (not _meets_rows(snapshot, write) or _may_leave_known_rows_out(write))
    )


def _execute(spark: SparkSession | None, table: Table, write: Write, place: Place, writer: str) -> None:
    # With a transaction id, Delta commits even if no row is left to write, which keeps the cursors. A write
    # without one gets its own version as an id, which no commit up to its base can have.
    transaction = write.transaction or Transaction(app_id="etl-assets", version=write.base_version + 1)
    snapshot = table.snapshot(write.base_version)
    if not _meets_rows(snapshot, write):
        write = _without_deletes(write)
    if snapshot is not None and _appends(table, snapshot, write):
        # 1. Append files without Delta's writer.
        new = write_files(table, place.path, snapshot, _files(table, snapshot, write))
        entry = NewEntry(
            operation="WRITE",
            base_version=write.base_version,
            metrics=new.metrics,
            added=new.files,
            transactions={
                **lasting_cursors(table, write.base_version, write.cursors),
                **write.transactions,
                transaction.app_id: transaction.version,
            },
            user_metadata=commit_metadata(place, writer, write.facts, last=True),
        )
        put_entry(table, place, snapshot, entry)
        return
    # 2. Otherwise Delta writes: a replacement, an upsert of stored rows, or a table that `can_append`
    # rejects.
    assert spark is not None  # `_without_deferred_rows` has made the frame
    assert not isinstance(write.rows, DeferredRows)
    settings = {
        **write_settings(place, writer, write.cursors, write.facts),
        "spark.databricks.delta.write.txnAppId": transaction.app_id,
        "spark.databricks.delta.write.txnVersion": str(transaction.version),
    }
    if write.deterministic:
        settings["spark.databricks.delta.merge.materializeSource"] = "none"
    with scoped_settings(spark, settings):
        if write.replaces is not None:
            _replace(place.path, write.rows, write.replaces)
        elif write.upsert is None:
            write.rows.write.format("delta").mode("append").save(str(place.path))
        else:
            _upsert(spark, table, place.path, write, write.rows, meets_rows=_meets_rows(snapshot, write))


def _without_deletes(write: Write) -> Write:
    """Return a write that meets no row of the table without the rows that delete one."""
    if write.upsert is None or (flag := write.upsert.deleted_by) is None:
        return write
    assert not isinstance(write.rows, DeferredRows)  # they are appended
    rows = write.rows.where(f"NOT {identifier(flag)}").drop(flag)
    return replace(write, rows=rows, upsert=replace(write.upsert, deleted_by=None))


def _files(table: Table, snapshot: Snapshot, write: Write) -> Callable[[Path], int]:
    """Return the function that writes the rows as files for an append, without the rows that the table has.

    It is `write.files` if given, otherwise a write by Spark.
    """
    meets_rows = _meets_rows(snapshot, write)
    if (files := write.files) is not None:
        days, within = _days(write), write.known_within
        held = known_files(snapshot, table.path, days, within) if meets_rows else {}
        return lambda folder: files(folder, held)
    assert table.contract is not None  # `can_append` is false without a contract
    assert not isinstance(write.rows, DeferredRows)  # they have `files`
    known = _known_keys(write.rows.sparkSession, table, write) if meets_rows else None
    few_of_many = few_rows_of_many_partitions(write, table.contract)
    return partial(rows_as_files, write.rows, snapshot, table.contract, known=known, few_of_many=few_of_many)


def _may_leave_known_rows_out(write: Write) -> bool:
    """Return whether an upsert amounts to an append of the rows with new keys.

    The stored keys are searched in a few known days, or in the whole table.
    """
    upsert = write.upsert
    if upsert is None or not upsert.insert_only:
        return False
    if not upsert.partition_bound:
        return write.files is None and not upsert.nullable_keys
    return upsert.delta_partition == DAY_COLUMN and write.partitions is not None


def _known_keys(spark: SparkSession, table: Table, write: Write) -> DataFrame:
    """Return the table's keys, in the days of a write if it has some.

    They are from the files that may hold the write's keys.
    """
    assert write.upsert is not None
    if not write.upsert.partition_bound:
        rows = table.read(spark, write.base_version, None, write.known_within)
        return rows.select(*write.upsert.merge_key)
    columns = dict.fromkeys((*write.upsert.merge_key, DAY_COLUMN))
    rows = table.read(spark, write.base_version, _days(write), write.known_within)
    return rows.select(*columns)


def _days(write: Write) -> After:
    return whole_days(dt.date.fromisoformat(day) for day in write.partitions or ())


def _replace(path: Path, rows: DataFrame, condition: str) -> None:
    """Replace the rows that meet a condition, in one commit. Delta refuses new rows that do not meet it."""
    writer = rows.write.format("delta").mode("overwrite")
    # Set whatever the session's mode is: in dynamic mode only the partitions with new rows would be emptied.
    writer = writer.option("partitionOverwriteMode", "static")
    if condition != ALL_ROWS:
        writer = writer.option("replaceWhere", condition)
    writer.save(str(path))


def _upsert(
    spark: SparkSession, table: Table, path: Path, write: Write, rows: DataFrame, *, meets_rows: bool
) -> None:
    upsert, columns = write.upsert, rows.columns
    assert upsert is not None
    check_columns(upsert.named, columns, table=table.name)
    view, target = f"upsert_{uuid.uuid4().hex}", delta_table(path)
    if meets_rows:
        statement = merge_sql(
            upsert,
            target=target,
            source=view,
            columns=columns,
            partitions=write.partitions,
            lies_in=write.lies_in,
            replace=write.replace,
            # `batch_id` is the commit a row is from, in tables with a contract. Users may name a column of
            # theirs so.
            not_compared=() if table.contract is None else ("batch_id",),
        )
    else:
        statement = insert_sql(target=target, source=view, columns=columns)
    rows.createOrReplaceTempView(view)
    try:
        spark.sql(statement)
    finally:
        spark.catalog.dropTempView(view)


def _meets_rows(snapshot: Snapshot | None, write: Write) -> bool:
    """Return whether an upsert may meet rows in its partitions and ranges, by file statistics.

    This costs far less than the merge itself.
    """
    upsert = write.upsert
    if snapshot is None or upsert is None:
        return False
    column = upsert.delta_partition
    if not upsert.partition_bound and write.known_within is not None:
        return any(files_with(snapshot, None, write.known_within))
    if column is not None and upsert.partition_bound and write.lies_in is not None:
        return snapshot.may_have_rows_in(column, write.lies_in)
    if column is None or not upsert.partition_bound or write.partitions is None:
        return snapshot.may_have_rows()
    if not snapshot.may_have_rows(column, write.partitions):
        return False
    if write.known_within is None or column != DAY_COLUMN:
        return True
    return any(files_with(snapshot, _days(write), write.known_within))


def commit_report(
    table: Table,
    entry: LogEntry,
    upsert: UpsertSpec | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Commit:
    """Return the result of a commit, read from its entry."""
    appended = entry.operation == "WRITE"
    inserted = entry.metric("numOutputRows" if appended else "numTargetRowsInserted")
    column = None if upsert is None else upsert.delta_partition
    if column is None and table.contract is not None and table.contract.delta_partition:
        column = table.contract.delta_partition[0]
    return Commit(
        table=table.name,
        version=entry.version,
        repeated=False,
        source_rows=max(inserted, entry.metric("numSourceRows")),
        inserted=inserted,
        updated=entry.metric("numTargetRowsUpdated"),
        deleted=entry.metric("numTargetRowsDeleted"),
        net_rows_by_partition={} if column is None else entry.net_rows_by(column),
        facts=facts,
    )
