"""The rows of one version of a table as a Spark frame that reads as few files as possible.

Delta plans a read by loading the whole log in three or four Spark jobs for each table and process. They take
longer the longer the history is. A step nearly always reads a few files of a few days, and the log that names
them has already been read without Spark (`table.Snapshot`). So Spark gets the files by name.

Delta reads where that would give other rows or cost more: a table whose protocol has more than Parquet files,
a table without contract, or many files.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.log.partition_values import folder_of
from etl_assets.delta.read.range_predicate import Within, condition
from etl_assets.delta.session import frame_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset
    from pyspark.sql import Column, DataFrame, SparkSession

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

DAY_COLUMN = "partition_date"
"""The Delta partition column of tables that are laid out by day."""
MAX_FILES_BY_NAME = 1_000
"""Beyond this many files, Spark spends more on looking up each file than Delta does on its log."""

MAX_ROWS_IN_PROCESS = 1_000_000
"""This process searches as many rows within a second."""

MAX_CHECKED_IN_PROCESS = 5_000_000
"""This process compares as many rows with a contract within some seconds, and holds their keys."""

KnownFiles = Mapping[dt.date, Sequence[str]]
"""Paths of data files, by day."""

After = int | Mapping[dt.date, int]
"""The batch id above which rows are wanted, for all days or by wanted day. Below 0 means every row."""


def whole_days(days: Iterable[dt.date]) -> After:
    """Return the `After` that selects every row of some days."""
    return dict.fromkeys(days, -1)


def day_folder(day: dt.date) -> str:
    """Return the folder of a day's data files, as Delta names it."""
    return f"{DAY_COLUMN}={day.isoformat()}"


def read_rows(
    spark: SparkSession, table: Table, version: int, after: After | None, within: Within | None = None
) -> DataFrame:
    """Return the rows of a version: all of them, those above a batch id, or those of some days.

    Args:
        spark: The session.
        table: The table.
        version: A version of it.
        after: The wanted rows, of a table with `partition_date` and `batch_id`; None for all.
        within: Ranges that the rows must be in as well.
    """
    rows = _by_name(spark, table, version, after, within)
    if rows is None:
        rows = spark.read.format("delta").option("versionAsOf", version).load(str(table.path))
    if within is not None:
        rows = rows.where(condition(within))
    return rows if after is None else rows.where(_condition(after))


def rows_in_process(
    table: Table,
    version: int,
    days: Collection[dt.date],
    *,
    key: str,
    values: Collection[str],
    columns: Sequence[str],
) -> pa.Table | None:
    """Read some columns of the rows of some days whose text `key` has one of some values, without Spark.

    None where Spark must read them: there are too many rows to search, or the Parquet files alone do not hold
    them.
    """
    import pyarrow as pa
    import pyarrow.dataset

    snapshot = table.snapshot(version)
    if snapshot is None or not snapshot.is_plain:
        return None
    rows = snapshot.rows_by(DAY_COLUMN)
    files = [str(table.path / file) for file in files_with(snapshot, whole_days(days))]
    if not files or sum(rows.get((day.isoformat(),), 0) for day in days) > MAX_ROWS_IN_PROCESS:
        return None
    wanted = pyarrow.dataset.field(key).isin(pa.array(sorted(values), pa.string()))
    return pyarrow.dataset.dataset(files, format="parquet").to_table(columns=list(columns), filter=wanted)


