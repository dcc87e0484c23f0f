"""Plain records of a load, typed and staged by this process as the data files they may become.

Most loads have few other records or none. Spark types those (`load_table.py`), so that a load of plain
records needs no Spark at all.

Belongs here: reading new records and staging their rows. Does not belong here: which records are plain
(`transforms/plain_records.py`), and which of the rows the table gets (`new_keys.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from etl_assets.compute.in_process import is_little_work
from etl_assets.contracts.columns import Column
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.read.data_files import (
    new_data_file,
    pieces_of,
    repeating_columns,
    rows_at_once,
    whole_file,
)
from etl_assets.delta.read.rows import files_with
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.delta.write.partition_files import SPELT_TYPES
from etl_assets.delta.write.writing import storage_named
from etl_assets.pipelines.declared import BATCH_ID, OFFSET, DeclaredTables
from etl_assets.transforms.plain_kinds import PlainKinds
from etl_assets.transforms.plain_records import PlainRecords
from etl_assets.transforms.time_partition import with_arrow_time_partition
from etl_assets.transforms.typed_records import RecordColumn

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from etl_assets.contracts.columns import TableContract
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
        files: Parquet files with the rows: `staged_columns`, the column by which files are laid out,
            `_offset` and `_batch_id`.
        rows: Number of the rows, deletes and truncates included.
        others: Offsets of the records that are not plain.
        bounds: Lowest and highest value of the first key; None if there are no rows, or the key's type is
            none of `BOUNDED_TYPES`.
        deleted: Parquet files with the deletes and truncates: keys, order and `_is_truncate`.
        deletes: Number of the deletes.
        truncates: Number of the truncates.
    """

    files: tuple[Path, ...]
    rows: int
    others: np.ndarray
    bounds: tuple[Any, Any] | None
    deleted: tuple[Path, ...] = ()
    deletes: int = 0
    truncates: int = 0

    @classmethod
    def together(cls, parts: Sequence[PlainRows]) -> PlainRows:
        """Return rows that were staged apart."""
        import numpy as np

        bounds = [each.bounds for each in parts if each.bounds is not None]
        return cls(
            files=tuple(file for each in parts for file in each.files),
            rows=sum(each.rows for each in parts),
            others=np.concatenate([np.empty(0, dtype=np.int64), *(each.others for each in parts)]),
            bounds=(min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None,
            deleted=tuple(file for each in parts for file in each.deleted),
            deletes=sum(each.deletes for each in parts),
            truncates=sum(each.truncates for each in parts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStage:
    """The staging of one load.

    Attributes:
        tables: The pipeline's tables.
        records: The columns to take.
        batch_id: The version that the load becomes.
        after: The batch id above which records are new.
        folder: A new folder for the files.
    """

    tables: DeclaredTables
    records: PlainRecords
    batch_id: int
    after: int
    folder: Path

    def run(self, source: Table, snapshot: Snapshot) -> PlainRows | None:
        """Stage the plain records; None if Spark does the whole load: it is large, or much is not plain.

        Raises:
            FilesGone, ReplicaCorrupt: a file of the source table is gone or damaged.
        """
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
        return PlainRows.together(staged)

    def _stage(self, source: Table, number: int, task: Sequence[Path]) -> PlainRows:
        """Stage the plain records of some files of the source in one file, their deletes in another one."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        others = []
        path = self.folder / f"part-{number:05}.zstd.parquet"
        with StagedRowsWriter(tables=self.tables, batch_id=self.batch_id, path=path) as writer:
            for piece in _pieces(source, task):
                is_new = pc.call_function("greater", [piece.column("batch_id"), pa.scalar(self.after)])
                new = piece.filter(is_new)
                if not new.num_rows:
                    continue
                typed, positions = self.records.typed(new.column("record").combine_chunks())
                is_other = np.ones(new.num_rows, dtype=bool)
                is_other[positions.to_numpy()] = False
                offsets = new.column("offset").to_numpy()
                others.append(offsets[is_other])
                writer.write(typed.append_column(OFFSET, pa.array(offsets[~is_other])))
        return replace(writer.staged, others=np.concatenate([np.empty(0, dtype=np.int64), *others]))


@dataclass(slots=True, kw_only=True)
class StagedRowsWriter:
    """Writes typed rows into a staged file, and deletes and truncates among them into another one.

    Attributes:
        tables: The pipeline's tables.
        batch_id: The version that the load becomes.
        path: The file of the rows; that of the deletes is beside it.
    """

    tables: DeclaredTables
    batch_id: int
    path: Path
    _writers: dict[Path, pq.ParquetWriter] = field(default_factory=dict, init=False)
    _rows: int = field(default=0, init=False)
    _deletes: int = field(default=0, init=False)
    _truncates: int = field(default=0, init=False)
    _bounds: list[tuple[Any, Any]] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._writers.values():
            each.close()

    def write(self, rows: pa.Table) -> None:
        """Write rows with `staged_columns` and `_offset`, and with the kinds of changes if they are some."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._rows += rows.num_rows
        key = self.tables.table.column(self.tables.table.merge_key[0])
        if key.type in BOUNDED_TYPES:
            found = pc.call_function("min_max", [rows.column(key.name)])
            if found["min"].is_valid:
                self._bounds.append((found["min"].as_py(), found["max"].as_py()))
        if self.tables.tombstones is not None:
            rows = self._without_deletes(rows)
        rows = rows.select([*(column.name for column in staged_columns(self.tables)), OFFSET])
        rows = with_arrow_time_partition(rows, self.tables.spec.table.partition_by)
        batch = pa.repeat(pa.scalar(self.batch_id), rows.num_rows)
        self._append(self.path, rows.append_column(BATCH_ID, batch))

    @property
    def staged(self) -> PlainRows:
        """What was written; of no records is known that they are not plain."""
        import numpy as np

        deleted = _deleted_beside(self.path)
        lows, highs = [low for low, _ in self._bounds], [high for _, high in self._bounds]
        return PlainRows(
            files=(self.path,) if self.path in self._writers else (),
            rows=self._rows,
            others=np.empty(0, dtype=np.int64),
            bounds=(min(lows), max(highs)) if lows else None,
            deleted=(deleted,) if deleted in self._writers else (),
            deletes=self._deletes,
            truncates=self._truncates,
        )

    def _without_deletes(self, rows: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        is_gone = pc.call_function("or", [rows.column(IS_DELETED), rows.column(IS_TRUNCATE)])
        columns = dict.fromkeys((*self.tables.table.merge_key, *self.tables.order, IS_TRUNCATE))
        gone = rows.filter(is_gone).select(list(columns))
        truncates = pc.call_function("sum", [gone.column(IS_TRUNCATE)]).as_py() or 0
        self._deletes += gone.num_rows - truncates
        self._truncates += truncates
        self._append(_deleted_beside(self.path), gone)
        return rows.filter(pc.call_function("invert", [is_gone]))

    def _append(self, path: Path, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if path not in self._writers:
            self._writers[path] = new_data_file(path, rows.schema, repeating=repeating_columns(rows))
        self._writers[path].write_table(rows)


def _deleted_beside(path: Path) -> Path:
    return path.with_name(f"deleted-{path.name}")


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

    Spark does transforms, values of nested types, and conditions for deletes that Arrow does not know.
    """
    if tables.spec.transforms or (records := plain_records(tables)) is None:
        return None
    return PlainStage(tables=tables, records=records, batch_id=batch_id, after=after, folder=folder)


def plain_records(tables: DeclaredTables) -> PlainRecords | None:
    """Return the columns of a pipeline's plain records; None if Spark takes all records."""
    spec, contract = tables.spec.table, tables.table
    if any(contract.column(name).type not in SPELT_TYPES for name in contract.delta_partition):
        return None
    kinds, knows_kinds = None, tables.tombstones is not None or spec.apply_as_deletes is not None
    if knows_kinds and (kinds := PlainKinds.of(tables)) is None:
        return None
    required = {*spec.keys, *(tables.order[:1] if tables.tombstones is not None else ())} - {OFFSET}
    laid_out_by = None if spec.partition_by is None or spec.partition_by.by else spec.partition_by.name
    return PlainRecords.of(
        record_columns(tables), frozenset(required), kinds=kinds, laid_out_by=_text(contract, laid_out_by)
    )


def _text(contract: TableContract, name: str | None) -> str | None:
    """Return the name of a column if it is a text."""
    return name if name is not None and contract.column(name).type == "STRING" else None


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
