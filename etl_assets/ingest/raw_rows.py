"""Records of a batch that become rows of the source's table, with their offsets.

They are returned as a frame, or written by workers as data files.

Offsets are dense from the first one, in source order. The number of rows of each staged block is known, so
each task is given its first offset, and checks that it yields as many rows as planned.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.compute.worker_tasks import Written, attempt_name, in_workers, write_in_workers
from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.read.data_files import new_data_file
from etl_assets.delta.read.rows import DAY_COLUMN, KnownFiles, day_folder
from etl_assets.delta.write.staged import is_little
from etl_assets.delta.write.write import DeferredRows
from etl_assets.ingest.located_blocks import LocatedBlock, RowGroup, row_groups
from etl_assets.ingest.stage_lines import Kind
from etl_assets.transforms.line_positions import first_ordinal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.contracts.columns import TableContract

ROWS_PER_FILE = 500_000
"""About how many rows a data file has; each day has at least one file of its own."""
_ROWS_AT_ONCE = 100_000
_BYTES_AT_ONCE = 64 << 20
"""About how many rows, or bytes of rows, a worker holds before it writes them: records may be long."""
_REPEATING = ("source", "ingest_domain", "ingested_at", "batch_id")
"""Columns with few values, beside those of the records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsTask:
    """Consecutive blocks of one day, in source order, and the offset of their first row."""

    first_offset: int
    blocks: tuple[LocatedBlock, ...]

    @property
    def day(self) -> dt.date:
        """The day of the blocks."""
        return self.blocks[0].day

    @property
    def rows(self) -> int:
        """Number of rows of the blocks."""
        return sum(block.new for block in self.blocks)


