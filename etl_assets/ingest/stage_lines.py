"""Staging of source files: validate every line once, and write the results to Parquet files.

Events and rejected lines are written to separate files, which the later phases read.

Spark's Python workers read the source files and write the staged ones themselves; only the figures of each
block pass through Spark. Where there is little to read (`LITTLE_BYTES`), this process does the same. The
staging folder must be on a disk that all workers and this process share, as tables are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from itertools import groupby, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.compute.worker_tasks import attempt_name, figures_of
from etl_assets.delta.read.key_index import hashes_of
from etl_assets.delta.read.sorted_runs import Hashes
from etl_assets.delta.session import frame_of
from etl_assets.ingest.validated_records import (
    JudgedLines,
    events_of_columns,
    events_to_arrow,
    judge_lines,
    rejected_to_arrow,
)
from etl_assets.sources.lines import Block

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.contracts.envelope import Record
    from etl_assets.ingest.records import Records
    from etl_assets.sources.source_files import InputFile

TASK_BYTES = 8 << 20
"""Input of one task; a larger file that is not compressed is cut into blocks of that size."""
LITTLE_BYTES = 32 << 20
"""Input that this process validates by itself: some seconds of CPU time, as it takes to start workers."""
LITTLE_BY_COLUMNS = 128 << 20
"""The same of input that is validated by columns, which takes a sixth of the time."""
_CONTENT_PER_BYTE = 10
"""Most bytes of content for one of a file that cannot be cut, because it may be compressed."""
ID_HASH = "id_hash"
"""Staged column: `hashes_of` the id of a record, its bits read as a signed number."""
_PIECE_BYTES = 4 << 20
_PIECE_LINES = 1 << 16
"""About how many bytes, or lines, a worker holds as Python objects. They become one row group."""
_REPEATING = ("file_index", "block_start", "partition_date", "reason")
"""Columns with few values, for which a dictionary pays."""


class Kind(StrEnum):
    """Kinds of lines, staged in separate files."""

    EVENTS = "events"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBlock:
    """A block of a file, with the file's place in source order."""

    file_index: int
    input_file: InputFile
    block: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBlock:
    """Result of staging a block: the numbers of its lines, and where its events are staged.

    Attributes:
        file_index: The file, by its place in source order.
        block_start: The block's first byte.
        lines: Number of its lines: blank, skipped, rejected and events.
        blank: Lines of white space.
        skipped: Lines that say nothing about rows.
        rejected: Lines that are not events.
        events: Lines that are events.
        part: The part, which names the staged files that contain it.
        first_row: The row of its first event there.
        first_rejected: The row of its first rejected line there.
        lowest_id: Least of its event ids.
        highest_id: Greatest of its event ids.
    """

    file_index: int
    block_start: int
    lines: int
    blank: int
    skipped: int
    rejected: int
    events: int
    part: str
    first_row: int
    first_rejected: int
    lowest_id: str | None
    highest_id: str | None

    def span(self, kind: Kind) -> tuple[int, int]:
        """Return the row of its first line of a kind in the staged file, and the row after its last one."""
        if kind is Kind.EVENTS:
            return self.first_row, self.first_row + self.events
        return self.first_rejected, self.first_rejected + self.rejected


