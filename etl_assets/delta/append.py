"""Rows into a table without Delta's writer: Parquet files are written, and the log entry that names them is computed.

Delta plans a write by loading the table's log in Spark jobs, and loads it again after: a second and more for each table and
process on a slow machine, however few the rows are. All that an append needs of the log is read already, without Spark. What
Delta does for its writer is done here from the files' own footers: statistics, and the refusal of a null where the contract
has none. See docs/decisions/0022-appends-without-deltas-writer.md.
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
from etl_assets.delta.content import StoredFile
from etl_assets.delta.durability import sync_files
from etl_assets.delta.gate import Access, allows
from etl_assets.delta.partition_values import values_in, with_zone
from etl_assets.delta.session import scoped_settings
from etl_assets.delta.statistics import Bounds, bounds_of, bounds_over, listed, statistics
from etl_assets.delta.times import with_utc_times
from etl_assets.errors import NullRefused

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

    from etl_assets.contracts.columns import Column, TableContract
    from etl_assets.delta.table import Snapshot, Table

STAGING = "_append"
"""Folder of a table for files that no entry names yet. Delta ignores it for its underscore."""
_WRITE_SETTINGS = {
    # Of Spark's default, INT96, a footer says neither bounds nor nulls.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_KNOWN = "__known"
_READERS = 8


def can_append(table: Table, snapshot: Snapshot | None, rows: DataFrame) -> bool:
    """Whether rows can be appended here: the table is as its contract has it, the rows as well, and neither needs more.

    Otherwise Delta's writer does it: it casts what can be cast and refuses what cannot, with its own words.
    """
    contract = table.contract
    if contract is None or snapshot is None or not can_write_files(table, snapshot, Access.APPEND):
        return False
    if any(not column.nullable and not _is_simple(column) for column in contract.columns):
        return False  # Of a nested value the footers do not say whether it is null.
    return not schema_differences(contract, rows.schema)


def can_write_files(table: Table, snapshot: Snapshot, access: Access) -> bool:
    """Whether data files with the contract's columns can be put into a table here: it is as its contract has it, and the
    gate allows it.
    """
    contract = table.contract
    return contract is not None and allows(snapshot, access) and _same_columns(contract, snapshot)


def _is_simple(column: Column) -> bool:
    return isinstance(column.parsed_type, ScalarType | DecimalType)


def _same_columns(contract: TableContract, snapshot: Snapshot) -> bool:
    declared = struct_type(contract).jsonValue()["fields"]
    return [_essence(field) for field in snapshot.fields()] == [_essence(field) for field in declared]


def _essence(field: dict[str, Any]) -> tuple[str, str, bool]:
    return field["name"], json.dumps(field["type"], sort_keys=True), field["nullable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFiles:
    """Data files that no log entry names yet, and how many rows they were made of, those that were known included."""

    files: tuple[StoredFile, ...]
    source_rows: int

    @property
    def metrics(self) -> dict[str, int]:
        """What the log entry says of them: Delta's names for a write, and for the rows of a merge's source."""
        return {
            "numFiles": len(self.files),
            "numOutputRows": sum(file.rows for file in self.files),
            "numOutputBytes": sum(file.size for file in self.files),
            "numSourceRows": self.source_rows,
        }


def write_files(table: Table, path: Path, snapshot: Snapshot, write: Callable[[Path], int]) -> NewFiles:
    """Write rows as data files into a table's folder, durably. They count once a log entry names them.

    To be called under the table's writer lock: what another append left behind is removed.

    Args:
        table: The table, with a contract.
        path: Its folder.
        snapshot: The version they follow.
        write: Writes the rows as Parquet files into a folder that is not there yet, laid out by the table's partition
            columns, and returns how many it left out. They have the contract's columns, and no null in a nested one that
            must have values. What it leaves beside that folder goes with it.

    Raises:
        NullRefused: there is no value where the contract wants one; no file was added.
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
        for file in files:
            target = path / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            (kept / file.path).rename(target)
    # Before an entry names them: a power loss must not leave one that lasts beside files that did not.
    sync_files(path, [path / file.path for file in files])
    return NewFiles(files=files, source_rows=left_out + sum(file.rows for file in files))


