"""The events of a batch that become rows of raw_events, with their offsets: as a frame, or written by workers as data files.

Offsets are dense from the first one, in source order. How many rows each staged block gives is known, so each task is told
its first offset, and checks that it comes to as many rows as planned.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.contracts.tables import RAW_EVENTS
from etl_assets.delta.records import arrow_schema
from etl_assets.delta.rows import DAY_COLUMN
from etl_assets.steps.stage_lines import StagedBlock, staged_file
from etl_assets.steps.worker_tasks import attempt_name, figures_of, in_workers
from etl_assets.transforms.line_positions import first_ordinal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS_A_FILE = 500_000
"""About so many rows a data file; a day has at least one of its own."""
_ROWS_AT_ONCE = 100_000
_BYTES_AT_ONCE = 64 << 20
"""As many rows, or bytes of them, a worker holds before it writes them: records may be long."""
_ATTEMPTS = "attempts"
_REPEATING = (
    "tenant_id",
    "event_type",
    "schema_version",
    "source",
    "ingest_domain",
    "ingested_at",
    "batch_id",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBlock:
    """A staged block with what its rows say of their source, and how many of its events become rows."""

    staged: StagedBlock
    source: str
    file_position: str
    lines_before: int
    new: int

    @property
    def first_row(self) -> int:
        """The row of its first event in its staged file."""
        return self.staged.first_row

    @property
    def end_row(self) -> int:
        """The row after its last one."""
        return self.staged.first_row + self.staged.events


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsTask:
    """Blocks of one day that follow each other in source order, and the offset of their first row."""

    day: dt.date
    first_offset: int
    blocks: tuple[PlacedBlock, ...]

    @property
    def rows(self) -> int:
        """Rows the blocks come to."""
        return sum(block.new for block in self.blocks)


def rows_tasks(
    blocks: Iterable[tuple[dt.date, PlacedBlock]], first_offset: int, rows_a_file: int = ROWS_A_FILE
) -> Iterator[RowsTask]:
    """Cut blocks, in source order, into tasks of one day and not too many rows; those without rows are left out."""
    held: list[PlacedBlock] = []
    rows, of_day = 0, dt.date.min
    for day, block in blocks:
        if not block.new:
            continue
        if held and (day != of_day or rows + block.new > rows_a_file):
            yield RowsTask(day=of_day, first_offset=first_offset, blocks=tuple(held))
            first_offset += rows
            held, rows = [], 0
        of_day = day
        held.append(block)
        rows += block.new
    if held:
        yield RowsTask(day=of_day, first_offset=first_offset, blocks=tuple(held))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """The rows of a batch.

    Attributes:
        spark: The session.
        tasks: Their parts.
        staging: Folder of the staged events.
        repeats: Parquet files with the `ordinal` of each event that does not become a row; empty for none.
        ingest_domain: For the column of that name.
        ingested_at: For the column of that name.
        batch_id: For the column of that name.
    """

    spark: SparkSession
    tasks: tuple[RowsTask, ...]
    staging: Path
    repeats: tuple[str, ...]
    ingest_domain: str
    ingested_at: dt.datetime
    batch_id: int

    def frame(self) -> DataFrame:
        """The rows with the columns of raw_events."""
        import pyarrow as pa

        def work(task: RowsTask) -> Iterator[pa.RecordBatch]:
            for rows in make.rows_of(task):
                day = pa.array([task.day] * rows.num_rows, pa.date32())
                whole = rows.append_column(DAY_COLUMN, day).select(RAW_EVENTS.names)
                yield from whole.combine_chunks().to_batches()

        make = self._maker()
        columns = ", ".join(f"{column.name} {column.type}" for column in RAW_EVENTS.columns)
        return in_workers(self.spark, self.tasks, work, columns)

    def write(self, folder: Path) -> None:
        """Write the rows as Parquet files into a new folder, laid out by day as Delta has it.

        Attempts write into a folder beside it, where the files of those that do not count stay: some may be at work still.
        """
        import pyarrow as pa

        def work(task: RowsTask) -> Iterator[pa.RecordBatch]:
            name = make.write(task, attempts)
            yield pa.RecordBatch.from_pydict({"partition_date": [task.day], "name": [name]})

        make, attempts = self._maker(), folder.with_name(_ATTEMPTS)
        attempts.mkdir(parents=True)
        folder.mkdir()
        for row in figures_of(self.spark, self.tasks, work, f"{DAY_COLUMN} DATE, name STRING"):
            target = folder / f"{DAY_COLUMN}={row[DAY_COLUMN].isoformat()}"
            target.mkdir(exist_ok=True)
            (attempts / row["name"]).rename(target / row["name"])

    def _maker(self) -> _RowMaker:
        return _RowMaker(
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
    """What a worker does for a task. `stamps` are columns with one value for all rows."""

    staging: Path
    repeats: tuple[str, ...]
    stamps: Mapping[str, Any]

    def write(self, task: RowsTask, folder: Path) -> str:
        """Write the rows of a task into a file of this attempt's own; returns its name."""
        import pyarrow.parquet as pq

        name = f"part-{attempt_name()}.zstd.parquet"
        writer = pq.ParquetWriter(
            folder / name,
            _data_schema(),
            compression="zstd",
            compression_level=1,
            use_dictionary=_REPEATING,
            store_schema=False,
        )
        with writer:
            for rows in self.rows_of(task):
                writer.write_table(rows)
        return name

    def rows_of(self, task: RowsTask) -> Iterator[pa.Table]:
        """The rows of a task without their day, in order of their offsets; no table is empty."""
        import pyarrow as pa

        held: list[pa.Table] = []
        rows = size = dealt = 0
        for staged, begin, blocks in self._row_groups(task.blocks):
            found = self._rows(staged, begin, blocks, task.first_offset + dealt)
            # Only repeats: a row group without rows would cost the file its statistics.
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

    def _row_groups(
        self, blocks: Sequence[PlacedBlock]
    ) -> Iterator[tuple[pa.Table, int, Sequence[PlacedBlock]]]:
        """Row groups with events of the blocks, each with the number of its first row and the blocks that it has some of."""
        import pyarrow.parquet as pq

        for part, of_part in groupby(blocks, key=lambda block: block.staged.part):
            waiting = list(of_part)
            with pq.ParquetFile(staged_file(self.staging, "events", part)) as file:
                begin = 0
                for number in range(file.num_row_groups):
                    end = begin + file.metadata.row_group(number).num_rows
                    here = [block for block in waiting if block.first_row < end and block.end_row > begin]
                    if here:
                        yield file.read_row_group(number), begin, here
                    begin = end

    def _rows(self, staged: pa.Table, begin: int, blocks: Sequence[PlacedBlock], offset: int) -> pa.Table:
        """The rows that a row group comes to."""
        import pyarrow as pa
        import pyarrow.compute as pc

        spans = [
            (max(block.first_row - begin, 0), min(block.end_row - begin, staged.num_rows)) for block in blocks
        ]
        taken = np.concatenate([np.arange(first, end) for first, end in spans])
        block = np.repeat(np.arange(len(blocks)), [end - first for first, end in spans])
        line = staged.column("block_line").to_numpy()[taken]
        base = np.array([first_ordinal(each.staged.file_index, each.staged.block_start) for each in blocks])
        new = ~np.isin(base[block] + line, self._repeated(blocks))
        taken, block, line = taken[new], block[new], line[new]

        def of_block(values: Iterable[str]) -> pa.Array:
            return pa.array(list(values), pa.string()).take(pa.array(block))

        number = line + np.array([each.lines_before + 1 for each in blocks])[block]
        files = of_block(each.file_position for each in blocks)
        texts = [files, pa.array(number).cast(pa.string()), pa.scalar(":")]
        position = pc.call_function("binary_join_element_wise", texts)
        made = {
            "offset": pa.array(np.arange(offset, offset + len(taken))),
            "source": of_block(each.source for each in blocks),
            "source_position": position,
            **{name: pa.repeat(value, len(taken)) for name, value in self._scalars().items()},
        }
        kept = staged.take(pa.array(taken)) if len(taken) < staged.num_rows else staged
        schema = _data_schema()
        columns = [made[name] if name in made else kept.column(name) for name in schema.names]
        return pa.Table.from_arrays(columns, names=schema.names).cast(schema)

    def _scalars(self) -> dict[str, pa.Scalar]:
        import pyarrow as pa

        schema = _data_schema()
        return {name: pa.scalar(value, schema.field(name).type) for name, value in self.stamps.items()}

    def _repeated(self, blocks: Sequence[PlacedBlock]) -> np.ndarray:
        """Ordinals of the repeats that may be in some blocks."""
        ordinals = repeated_ordinals(self.repeats)
        first, last = blocks[0].staged, blocks[-1].staged
        begin = np.searchsorted(ordinals, first_ordinal(first.file_index, first.block_start))
        end = np.searchsorted(ordinals, first_ordinal(last.file_index + 1, 0))
        return ordinals[begin:end]


@lru_cache(maxsize=1)
def repeated_ordinals(files: tuple[str, ...]) -> np.ndarray:
    """The `ordinal` column of files, sorted. Read once for each batch that a process works on."""
    import pyarrow.parquet as pq

    parts = [pq.read_table(file, columns=["ordinal"]).column(0).to_numpy() for file in files]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


def _data_schema() -> pa.Schema:
    """The columns of raw_events as a data file has them: without the day, and all nullable, as Spark writes them."""
    import pyarrow as pa

    return pa.schema([each.with_nullable(True) for each in arrow_schema(RAW_EVENTS, without=[DAY_COLUMN])])
