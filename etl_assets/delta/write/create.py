"""Creation of a table that does not exist yet: from its contract, or with the columns of a frame."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from etl_assets.contracts.column_types import DecimalType, ScalarType
from etl_assets.contracts.sql_text import delta_table
from etl_assets.delta.log.durability import sync_commit
from etl_assets.delta.log.entries import read_entry
from etl_assets.delta.log.new_entry import FirstEntry
from etl_assets.delta.replicated.replication import TABLE_PROPERTIES
from etl_assets.delta.session import driver_pid
from etl_assets.delta.write.run_fence import expect_current_run
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    acknowledged,
    commit_metadata,
    moved_on,
)
from etl_assets.delta.write.writing import writing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.contracts.columns import Column, TableContract
    from etl_assets.delta.table import Table

_PROGRESS = ("offset", "raw_offset", "batch_id", "_offset", "_batch_id")
"""Columns by which reads find the rows of a batch."""
_UNBOUNDED = ("BOOLEAN", "DOUBLE")
"""Types whose bounds do not cover every value: Delta's writer keeps none of booleans, and NaN is in no
bounds.
"""


def ensure_table(table: Table, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS) -> int:
    """Create a contract's table if it does not exist, and return its newest version.

    Uses no Spark: the contract determines what CREATE TABLE puts into the log, and in a fresh process Delta
    takes seconds for it. A table without contract is left as it is.

    Raises:
        ContractError: Spark SQL cannot name its folder.
        CommitConflict: another machine created it at the same moment. Plan again.
    """
    if (version := table.version()) >= 0:
        return version
    if table.contract is None:
        return -1
    delta_table(table.path)  # refused here rather than by the first statement that names a table with rows
    with writing(table, wait_seconds=wait_seconds, driver_pid=None):
        if table.version() < 0:
            with acknowledged(None, table, version=0) as place:
                expect_current_run(table, place.path, -1)
                properties = properties_of(table.contract, mirrored=table.replication is not None)
                metadata = commit_metadata(place, uuid.uuid4().hex, {})
                entry = FirstEntry(contract=table.contract, properties=properties, user_metadata=metadata)
                if not entry.put(place.path):
                    # A writer on another machine put one. It has not been verified, so it is not acknowledged
                    # as ours.
                    raise moved_on(table, current=0, base=-1)
                sync_commit(place.path, read_entry(place.path, 0))
        return table.version()


def base_of(table: Table, seen: int, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS) -> int:
    """Return the version that a step builds on: the one it saw, or 0 after creating the table if it saw none.

    A step reads the table's version before its cursors. A later commit that the step has not taken into
    account, for instance an undo, is then a conflict.
    """
    if seen >= 0:
        return seen
    ensure_table(table, wait_seconds=wait_seconds)
    return 0


def create_like(
    spark: SparkSession,
    table: Table,
    rows: DataFrame,
    *,
    delta_partition: str | None,
    wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS,
) -> int:
    """Create a table without contract from a frame's columns if it does not exist.

    Returns:
        The table's newest version.
    """
    if (version := table.version()) >= 0:
        return version
    with writing(table, wait_seconds=wait_seconds, driver_pid=driver_pid(spark)):
        if table.version() < 0:
            writer = rows.limit(0).write.format("delta").mode("append")
            if delta_partition is not None:
                writer = writer.partitionBy(delta_partition)
            for name, value in TABLE_PROPERTIES.items() if table.replication is not None else ():
                writer = writer.option(name, value)
            with acknowledged(spark, table, version=0) as place:
                writer.save(str(place.path))
                sync_commit(place.path, read_entry(place.path, 0))
        return table.version()


def properties_of(contract: TableContract, *, mirrored: bool) -> dict[str, str]:
    """Return the properties of a table: file statistics of the columns that reads filter by.

    Statistics of other columns, long texts above all, have a cost and no use. A column that Delta's writer
    keeps no bounds of is not listed: delta-rs would take its bounds for null (`statistics.py`).
    """
    ordering = () if contract.ordering is None else (contract.ordering,)
    wanted = (*contract.merge_key, *ordering, *_PROGRESS)
    bounded = {column.name for column in contract.columns if _has_bounds(column)}
    names = dict.fromkeys(name for name in wanted if name in bounded)
    return {"delta.dataSkippingStatsColumns": ",".join(names)} | (TABLE_PROPERTIES if mirrored else {})


def _has_bounds(column: Column) -> bool:
    return isinstance(column.parsed_type, ScalarType | DecimalType) and column.type not in _UNBOUNDED
