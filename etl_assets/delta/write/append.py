"""Appends without Delta's writer: Parquet files are written, and the log entry that names them is computed.

Delta plans a write by loading the table's log in Spark jobs, and loads it again afterwards. On a slow machine
that takes a second and more per table and process, however few the rows are. An append needs little of the
log, and that has already been read without Spark. The checks of Delta's writer are done here from the files'
own footers: statistics, and the refusal of a null where the contract allows none. See
docs/decisions/0022-appends-without-deltas-writer.md.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from etl_assets.contracts.column_types import DecimalType, ScalarType
from etl_assets.contracts.spark_types import schema_differences, struct_type
from etl_assets.delta.log.durability import sync_files
from etl_assets.delta.log.gate import Access, allows
from etl_assets.delta.log.partition_values import values_in, with_zone
from etl_assets.delta.log.statistics import Bounds, bounds_of, bounds_over, listed, statistics
from etl_assets.delta.read.times import with_utc_times
from etl_assets.delta.session import scoped_settings
from etl_assets.delta.write.content import StoredFile
from etl_assets.delta.write.partition_files import sort_into_partitions
from etl_assets.errors import NullRefused

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from etl_assets.contracts.columns import Column, TableContract
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

STAGING = "_append"
"""Folder of a table for files that no entry names yet. Delta ignores it because of its underscore."""
_WRITE_SETTINGS = {
    # For Spark's default, INT96, a footer has neither bounds nor null counts.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_KNOWN = "__known"
_READERS = 8


def can_append(table: Table, snapshot: Snapshot | None, schema: StructType) -> bool:
    """Return whether rows can be appended here: table and rows match the contract, and the gate allows it.

    Otherwise Delta's writer does it: it casts where it can, and refuses the rest with its own message.
    """
    contract = table.contract
    if contract is None or snapshot is None or not can_write_files(table, snapshot, Access.APPEND):
        return False
    if any(not column.nullable and not _is_simple(column) for column in contract.columns):
        return False  # Footers do not say whether a nested value is null.
    return not schema_differences(contract, schema)


def can_write_files(table: Table, snapshot: Snapshot, access: Access) -> bool:
    """Return whether data files with the contract's columns can be added to a table here.

    The table must have the contract's columns and layout, and the gate must allow the access.
    """
    contract = table.contract
    return (
        contract is not None
        and allows(snapshot, access)
        and _same_columns(contract, snapshot)
        and snapshot.partition_columns() == tuple(contract.delta_partition)
    )


def _is_simple(column: Column) -> bool:
    return isinstance(column.parsed_type, ScalarType | DecimalType)


def _same_columns(contract: TableContract, snapshot: Snapshot) -> bool:
    declared = struct_type(contract).jsonValue()["fields"]
    return [_essence(field) for field in snapshot.fields()] == [_essence(field) for field in declared]


def _essence(field: dict[str, Any]) -> tuple[str, str, bool]:
    return field["name"], json.dumps(field["type"], sort_keys=True), field["nullable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFiles:
    """Data files that no log entry names yet.

    `source_rows` counts the rows they were made from, those left out as known included.
    """

    files: tuple[StoredFile, ...]
    source_rows: int

    @property
    def metrics(self) -> dict[str, int]:
        """Operation metrics for the log entry, under Delta's names for a write and for a merge's source."""
        return {
            "numFiles": len(self.files),
            "numOutputRows": sum(file.rows for file in self.files),
            "numOutputBytes": sum(file.size for file in self.files),
            "numSourceRows": self.source_rows,
        }


def write_files(table: Table, path: Path, snapshot: Snapshot, write: Callable[[Path], int]) -> NewFiles:
    """Write rows as data files into a table's folder, durably. They count once a log entry names them.

    Call it under the table's writer lock: it removes the files that another append left behind.

    Args:
        table: The table, with a contract.
        path: Its folder.
        snapshot: The version they follow.
        write: Writes the rows as Parquet files into a folder that does not exist yet, laid out by the table's
            partition columns, and returns the number of rows it left out. The files have the contract's
            columns, and no null in a nested column that must have values. Other files that it leaves beside
            that folder are removed.

    Raises:
        NullRefused: a value is missing where the contract requires one; no file was added.
    """
    contract = table.contract
    assert contract is not None
    wanted = listed(snapshot.fields(), snapshot.statistics_columns())
    look = partial(_staged, contract=contract, wanted=wanted)
    with _staging(path) as staging:
        kept = staging / "rows"
        left_out = write(kept)
        with ThreadPoolExecutor(_READERS) as readers:
            staged = readers.map(partial(look, kept), _data_files(kept))
            files = tuple(file for file in staged if file.rows)
        _expect_new_names(path, files, snapshot)
        for file in files:
            target = path / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            (kept / file.path).rename(target)
    # Before an entry names them: after a power loss no durable entry may name files that were not durable.
    sync_files(path, [path / file.path for file in files])
    return NewFiles(files=files, source_rows=left_out + sum(file.rows for file in files))


def _expect_new_names(path: Path, files: Sequence[StoredFile], snapshot: Snapshot) -> None:
    """Refuse to replace a data file of the table. A file that a killed append left counts for nothing.

    Raises:
        RuntimeError: a file has the name of one of the table's; no file was added.
    """
    there = [file.path for file in files if (path / file.path).exists()]
    if there and (taken := {*there} & {*snapshot.files()}):
        raise RuntimeError(f"the new data file {min(taken)} has the name of one that {path} has already")


@contextmanager
def _staging(path: Path) -> Generator[Path]:
    """Yield a folder for one write, removed afterwards. Folders of killed writes are removed first.

    The folder's name is unique: the Spark job of a killed run may still run in an engine that outlives the
    run, and its files must not be taken for those of this write.
    """
    shutil.rmtree(path / STAGING, ignore_errors=True)
    try:
        yield path / STAGING / uuid.uuid4().hex
    finally:
        shutil.rmtree(path / STAGING, ignore_errors=True)


def rows_as_files(
    rows: DataFrame,
    snapshot: Snapshot,
    contract: TableContract,
    folder: Path,
    *,
    known: DataFrame | None,
    few_of_many: bool = False,
) -> int:
    """Write rows as Parquet files by Spark, for `write_files`.

    Args:
        rows: The rows, with the contract's columns in any order. Evaluated once: rows with known keys are
            written too, apart from the others, to be counted.
        snapshot: The version they follow.
        contract: The table's contract.
        folder: The folder to write.
        known: Keys of rows that are left out, each once, in columns that the rows have as well.
        few_of_many: Whether this process sorts the rows into their partitions (`partition_files.py`).

    Returns:
        The number of rows that were left out.
    """
    from pyspark.sql import functions as F

    names = [*contract.names, F.lit(False).alias(_KNOWN)]
    if known is not None:
        rows = rows.join(known.withColumn(_KNOWN, F.lit(True)), known.columns, "left")
        names[-1] = F.col(_KNOWN).isNotNull().alias(_KNOWN)
    by_spark = folder.with_name("spark")
    with scoped_settings(rows.sparkSession, _WRITE_SETTINGS):
        rows = rows.select(*names)
        columns = () if few_of_many else (_KNOWN, *snapshot.partition_columns())
        writer = rows.write.mode("error").partitionBy(*columns)
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(str(by_spark))
    if few_of_many:
        return sort_into_partitions(sorted(by_spark.glob("*.parquet")), contract, folder, known=_KNOWN)
    kept, left_out = by_spark / f"{_KNOWN}=false", by_spark / f"{_KNOWN}=true"
    if kept.is_dir():
        kept.rename(folder)
    return sum(_count(left_out / name) for name in _data_files(left_out))


def _data_files(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.parquet"))


def _count(file: Path) -> int:
    import pyarrow.parquet as pq

    return pq.read_metadata(file).num_rows


def _staged(staging: Path, name: str, *, contract: TableContract, wanted: Sequence[str]) -> StoredFile:
    """Return the log's statement about a written file, with the bounds of the wanted columns.

    Raises:
        NullRefused: a column that must have values has a null.
    """
    import pyarrow.parquet as pq

    partition = _partition_of(name, contract)
    with pq.ParquetFile(staging / name, coerce_int96_timestamp_unit="us") as file:
        footer = _Footer(file)
        for column in contract.columns:
            if not column.nullable and _is_simple(column) and footer.rows:
                in_folder = column.name in partition
                if partition[column.name] is None if in_folder else footer.nulls(column.name):
                    raise _null_refused(contract, column)
        stored = (staging / name).stat()
        return StoredFile(
            name=quote(name, safe="/="),
            partition=partition,
            size=stored.st_size,
            modified=stored.st_mtime_ns // 1_000_000,
            rows=footer.rows,
            statistics=footer.statistics(name for name in wanted if name not in partition),
        )


def _null_refused(contract: TableContract, column: Column) -> NullRefused:
    return NullRefused(
        f"the rows for {contract.name} hold no {column.name} where there must be one",
        fix=f"give every row its {column.name}, or declare the column nullable",
        table=contract.name,
        column=column.name,
    )


def _partition_of(name: str, contract: TableContract) -> dict[str, str | None]:
    """Return the partition of a written data file, read from its folder."""
    found = values_in(Path(name).parent.parts)
    times = {column.name for column in contract.columns if column.type == "TIMESTAMP"}
    return {column: with_zone(text) if column in times else text for column, text in found}


class _Footer:
    """Statistics of a Parquet file's columns from its footer, over all row groups."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self._metadata = file.metadata
        columns = range(self._metadata.num_columns)
        self._positions = {self._metadata.schema.column(number).path: number for number in columns}

    @property
    def rows(self) -> int:
        return self._metadata.num_rows

    def nulls(self, column: str) -> int:
        """Return the number of missing values of a column."""
        known = self._statistics_of(column)
        if known is None:  # Spark leaves the statistics out where the values are long.
            return self._file.read(columns=[column]).column(0).null_count
        return sum(each.null_count for each in known)

    def statistics(self, columns: Iterable[str]) -> dict[str, Any]:
        """Return Delta's statistics, with the bounds of some columns."""
        return statistics(self.rows, {name: self._bounds(name) for name in columns})

    def _bounds(self, column: str) -> Bounds:
        """Return the bounds and nulls of a column.

        From the footer, or from the values where the footer lacks bounds in Delta's terms.
        """
        known = self._statistics_of(column)
        pieces = None if known is None else [_bounds(each) for each in known]
        if pieces is None or None in pieces:  # Long values; booleans and times in an old form.
            return bounds_of(with_utc_times(self._file.read(columns=[column]), self._file).column(0))
        return bounds_over(each for each in pieces if each is not None)

    def _statistics_of(self, column: str) -> list[pq.Statistics] | None:
        """Return a column's statistics in each row group that has rows; None where one of them has none."""
        groups = (self._metadata.row_group(number) for number in range(self._metadata.num_row_groups))
        found = [group.column(self._positions[column]).statistics for group in groups if group.num_rows]
        return None if any(each is None or not each.has_null_count for each in found) else found


def _bounds(told: pq.Statistics) -> Bounds | None:
    """Return the bounds of a column in a row group; None where the statistics say less than the values do."""
    if not told.num_values:
        return Bounds(told.null_count)
    bounds = Bounds(told.null_count, told.min, told.max) if told.has_min_max else None
    return bounds if bounds is not None and bounds.tells(told.null_count + told.num_values) else None
