"""How staged rows of a pipeline's table are merged: by which keys, into which files, with which columns.

Belongs here: what every load of a declared table needs. Does not belong here: staging (`staged_load.py`), and
the order of the commits (`load_table.py`, `ingest/direct_batch.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.delta.write.contract_columns import stored_columns
from etl_assets.delta.write.partial_changes import completed_by_spark
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.pipelines.declared import BATCH_ID, OFFSET, DeclaredTables
from etl_assets.steps.apply_changes import Tombstones
from etl_assets.steps.plain_stage import BOUNDED_TYPES
from etl_assets.steps.staged_load import StagedLoad
from etl_assets.transforms.lacking_values import lacking_columns
from etl_assets.transforms.table_rows import newest_of_each_key
from etl_assets.transforms.time_partition import with_time_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedBySpark:
    """Staged rows of a load that Delta's own MERGE writes.

    Attributes:
        spark: The session.
        tables: The pipeline's tables.
        table: The pipeline's table.
        tombstones: The table's tombstones; None if it does not apply changes.
    """

    spark: SparkSession
    tables: DeclaredTables
    table: Table
    tombstones: Tombstones | None

    def rows(self, last: StagedLoad, base: Snapshot) -> tuple[DataFrame, int]:
        """Return the rows of the MERGE, and how many of them are deletes of rows that a truncate removes.

        Tombstones of changes are committed.
        """
        spec = self.tables.spec.table
        rows = last.going_on(self.spark, self.tables)
        flags, truncated = (), 0
        if self.tombstones is not None:
            rows, truncated = self._changes(rows, last, self.tombstones, base.version)
            flags = (IS_DELETED,)
        elif spec.write_mode.by_key:
            rows = newest_of_each_key(rows, spec, ties=self.tables.may_repeat_records)
        return with_columns_of(rows, self.tables, base, flags), truncated

    def _changes(
        self, rows: DataFrame, last: StagedLoad, tombstones: Tombstones, base: int
    ) -> tuple[DataFrame, int]:
        """Commit the tombstones of some rows, and return the changes to merge.

        The second value is how many of them are deletes of rows that a truncate removes.
        """
        truncates = last.figures["truncates"]
        kept = tombstones.keep(rows, are_there=bool(last.figures["deletes"] or truncates))
        lacking = lacking_columns(self.tables)
        if lacking is not None:
            rows = completed_by_spark(rows, self.table.read(self.spark, base), kept, lacking)
        live = rows if kept is None else tombstones.live(rows, kept)
        newest = newest_of_each_key(live, self.tables.spec.table, ties=self.tables.may_repeat_records)
        if kept is None or not truncates:
            return newest, 0
        gone = tombstones.truncated(newest, kept, self.table.read(self.spark, base))
        # Delta's figures do not tell these from other deletes. Truncates are rare.
        return newest.unionByName(gone, allowMissingColumns=True), gone.count()


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
