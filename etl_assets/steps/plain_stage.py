"""Plain records of a load, typed and staged by this process as the data files they may become.

Most loads have few other records or none. Spark types those (`load_table.py`), so that a load of plain
records needs no Spark at all.

Belongs here: reading new records and staging their rows. Does not belong here: which records are plain
(`transforms/plain_records.py`), and which of the rows the table gets (`new_keys.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.compute.in_process import is_little_work
from etl_assets.contracts.columns import Column
from etl_assets.delta.read.data_files import new_data_file, pieces_of, rows_at_once, whole_file
from etl_assets.delta.read.rows import files_with
from etl_assets.delta.write.writing import storage_named
from etl_assets.pipelines.debezium_spec import UNAVAILABLE_COLUMN
from etl_assets.pipelines.declared import BATCH_ID, OFFSET, DeclaredTables
from etl_assets.pipelines.log_changes import IS_DELETE, IS_TRUNCATE, UPSERT
from etl_assets.pipelines.postgres_cdc_spec import CHANGE_COLUMN
from etl_assets.pipelines.spec import DELETED_COLUMN, IS_GONE, TableSpec
from etl_assets.transforms.plain_records import PlainRecords
from etl_assets.transforms.typed_records import RecordColumn

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

ROWS_PER_FILE = 500_000
"""About how many rows a staged file has; a file of the source is never divided."""
BOUNDED_TYPES = ("STRING", "INT", "BIGINT")
"""Types of a key whose range tells which files of a table may hold it."""
_MAX_OTHERS = 50_000
"""With more records that are not plain, Spark finds them in all records as fast as by their offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRows:
    """Rows of plain records, staged.

    Attributes:
        files: Parquet files with `staged_columns`, `_offset` and `_batch_id`.
        rows: Number of the rows.
        others: Offsets of the records that are not plain.
        bounds: Lowest and highest value of the first key; None if there are no rows, or the key's type is
            none of `BOUNDED_TYPES`.
    """

    files: tuple[Path, ...]
    rows: int
    others: np.ndarray
    bounds: tuple[Any, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStage:
    """The staging of one load.

    Attributes:
        records: The columns to take.
        kept: Names of those to stage.
        key: The first key of the table; None if its bounds are of no use.
        batch_id: The version that the load becomes.
        after: The batch id above which records are new.
        folder: A new folder for the files.
    """

    records: PlainRecords
    kept: Sequence[str]
    key: str | None
    batch_id: int
    after: int
    folder: Path

    def run(self, source: Table, snapshot: Snapshot) -> PlainRows | None:
        """Stage the plain records; None if Spark does the whole load: it is large, or much is not plain.

        Raises:
            FilesGone, ReplicaCorrupt: a file of the source table is gone or damaged.
        """
        import numpy as np

        if not snapshot.is_plain:
            return None
        numbers = dict(snapshot.rows_by_file())
        found = [(file, numbers[file]) for file in files_with(snapshot, self.after)]
        known = [rows for _, rows in found if rows is not None]
        if len(known) < len(found) or not is_little_work(sum(known)):
            return None
        self.folder.mkdir()
        tasks = list(_tasks([(source.path / file, rows or 0) for file, rows in found]))
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            staged = list(threads.map(partial(self._stage, source), range(len(tasks)), tasks))
        if sum(len(each.others) for each in staged) > _MAX_OTHERS:
            return None
        bounds = [each.bounds for each in staged if each.bounds is not None]
        return PlainRows(
            files=tuple(file for each in staged for file in each.files),
            rows=sum(each.rows for each in staged),
            others=np.concatenate([np.empty(0, dtype=np.int64), *(each.others for each in staged)]),
            bounds=(min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None,
        )

    def _stage(self, source: Table, number: int, task: Sequence[Path]) -> PlainRows:
        """Stage the plain records of some files of the source in one file."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        path, rows, others, bounds = self.folder / f"part-{number:05}.zstd.parquet", 0, [], []
        writer = None
        for piece in _pieces(source, task):
            new = piece.filter(pc.call_function("greater", [piece.column("batch_id"), pa.scalar(self.after)]))
            if not new.num_rows:
                continue
            typed, positions = self.records.typed(new.column("record").combine_chunks())
            is_other = np.ones(new.num_rows, dtype=bool)
            is_other[positions.to_numpy()] = False
            offsets = new.column("offset").to_numpy()
            others.append(offsets[is_other])
            if not typed.num_rows:
                continue
            typed = typed.select(list(self.kept)).append_column(OFFSET, pa.array(offsets[~is_other]))
            typed = typed.append_column(BATCH_ID, pa.repeat(pa.scalar(self.batch_id), typed.num_rows))
            writer = writer or new_data_file(path, typed.schema)
            writer.write_table(typed)
            rows += typed.num_rows
            if self.key is not None:
                found = pc.call_function("min_max", [typed.column(self.key)])
                bounds.append((found["min"].as_py(), found["max"].as_py()))
        if writer is not None:
            writer.close()
        return PlainRows(
            files=() if writer is None else (path,),
            rows=rows,
            others=np.concatenate([np.empty(0, dtype=np.int64), *others]),
            bounds=(min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None,
        )


def _pieces(source: Table, files: Sequence[Path]) -> Iterator[pa.Table]:
    """Read files of the source table, some rows at a time."""
    import pyarrow as pa

    read = pa.schema([("offset", pa.int64()), ("record", pa.string()), ("batch_id", pa.int64())])
    for file in files:
        with storage_named(source), whole_file(file):
            yield from pieces_of(file, read, at_once=rows_at_once(file))


def _tasks(files: Sequence[tuple[Path, int]]) -> Iterator[list[Path]]:
    """Yield files put together to about `ROWS_PER_FILE` rows."""
    held: list[Path] = []
    rows = 0
    for file, number in files:
        if held and rows + number > ROWS_PER_FILE:
            yield held
            held, rows = [], 0
        held.append(file)
        rows += number
    if held:
        yield held


def plain_stage(tables: DeclaredTables, *, batch_id: int, after: int, folder: Path) -> PlainStage | None:
    """Return the staging of a pipeline's plain records; None if Spark takes everything.

    Spark does transforms, values of nested types, changes that lack values, and conditions for deletes. Of
    the changes that a source reports itself, upserts are plain records and the others are not.
    """
    spec = tables.spec.table
    upserts = _upserts(spec)
    if tables.spec.transforms or upserts is None or UNAVAILABLE_COLUMN in tables.spec.columns:
        return None  # Changes that lack values are completed by Spark.
    if spec.partition_by is not None and tables.table.column(spec.partition_by.name).type == "STRING":
        return None  # A text that lays out files must not be empty.
    required = {*spec.keys, *(tables.order[:1] if tables.tombstones is not None else ())} - {OFFSET}
    records = PlainRecords.of(record_columns(tables), frozenset(required), upserts)
    if records is None:
        return None
    key = tables.table.column(tables.table.merge_key[0])
    return PlainStage(
        records=records,
        kept=[column.name for column in staged_columns(tables)],
        key=key.name if key.type in BOUNDED_TYPES else None,
        batch_id=batch_id,
        after=after,
        folder=folder,
    )


def _upserts(spec: TableSpec) -> Mapping[str, str | bool] | None:
    """Return the value of a column by which upserts are known; None if only Spark can tell."""
    match spec.apply_as_deletes, spec.apply_as_truncates:
        case None, None:
            return {}
        case deletes, None if deletes == IS_GONE:
            return {DELETED_COLUMN: False}
        case deletes, truncates if (deletes, truncates) == (IS_DELETE, IS_TRUNCATE):
            return {CHANGE_COLUMN: UPSERT}
    return None


def record_columns(tables: DeclaredTables) -> list[RecordColumn]:
    """Return the columns of the records of a pipeline, with their fields."""
    return [
        RecordColumn(column=column, field=tables.spec.columns[column.name].from_ or column.name)
        for column in tables.parsed_columns
    ]


def staged_columns(tables: DeclaredTables) -> tuple[Column, ...]:
    """Return the parsed columns that the table has, or by which it orders rows."""
    names = {*tables.table.names, *tables.order}
    return tuple(column for column in tables.parsed_columns if column.name in names)