def rows_tasks(
    blocks: Iterable[LocatedBlock], first_offset: int, rows_a_file: int = ROWS_PER_FILE
) -> Iterator[RowsTask]:
    """Cut blocks, in source order, into tasks of one day and about `rows_a_file` rows.

    Blocks without rows are left out.
    """
    held: list[LocatedBlock] = []
    rows = 0
    for block in blocks:
        if not block.new:
            continue
        if held and (block.day != held[0].day or rows + block.new > rows_a_file):
            yield RowsTask(first_offset=first_offset, blocks=tuple(held))
            first_offset += rows
            held, rows = [], 0
        held.append(block)
        rows += block.new
    if held:
        yield RowsTask(first_offset=first_offset, blocks=tuple(held))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """The rows of a batch.

    Attributes:
        session: Returns the session, and starts Spark on first use.
        contract: The table.
        repeating: Columns of the records that have few values.
        tasks: The tasks that write them.
        staging: Folder of the staged events.
        repeats: Parquet files with the `ordinal` of each event that does not become a row; empty if there are
            none.
        ingest_domain: Value of the column of that name.
        ingested_at: Value of the column of that name.
        batch_id: Value of the column of that name.
    """

    session: Callable[[], SparkSession]
    contract: TableContract
    repeating: tuple[str, ...]
    tasks: tuple[RowsTask, ...]
    staging: Path
    repeats: tuple[str, ...]
    ingest_domain: str
    ingested_at: dt.datetime
    batch_id: int

    def frame(self) -> DataFrame:
        """Return the rows with the columns of the table."""
        import pyarrow as pa

        # Not of `self`, which workers cannot get: it has the session.
        make, names = self._maker(), self.contract.names

        def work(task: RowsTask) -> Iterator[pa.RecordBatch]:
            for rows in make.rows_of(task):
                day = pa.array([task.day] * rows.num_rows, pa.date32())
                whole = rows.append_column(DAY_COLUMN, day).select(names)
                yield from whole.combine_chunks().to_batches()

        columns = ", ".join(f"{column.name} {column.type}" for column in self.contract.columns)
        return in_workers(self.session(), self.tasks, work, columns)

    def for_commit(self) -> DataFrame | DeferredRows:
        """Return the rows for a commit: deferred if this process writes them, which needs no Spark."""
        if len(self.tasks) > 1 and not self._is_little:
            return self.frame()
        return DeferredRows(schema=struct_type(self.contract), frame=self.frame)

    def write(self, folder: Path, known: KnownFiles) -> int:
        """Write the rows as Parquet files into a new folder, laid out by day as Delta has it: `Write.files`.

        Returns:
            Number of rows left out: none, because their offsets are new.
        """
        assert not known

        make = self._maker()

        def write(task: RowsTask, attempts: Path) -> Iterator[Written]:
            yield Written(partition=day_folder(task.day), name=make.write(task, attempts))

        return write_in_workers(self.session, self.tasks, write, folder, is_little=self._is_little)

    @property
    def _is_little(self) -> bool:
        """Whether this process writes them, however many tasks there are: a day of few rows is a task too."""
        return is_little(self.staging.iterdir())

    def _maker(self) -> _RowMaker:
        return _RowMaker(
            contract=self.contract,
            repeating=(*self.repeating, *_REPEATING),
            staging=self.staging,
            repeats=self.repeats,
            stamps={
                "ingest_domain": self.ingest_domain,
                "ingested_at": self.ingested_at,
                "batch_id": self.batch_id,
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowMaker:
    """Writes the rows of a task, in a worker. `stamps` are columns with one value for all rows."""

    contract: TableContract
    repeating: tuple[str, ...]
    staging: Path
    repeats: tuple[str, ...]
    stamps: Mapping[str, Any]

    def write(self, task: RowsTask, folder: Path) -> str:
        """Write the rows of a task into a file of this attempt's own, and return its name."""
        name = f"part-{attempt_name()}.zstd.parquet"
        with new_data_file(folder / name, self._data_schema(), repeating=self.repeating) as writer:
            for rows in self.rows_of(task):
                writer.write_table(rows)
        return name

    def rows_of(self, task: RowsTask) -> Iterator[pa.Table]:
        """Yield the rows of a task without their day, in order of their offsets; no table is empty.

        Raises:
            RuntimeError: the staged blocks have another number of rows than was counted.
        """
        import pyarrow as pa

        held: list[pa.Table] = []
        rows = size = dealt = 0
        for group in row_groups(self.staging, Kind.EVENTS, task.blocks):
            found = self._rows(group, task.first_offset + dealt)
            # Without any new row: an empty row group would cost the file its statistics.
            if not found.num_rows:
                continue
            held.append(found)
            rows += found.num_rows
            size += found.nbytes
            dealt += found.num_rows
            if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
                yield pa.concat_tables(held)
                held, rows, size = [], 0, 0
        if dealt != task.rows:
            raise RuntimeError(
                f"staged blocks of {task.day} came to {dealt} rows, not the {task.rows} counted"
            )
        if held:
            yield pa.concat_tables(held)

    def _rows(self, group: RowGroup, offset: int) -> pa.Table:
        """Return the rows of a row group, with offsets from `offset` on."""
        import pyarrow as pa

        staged = group.read()
        lines = group.lines(staged.column("block_line"))
        lines = lines.where(~np.isin(lines.ordinals(), self._repeated(group.blocks)))
        made = {
            "offset": pa.array(np.arange(offset, offset + len(lines.row))),
            "source": lines.sources(),
            "source_position": lines.source_positions(),
            **{name: pa.repeat(value, len(lines.row)) for name, value in self._scalars().items()},
        }
        kept = staged.take(pa.array(lines.row)) if len(lines.row) < staged.num_rows else staged
        schema = self._data_schema()
        columns = [made[name] if name in made else kept.column(name) for name in schema.names]
        return pa.Table.from_arrays(columns, names=schema.names).cast(schema)

    def _scalars(self) -> dict[str, pa.Scalar]:
        import pyarrow as pa

        schema = self._data_schema()
        return {name: pa.scalar(value, schema.field(name).type) for name, value in self.stamps.items()}

    def _repeated(self, blocks: Sequence[LocatedBlock]) -> np.ndarray:
        """Return the ordinals of repeats that may be in some blocks."""
        ordinals = repeated_ordinals(self.repeats)
        begin = np.searchsorted(ordinals, blocks[0].first_ordinal)
        end = np.searchsorted(ordinals, first_ordinal(blocks[-1].staged.file_index + 1, 0))
        return ordinals[begin:end]

    def _data_schema(self) -> pa.Schema:
        """Return the schema of a data file: the columns of the table without the day."""
        return data_file_schema(self.contract, without=[DAY_COLUMN])


@lru_cache(maxsize=1)
def repeated_ordinals(files: tuple[str, ...]) -> np.ndarray:
    """Return the `ordinal` column of files, sorted. Cached: a process reads the files once per batch."""
    import pyarrow.parquet as pq

    parts = [pq.read_table(file, columns=["ordinal"]).column(0).to_numpy() for file in files]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))