@contextmanager
def _staging(path: Path) -> Generator[Path]:
    """A folder for one write, gone afterwards; what a killed one left goes first.

    Its name is its own: the job of a killed run may still be at work in an engine that goes on without that run, and what
    it writes then must not be taken for ours.
    """
    shutil.rmtree(path / STAGING, ignore_errors=True)
    try:
        yield path / STAGING / uuid.uuid4().hex
    finally:
        shutil.rmtree(path / STAGING, ignore_errors=True)


def rows_as_files(
    rows: DataFrame, snapshot: Snapshot, contract: TableContract, folder: Path, *, known: DataFrame | None
) -> int:
    """Write rows as Parquet files by Spark, for `write_files`.

    Args:
        rows: The rows, with the contract's columns in any order. Evaluated once: those with known keys are written too, apart from the others, to be counted.
        snapshot: The version they follow.
        contract: The table's.
        folder: Where to.
        known: Keys of rows that are left out, each once, in columns that the rows have as well.

    Returns:
        How many rows were left out.
    """
    from pyspark.sql import functions as F

    names = [*contract.names, F.lit(False).alias(_KNOWN)]
    if known is not None:
        rows = rows.join(known.withColumn(_KNOWN, F.lit(True)), known.columns, "left")
        names[-1] = F.col(_KNOWN).isNotNull().alias(_KNOWN)
    by_spark = folder.with_name("spark")
    with scoped_settings(rows.sparkSession, _WRITE_SETTINGS):
        writer = rows.select(*names).write.mode("error").partitionBy(_KNOWN, *snapshot.partition_columns())
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(str(by_spark))
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
    """What the log is to say of a file that was written, with the bounds of the columns that are wanted."""
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
    """The partition of a data file that was written, by its folder."""
    found = values_in(Path(name).parent.parts)
    times = {column.name for column in contract.columns if column.type == "TIMESTAMP"}
    return {column: with_zone(text) if column in times else text for column, text in found}


class _Footer:
    """What a Parquet file's footer says of its columns, over all row groups."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self._metadata = file.metadata
        columns = range(self._metadata.num_columns)
        self._positions = {self._metadata.schema.column(number).path: number for number in columns}

    @property
    def rows(self) -> int:
        return self._metadata.num_rows

    def nulls(self, column: str) -> int:
        """How many values of a column are missing."""
        known = self._statistics_of(column)
        if known is None:  # Spark leaves the statistics out where the values are long.
            return self._file.read(columns=[column]).column(0).null_count
        return sum(each.null_count for each in known)

    def statistics(self, columns: Iterable[str]) -> dict[str, Any]:
        """Delta's statistics, with the bounds of some columns."""
        return statistics(self.rows, {name: self._bounds(name) for name in columns})

    def _bounds(self, column: str) -> Bounds:
        """The bounds and nulls of a column: by the footer, or by the values, where it does not tell in Delta's terms."""
        known = self._statistics_of(column)
        pieces = None if known is None else [_bounds(each) for each in known]
        if pieces is None or None in pieces:  # Long values; booleans and times in an old form.
            return bounds_of(with_utc_times(self._file.read(columns=[column]), self._file).column(0))
        return bounds_over(each for each in pieces if each is not None)

    def _statistics_of(self, column: str) -> list[pq.Statistics] | None:
        """A column's statistics in each row group that has rows; None where one of them has none."""
        groups = (self._metadata.row_group(number) for number in range(self._metadata.num_row_groups))
        found = [group.column(self._positions[column]).statistics for group in groups if group.num_rows]
        return None if any(each is None or not each.has_null_count for each in found) else found


def _bounds(told: pq.Statistics) -> Bounds | None:
    """What a row group says of a column; None where it says less than the values do."""
    if not told.num_values:
        return Bounds(told.null_count)
    bounds = Bounds(told.null_count, told.min, told.max) if told.has_min_max else None
    return bounds if bounds is not None and bounds.tells(told.null_count + told.num_values) else None