def rows_of_batch_in_process(table: Table, version: int) -> Iterator[pa.Table] | None:
    """Return the rows of a version that its own commit wrote, in pieces, with the contract's columns.

    Of a table that does not keep the version of its rows, all rows are returned.

    None where Spark must read them: there are too many rows, or the Parquet files alone do not hold them.
    """
    import pyarrow.dataset as ds

    from etl_assets.contracts.arrow_types import data_file_schema

    snapshot = table.snapshot(version)
    if snapshot is None or not snapshot.is_plain or table.contract is None:
        return None
    schema = data_file_schema(table.contract)
    batch = table.contract.batch_column
    found = [
        file
        for file in snapshot.add_actions()
        if batch is None or (newest := file.get(f"max.{batch}")) is None or newest >= version
    ]
    numbers = [file["num_records"] for file in found]
    if None in numbers or sum(numbers) > MAX_CHECKED_IN_PROCESS:
        return None
    if not found:
        return iter(())
    files = [str(table.path / unquote(file["path"])) for file in found]
    folders = ds.partitioning(
        schema.empty_table().select(table.contract.delta_partition).schema, flavor="hive"
    )
    rows = ds.dataset(
        files, schema=schema, format="parquet", partitioning=folders, partition_base_dir=str(table.path)
    )
    of_batch = None if batch is None else ds.field(batch) == version
    return _pieces(
        rows.scanner(columns=schema.names, filter=of_batch, batch_readahead=1, fragment_readahead=1)
    )


def _pieces(scanner: pyarrow.dataset.Scanner) -> Iterator[pa.Table]:
    import pyarrow as pa

    for batch in scanner.to_batches():
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def _by_name(
    spark: SparkSession, table: Table, version: int, after: After | None, within: Within | None
) -> DataFrame | None:
    """Return all rows of the files that hold the wanted rows; None where Delta must read them."""
    snapshot = table.snapshot(version)
    if table.contract is None or snapshot is None or not snapshot.is_plain:
        return None
    files = list(files_with(snapshot, after, within))
    if len(files) > MAX_FILES_BY_NAME or not folders_spell_partitions(snapshot, files):
        return None
    schema = struct_type(table.contract)
    if not files:
        return frame_of(spark, [], schema)
    # The folders of Delta's partitions begin at the base path; their values are columns too.
    reader = spark.read.schema(schema).option("basePath", str(table.path))
    rows = reader.parquet(*(str(table.path / file) for file in files))
    return rows.select(*schema.names)


def folders_spell_partitions(snapshot: Snapshot, files: Sequence[str]) -> bool:
    """Return whether the folders of files spell their partitions as Spark reads them.

    Other programs may lay out files in another way.
    """
    columns = snapshot.partition_columns()
    return all(
        PurePosixPath(path).parent == PurePosixPath(folder_of(partition, columns))
        for path, partition in snapshot.partitions(files)
    )


def files_with(snapshot: Snapshot, after: After | None, within: Within | None = None) -> Iterator[str]:
    """Return the data files that may hold wanted rows, by partition and statistics.

    The paths are relative to the table's folder.
    """
    files = _after(snapshot, after)
    yield from files if within is None else snapshot.files_within(within, list(files))


def known_files(snapshot: Snapshot, folder: Path, days: After, within: Within | None = None) -> KnownFiles:
    """Return the data files of a version that may hold rows of some days, by day.

    The paths begin with the table's folder.
    """
    wanted = set(files_with(snapshot, days, within))
    found: defaultdict[dt.date, list[str]] = defaultdict(list)
    for path, day, _ in snapshot.files_by_day():
        if path in wanted:
            found[day].append(str(folder / path))
    return dict(found)


def _after(snapshot: Snapshot, after: After | None) -> Iterator[str]:
    if after is None:
        yield from snapshot.files()
        return
    for path, day, newest in snapshot.files_by_day():
        if isinstance(after, int) or day in after:
            seen = after if isinstance(after, int) else after[day]
            if newest is None or newest > seen:
                yield path


def _condition(after: After) -> Column:
    from pyspark.sql import functions as F

    if isinstance(after, int):
        return F.col("batch_id") > after
    days_by_batch: dict[int, list[dt.date]] = {}
    for day, batch in after.items():
        days_by_batch.setdefault(batch, []).append(day)
    condition = F.lit(False)
    for batch, days in days_by_batch.items():
        of_days = F.col(DAY_COLUMN).isin(days)
        condition |= of_days if batch < 0 else of_days & (F.col("batch_id") > batch)
    return condition
