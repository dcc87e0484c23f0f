"""Records of a batch that do not become rows of the source's table: as a frame, or written by workers as data
files.

They are written like the rows (`raw_rows.py`). Each task reads only the columns it needs of its blocks'
staged lines, holds a bounded part of them, and checks that it yields as many exceptions as were counted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.compute.worker_tasks import Written, attempt_name, in_workers, write_in_workers
from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.read.data_files import new_data_file
from etl_assets.delta.read.rows import DAY_COLUMN, KnownFiles, day_folder
from etl_assets.delta.write.staged import is_little
from etl_assets.delta.write.write import DeferredRows
from etl_assets.ingest.exceptions_tasks import ExceptionsTask
from etl_assets.ingest.located_blocks import Lines, LocatedBlock, RowGroup, row_groups
from etl_assets.ingest.original_offsets import read_offsets
from etl_assets.ingest.source_lines import SourceLines
from etl_assets.ingest.stage_lines import Kind
from etl_assets.steps.exceptions import Stamps
from etl_assets.transforms.exceptions import rejected_lines, repeated_events
from etl_assets.transforms.line_positions import first_ordinal

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.contracts.columns import TableContract
    from etl_assets.ingest.records import Records

_ROWS_AT_ONCE = 100_000
_BYTES_AT_ONCE = 16 << 20
"""About how many exceptions, or bytes, a worker holds before it writes them: records may be long."""
_REPEATING = ("stage", "reason", "error", "record_encoding", "source", "domain", "failed_at", "batch_id")
_OUTCOME = "outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawExceptions:
    """The exceptions of a batch.

    Attributes:
        session: Returns the session, and starts Spark on first use.
        contract: The table of the exceptions.
        stage: Name of the stage in them.
        records: What the records had to be.
        tasks: The tasks that write them.
        staging: Folder of the staged lines.
        repeats: Parquet files with the result of `find_duplicates`; empty if it found nothing.
        originals: The file of `write_offsets`, for events that later lines of the batch repeat; None if there
            are none.
        stamps: Columns with one value for all exceptions.
    """

    session: Callable[[], SparkSession]
    contract: TableContract
    stage: str
    records: Records
    tasks: tuple[ExceptionsTask, ...]
    staging: Path
    repeats: tuple[str, ...]
    originals: str | None
    stamps: Stamps

    def frame(self) -> DataFrame:
        """Return the exceptions with the columns of their table, for a table that Delta writes."""
        import pyarrow as pa

        # Not of `self`, which workers cannot get: it has the session.
        make, names = self._maker(), self.contract.names

        def work(task: ExceptionsTask) -> Iterator[pa.RecordBatch]:
            for day, rows in make.rows_of(task):
                days = pa.array([day] * rows.num_rows, pa.date32())
                whole = rows.append_column(DAY_COLUMN, days).select(names)
                yield from whole.combine_chunks().to_batches()

        columns = ", ".join(f"{column.name} {column.type}" for column in self.contract.columns)
        return in_workers(self.session(), self.tasks, work, columns)

    def for_commit(self) -> DataFrame | DeferredRows:
        """Return the exceptions for a commit: deferred if this process writes them, which needs no Spark."""
        if len(self.tasks) > 1 and not self._is_little:
            return self.frame()
        return DeferredRows(schema=struct_type(self.contract), frame=self.frame)

    def write(self, folder: Path, known: KnownFiles) -> int:
        """Write exceptions as Parquet files into a new folder, laid out as Delta has it: `Write.files`.

        Exceptions that `known` files already have are left out. Returns their number.
        """
        make = self._maker()

        def write(task: ExceptionsTask, attempts: Path) -> Iterator[Written]:
            return make.write(task, attempts, known)

        return write_in_workers(self.session, self.tasks, write, folder, is_little=self._is_little)

    @property
    def _is_little(self) -> bool:
        """Whether this process writes them, however many tasks there are: a day of few rows is a task too."""
        return is_little(self.staging.iterdir())

    def _maker(self) -> _ExceptionMaker:
        return _ExceptionMaker(
            contract=self.contract,
            stage=self.stage,
            records=self.records,
            staging=self.staging,
            repeats=self.repeats,
            originals=self.originals,
            stamps=asdict(self.stamps),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExceptionMaker:
    """Writes the exceptions of a task, in a worker. `stamps` are columns with one value for all rows."""

    contract: TableContract
    stage: str
    records: Records
    staging: Path
    repeats: tuple[str, ...]
    originals: str | None
    stamps: Mapping[str, Any]

    def write(self, task: ExceptionsTask, folder: Path, known: KnownFiles) -> Iterator[Written]:
        """Write the exceptions of a task that are not known into files of this attempt.

        There is one file per day and outcome.
        """
        for day, found in groupby(self.rows_of(task), key=lambda pair: pair[0]):
            left_out = 0
            with _Files(folder) as files:
                for _, rows in found:
                    new = _unknown(rows, known.get(day, ()))
                    left_out += rows.num_rows - new.num_rows
                    files.add(new)
            for outcome, name in files.names.items():
                yield Written(partition=f"{day_folder(day)}/{_OUTCOME}={outcome}", name=name)
            if left_out:
                yield Written(partition=day_folder(day), name=None, left_out=left_out)

    def rows_of(self, task: ExceptionsTask) -> Iterator[tuple[dt.date, pa.Table]]:
        """Yield the exceptions of a task as pairs of day and table.

        The tables have no day column, and none is empty.

        Raises:
            RuntimeError: the staged blocks have another number of exceptions than was counted.
        """
        import pyarrow as pa

        repeats = self._repeats_of(task)
        made = 0
        for day, blocks in groupby(task.blocks, key=lambda block: block.day):
            held: list[pa.Table] = []
            rows = size = 0
            for found in self._of_day(tuple(blocks), repeats):
                held.append(found)
                made += found.num_rows
                rows += found.num_rows
                size += found.nbytes
                if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
                    yield day, pa.concat_tables(held)
                    held, rows, size = [], 0, 0
            if held:
                yield day, pa.concat_tables(held)
        if made != task.exceptions:
            raise RuntimeError(f"staged blocks came to {made} exceptions, not the {task.exceptions} counted")

    def _of_day(self, blocks: Sequence[LocatedBlock], repeats: _Repeats) -> Iterator[pa.Table]:
        """Yield the exceptions of some blocks, by row group: the rejected lines first."""
        with_rejected = (block for block in blocks if block.staged.rejected)
        for group in row_groups(self.staging, Kind.REJECTED, with_rejected):
            yield self._rejected(group)
        with_repeats = (block for block in blocks if block.repeated)
        with closing(SourceLines(self.records)) as source:
            for group in row_groups(self.staging, Kind.EVENTS, with_repeats):
                found = self._repeated(group, repeats, source)
                if found.num_rows:
                    yield found

    def _rejected(self, group: RowGroup) -> pa.Table:
        import pyarrow as pa

        staged = group.read()
        lines = group.lines(staged.column("block_line"))
        taken = staged.take(pa.array(lines.row))
        made = rejected_lines(taken, lines.sources(), lines.source_positions(), self.stage)
        return self._table(made, taken.num_rows)

    def _repeated(self, group: RowGroup, repeats: _Repeats, source: SourceLines) -> pa.Table:
        """Return the duplicates and conflicts of a row group.

        Reads one column first: most row groups have few repeats, and most repeats need few columns.
        """
        import pyarrow as pa

        lines = group.lines(group.read(["block_line"]).column(0))
        lines = lines.where(np.isin(lines.ordinals(), repeats.ordinals))
        if not len(lines.row):
            return self._schema().empty_table()
        place = np.searchsorted(repeats.ordinals, lines.ordinals())
        id_column = self.records.id_column
        wanted = [name for name in (id_column, "fingerprint", "trace_id") if name in self._staged]
        events = group.read(wanted).take(pa.array(lines.row))
        events = events.rename_columns({id_column: "event_id"})
        made = repeated_events(
            events,
            lines.sources(),
            lines.source_positions(),
            repeats.original_offset.take(pa.array(place)),
            _records(events, lines, np.flatnonzero(repeats.conflict[place]), source),
            self.stage,
        )
        return self._table(made, events.num_rows)

    def _table(self, made: Mapping[str, Any], rows: int) -> pa.Table:
        import pyarrow as pa

        def column(field: pa.Field) -> pa.ChunkedArray | pa.Array:
            if field.name in self.stamps:
                return pa.repeat(pa.scalar(self.stamps[field.name], field.type), rows)
            return made[field.name] if field.name in made else pa.nulls(rows, field.type)

        schema = self._schema()
        return pa.Table.from_arrays([column(field) for field in schema], names=schema.names).cast(schema)

    @property
    def _staged(self) -> Collection[str]:
        return self.records.staged.keys()

    def _schema(self) -> pa.Schema:
        """Return the schema of a data file: the columns of the table without the day."""
        return data_file_schema(self.contract, without=[DAY_COLUMN])

    def _repeats_of(self, task: ExceptionsTask) -> _Repeats:
        """Return the duplicates and conflicts that may be in a task. Rows that the table has are left out."""
        import pyarrow as pa
        import pyarrow.dataset

        if not any(block.repeated for block in task.blocks):
            return _Repeats(
                ordinals=np.empty(0, dtype=np.int64),
                conflict=np.empty(0, dtype=bool),
                original_offset=pa.array([], pa.int64()),
            )
        field = pyarrow.dataset.field
        first = task.blocks[0].first_ordinal
        end = first_ordinal(task.blocks[-1].staged.file_index + 1, 0)
        wanted = (field("ordinal") >= first) & (field("ordinal") < end)
        found = pyarrow.dataset.dataset(list(self.repeats), format="parquet").to_table(
            columns={
                "ordinal": field("ordinal"),
                "conflict": field(_OUTCOME) == Outcome.CONFLICT.value,
                "original_offset": field("original_offset"),
                "original_ordinal": field("original_ordinal"),
            },
            filter=wanted & (field(_OUTCOME) != Outcome.ACCEPTED.value),
        )
        found = found.sort_by("ordinal").combine_chunks()
        return _Repeats(
            ordinals=found.column("ordinal").to_numpy(),
            conflict=found.column("conflict").to_numpy(),
            original_offset=self._original_offset(found),
        )

    def _original_offset(self, repeats: pa.Table) -> pa.ChunkedArray:
        """Return, for each repeat, the offset of the accepted event, in the table or in the batch."""
        import pyarrow as pa
        import pyarrow.compute as pc

        in_table, in_batch = repeats.column("original_offset"), repeats.column("original_ordinal")
        if in_table.null_count == 0:
            return in_table
        ordinals, offsets = read_offsets(self.originals)
        is_in_table = in_batch.is_null().to_numpy()
        place = np.searchsorted(ordinals, in_batch.fill_null(0).to_numpy())
        place[is_in_table] = 0
        dealt = pa.chunked_array([pa.array(offsets[place], mask=is_in_table)])
        return pc.call_function("coalesce", [in_table, dealt])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeats:
    """Duplicates and conflicts, sorted by their ordinals."""

    ordinals: np.ndarray
    conflict: np.ndarray
    original_offset: pa.ChunkedArray | pa.Array


class _Files:
    """The files of a day that one attempt writes. `names` has their names by outcome."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, pq.ParquetWriter] = {}
        self.names: dict[str, str] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def add(self, rows: pa.Table) -> None:
        """Write exceptions, each into the file of its outcome."""
        import pyarrow.compute as pc

        for outcome in rows.column(_OUTCOME).unique().to_pylist():
            of_outcome = rows.filter(pc.field(_OUTCOME) == outcome).drop_columns([_OUTCOME])
            self._writer(outcome, of_outcome.schema).write_table(of_outcome)

    def _writer(self, outcome: str, schema: pa.Schema) -> pq.ParquetWriter:
        if outcome not in self._writers:
            name = self.names[outcome] = f"part-{attempt_name()}.zstd.parquet"
            self._writers[outcome] = new_data_file(self._folder / name, schema, repeating=_REPEATING)
        return self._writers[outcome]


def _records(events: pa.Table, lines: Lines, conflicts: np.ndarray, source: SourceLines) -> dict[int, str]:
    """Return the original records of conflicts, by their rows among repeated events."""
    return {
        row: source.record(
            lines.blocks[lines.block[row]], int(lines.number[row]), events.column("fingerprint")[row].as_py()
        )
        for row in conflicts.tolist()
    }


def _unknown(rows: pa.Table, known: Sequence[str]) -> pa.Table:
    """Return the exceptions that none of some data files has.

    The search reads all ids of the files each time, and holds only those that match: a day may have any
    number of them.
    """
    import pyarrow.compute as pc
    import pyarrow.dataset

    if not known:
        return rows
    key = "exception_id"
    ids = rows.column(key).combine_chunks()
    found = pyarrow.dataset.dataset(list(known), format="parquet").to_table(
        columns=[key], filter=pyarrow.dataset.field(key).isin(ids), batch_readahead=1, fragment_readahead=1
    )
    return rows.filter(~pc.field(key).isin(found.column(key).combine_chunks()))
