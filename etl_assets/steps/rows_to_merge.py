"""How staged rows of a pipeline's table are merged: by which keys, into which files, with which columns.

Belongs here: what every load of a declared table needs. Does not belong here: staging (`staged_load.py`), and
the order of the commits (`load_table.py`, `ingest/direct_batch.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.delta.write.contract_columns import stored_columns
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.pipelines.declared import BATCH_ID, OFFSET, DeclaredTables
from etl_assets.steps.plain_stage import BOUNDED_TYPES
from etl_assets.steps.staged_load import StagedLoad
from etl_assets.transforms.table_rows import newest_of_each_key
from etl_assets.transforms.time_partition import with_time_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.delta.snapshot import Snapshot


def upsert_of(tables: DeclaredTables) -> UpsertSpec:
    """Return how rows are merged into a pipeline's table."""
    contract, spec = tables.table, tables.spec.table
    is_upsert = spec.write_mode.keeps_newest
    return UpsertSpec(
        merge_key=contract.merge_key,
        ordering=(spec.sequence_by or OFFSET) if is_upsert else None,
        tie_breaker=OFFSET if is_upsert and spec.sequence_by else None,
        delta_partition=next(iter(contract.delta_partition), None),
        insert_only=not is_upsert,
        deleted_by=None if tables.tombstones is None else IS_DELETED,
    )


def range_of_keys(tables: DeclaredTables, last: StagedLoad) -> Within | None:
    """Return the range of the first key of staged rows, where it tells which files may have them."""
    key = tables.table.column(tables.table.merge_key[0])
    low, high = last.figures["low"], last.figures["high"]
    if not last.figures["rows"]:
        return ()
    if last.figures.get("truncates"):
        return None
    return ({key.name: (low, high)},) if key.type in BOUNDED_TYPES else None


def frame_to_merge(
    spark: SparkSession, tables: DeclaredTables, last: StagedLoad, base: Snapshot
) -> DataFrame:
    """Return staged rows for Delta's MERGE, one of each key, of a table that deletes no rows."""
    rows = newest_of_each_key(last.going_on(spark, tables), tables.spec.table, ties=False)
    return with_columns_of(rows, tables, base, ())


def with_columns_of(
    rows: DataFrame, tables: DeclaredTables, base: Snapshot, flags: Sequence[str]
) -> DataFrame:
    """Return rows with the columns of the stored table, and some flags."""
    from pyspark.sql import functions as F

    contract = tables.table
    rows = with_time_partition(rows, tables.spec.table.partition_by)
    rows = rows.withColumn(BATCH_ID, F.lit(base.version + 1).cast("bigint")).select(*contract.names, *flags)
    check_schema(contract, rows.drop(*flags).schema)
    # Columns that are no longer declared stay in the table; a row written now has no value there.
    former = [field for field in stored_columns(base).fields if field.name not in contract.names]
    return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in former})