_FIGURES = tuple(each.name for each in fields(StagedBlock))
_TEXTS = ("part", "lowest_id", "highest_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The validated lines of a batch.

    Attributes:
        folder: Folder of the staged files.
        blocks: The blocks, in source order.
        id_column: The column of the records' ids.
    """

    folder: Path
    blocks: tuple[StagedBlock, ...]
    id_column: str

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that contain the batch."""
        return tuple(dict.fromkeys(each.part for each in self.blocks))

    def lines_before(self) -> Iterator[tuple[StagedBlock, int]]:
        """Yield each block with the number of lines before it in its file."""
        for _, of_file in groupby(self.blocks, key=lambda block: block.file_index):
            before = 0
            for block in of_file:
                yield block, before
                before += block.lines

    def events(self, spark: SparkSession) -> DataFrame:
        """Return place, id, fingerprint and `id_hash` of the events as a frame."""
        files = [str(staged_file(self.folder, Kind.EVENTS, part)) for part in self.parts]
        schema = (
            "file_index INT, block_start BIGINT, block_line BIGINT,"
            f" {self.id_column} STRING, fingerprint STRING, {ID_HASH} BIGINT"
        )
        return spark.read.schema(schema).parquet(*files) if files else frame_of(spark, [], schema)

    def id_hashes(self) -> Hashes:
        """Return `hashes_of` the ids of the events, without Spark."""
        import numpy as np

        signed = (piece.column(0).to_numpy() for piece in self.columns([ID_HASH]))
        return np.concatenate([np.empty(0, dtype=np.int64), *signed]).view(np.uint64)

    def columns(self, names: Sequence[str], among: Hashes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the events, or of those with some values of `id_hash`, without Spark."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.dataset

        if not self.parts:
            return
        files = [str(staged_file(self.folder, Kind.EVENTS, part)) for part in self.parts]
        wanted = (
            None if among is None else pyarrow.dataset.field(ID_HASH).isin(pa.array(among.view(np.int64)))
        )
        yield from pyarrow.dataset.dataset(files, format="parquet").to_batches(
            columns=list(names), filter=wanted
        )


def _bounds(ids: pa.Array) -> tuple[str, str]:
    """Return the least and the greatest of some ids."""
    import pyarrow.compute as pc

    found = pc.call_function("min_max", [ids])
    return found["min"].as_py(), found["max"].as_py()


def _size(record: Record) -> int:
    """Return about how many bytes a record holds."""
    return sum(len(str(value)) for value in record.values()) if isinstance(record, dict) else len(record)


def staged_file(folder: Path, kind: Kind, part: str) -> Path:
    """Return the file of a part's events or rejected lines."""
    return folder / f"{kind}-{part}.parquet"


def stage_lines(
    session: Callable[[], SparkSession], files: Iterable[InputFile], records: Records, folder: Path
) -> Staged:
    """Validate every line of files and stage the result.

    Args:
        session: Returns the session; not called for little work.
        files: The files, in source order.
        records: What their records must be.
        folder: An existing, empty folder for the staged files.
    """
    tasks = list(_tasks(files))

    def work(task: Sequence[SourceBlock]) -> Iterator[pa.RecordBatch]:
        yield from _stage(task, records, folder)

    schema = ", ".join(f"{name} {'STRING' if name in _TEXTS else 'BIGINT'}" for name in _FIGURES)
    figures = figures_of(session, tasks, work, schema, is_little=_is_little(tasks, records))
    blocks = (StagedBlock(**each) for each in figures)
    return Staged(
        folder=folder,
        blocks=tuple(sorted(blocks, key=lambda block: (block.file_index, block.block_start))),
        id_column=records.id_column,
    )


def _is_little(tasks: Sequence[Sequence[SourceBlock]], records: Records) -> bool:
    """Return whether this process validates the blocks of all tasks."""
    size = sum(_content_bytes(each) for task in tasks for each in task)
    if not tasks or size <= LITTLE_BYTES:
        return True
    return size <= LITTLE_BY_COLUMNS and _begins_by_columns(tasks[0][0], records)


def _begins_by_columns(source: SourceBlock, records: Records) -> bool:
    """Return whether the first records of a block are validated by columns. The others may be unlike them."""
    with closing(source.input_file.format.read(source.block, records.held_bytes)) as pieces:
        return any(records.columns_of(some, source.input_file) is not None for _, some in islice(pieces, 1))


def _content_bytes(source: SourceBlock) -> int:
    """Return about how many bytes of content a block has, rather too many."""
    if source.block.end is None:
        return source.input_file.file.size * _CONTENT_PER_BYTE
    return source.block.end - source.block.start


def _tasks(files: Iterable[InputFile]) -> Iterator[list[SourceBlock]]:
    """Yield blocks in source order, grouped into tasks of up to `TASK_BYTES`."""
    task: list[SourceBlock] = []
    held = 0
    for index, input_file in enumerate(files):
        size = input_file.file.size
        for block in input_file.format.blocks(input_file.path, size, TASK_BYTES):
            block_bytes = size if block.end is None else block.end - block.start
            if task and held + block_bytes > TASK_BYTES:
                yield task
                task, held = [], 0
            task.append(SourceBlock(file_index=index, input_file=input_file, block=block))
            held += block_bytes
    if task:
        yield task


def _stage(task: Sequence[SourceBlock], records: Records, folder: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    part = _Part(folder, records)
    blocks = [part.add(source) for source in task]
    part.close()
    types = {name: pa.string() if name in _TEXTS else pa.int64() for name in _FIGURES}
    yield pa.RecordBatch.from_pylist([asdict(block) for block in blocks], schema=pa.schema(types.items()))


class _Part:
    """The staged files that one attempt writes. Events are in the order of their lines."""

    def __init__(self, folder: Path, records: Records) -> None:
        self._folder, self._records, self._name = folder, records, attempt_name()
        self._writers: dict[Kind, pq.ParquetWriter] = {}
        self._judged: list[JudgedLines] = []
        self._held: dict[Kind, list[pa.Table]] = {kind: [] for kind in Kind}
        self._held_lines = self._held_bytes = 0
        self._events = self._rejected = 0

    def add(self, source: SourceBlock) -> StagedBlock:
        """Validate the lines of a block and stage them."""
        first_row, first_rejected = self._events, self._rejected
        lines = blank = skipped = 0
        lowest, highest = [], []
        records, format_ = self._records, source.input_file.format
        for position, some in format_.read(source.block, records.held_bytes):
            if (columns := records.columns_of(some, source.input_file)) is not None:
                least, greatest = _bounds(columns[records.id_column])
                lowest.append(least)
                highest.append(greatest)
                self._hold_columns(source, columns, first=lines, line_bytes=sum(map(len, some)))
                lines += len(some)
                continue
            judged = judge_lines(
                some,
                first=lines,
                file_index=source.file_index,
                block_start=source.block.start,
                input_file=source.input_file,
                positions=format_.positions(position, some) if records.uses_positions else repeat(0),
                records=records,
            )
            lines += len(some)
            skipped += judged.skipped
            blank += len(some) - judged.skipped - len(judged.rejected) - len(judged.events)
            if ids := [getattr(event, records.id_column) for event in judged.events]:
                lowest.append(min(ids))
                highest.append(max(ids))
            self._hold(judged, len(some), sum(map(_size, some)))
        return StagedBlock(
            file_index=source.file_index,
            block_start=source.block.start,
            lines=lines,
            blank=blank,
            skipped=skipped,
            rejected=self._rejected - first_rejected,
            events=self._events - first_row,
            part=self._name,
            first_row=first_row,
            first_rejected=first_rejected,
            lowest_id=min(lowest, default=None),
            highest_id=max(highest, default=None),
        )

    def close(self) -> None:
        """Write the lines still held, and finish the files."""
        self._write()
        for writer in self._writers.values():
            writer.close()

    def _hold(self, judged: JudgedLines, lines: int, line_bytes: int) -> None:
        self._judged.append(judged)
        self._events += len(judged.events)
        self._rejected += len(judged.rejected)
        self._held_more(lines, line_bytes)

    def _hold_columns(
        self, source: SourceBlock, columns: Mapping[str, pa.Array], *, first: int, line_bytes: int
    ) -> None:
        """Hold the columns of consecutive records, the first of which has a number in its block."""
        self._settle()
        lines = len(columns[self._records.id_column])
        place = JudgedLines(
            file_index=source.file_index, block_start=source.block.start, day=source.input_file.file.day
        )
        self._held[Kind.EVENTS].append(events_of_columns(place, range(first, first + lines), columns))
        self._events += lines
        self._held_more(lines, line_bytes)

    def _settle(self) -> None:
        """Make tables of the lines that were validated one by one."""
        if self._judged:
            self._held[Kind.EVENTS].append(events_to_arrow(self._judged, self._records))
            self._held[Kind.REJECTED].append(rejected_to_arrow(self._judged, self._records))
            self._judged = []

    def _held_more(self, lines: int, line_bytes: int) -> None:
        self._held_lines += lines
        self._held_bytes += line_bytes
        if self._held_bytes >= _PIECE_BYTES or self._held_lines >= _PIECE_LINES:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        self._settle()
        nothing = events_to_arrow([], self._records)
        events = pa.concat_tables(self._held[Kind.EVENTS] or [nothing])
        id_hash = hashes_of(events.column(self._records.id_column)).view("int64")
        # The file of events exists even without any.
        if events.num_rows or Kind.EVENTS not in self._writers:
            self._append(Kind.EVENTS, events.append_column(ID_HASH, pa.array(id_hash, pa.int64())))
        if self._held[Kind.REJECTED] and (rejected := pa.concat_tables(self._held[Kind.REJECTED])).num_rows:
            self._append(Kind.REJECTED, rejected)
        self._held = {kind: [] for kind in Kind}
        self._held_lines = self._held_bytes = 0

    def _append(self, kind: Kind, rows: pa.Table) -> None:
        import pyarrow.parquet as pq

        if kind not in self._writers:
            file = staged_file(self._folder, kind, self._name)
            self._writers[kind] = pq.ParquetWriter(
                file, rows.schema, use_dictionary=self._repeating(rows), store_schema=False
            )
        self._writers[kind].write_table(rows)

    def _repeating(self, rows: pa.Table) -> list[str]:
        return [name for name in (*_REPEATING, *self._records.repeating) if name in rows.column_names]
