"""Rows and changes of a range that came as columns, staged as the rows of a table.

Belongs here: reading staged files of columns, and writing those of rows, several at a time. Does not belong
here: which rows are plain (`sources/sql/typed_rows.py`, `direct_changes.py`), and the others
(`direct_lines.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from etl_assets.contracts.arrow_calls import call
from etl_assets.ingest.direct_changes import TypedChanges
from etl_assets.ingest.direct_lines import FoundLine, FoundLines
from etl_assets.pipelines.declared import OFFSET
from etl_assets.sources.postgres_cdc.staged import SUFFIX, records_of
from etl_assets.sources.sql.staged import COLUMNS
from etl_assets.sources.sql.typed_rows import IS_PLAIN
from etl_assets.steps.plain_stage import ROWS_PER_FILE, PlainRows, StagedRowsWriter

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.sources.source_files import InputFile, SourceFile

_ROWS_PER_THREAD = 100_000
"""Fewer rows are staged by one thread."""
_ROWS_AT_ONCE = 100_000
_BYTES_AT_ONCE = 32 << 20
"""So many changes, or about so many bytes of them, are written together."""


def has_columns(file: SourceFile) -> bool:
    """Return whether a staged file has columns, and no lines."""
    return file.name == COLUMNS or file.name.endswith(SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedColumns:
    """Rows that came as columns.

    Attributes:
        rows: The plain ones, staged.
        offsets: Of rows of a query the offsets of those that are not plain, in order: their lines are in
            another file.
        lines: Changes that are not plain.
        next_offset: The next offset.
    """

    rows: PlainRows
    offsets: np.ndarray
    lines: tuple[FoundLines, ...]
    next_offset: int


class _Staged(NamedTuple):
    rows: PlainRows
    offsets: np.ndarray
    lines: tuple[FoundLines, ...] = ()


@dataclass(slots=True, kw_only=True)
class ColumnsStage:
    """Stages the files of one range.

    Attributes:
        tables: The pipeline's tables.
        changes: The columns that are taken from changes; None: the source has rows.
        held_bytes: How many bytes of a record are held.
        batch_id: The version that the batch becomes.
        folder: Folder for the staged files.
    """

    tables: DeclaredTables
    changes: TypedChanges | None
    held_bytes: int
    batch_id: int
    folder: Path
    _number: int = field(default=0, init=False)

    def run(self, files: Sequence[InputFile], first: int) -> StagedColumns:
        """Stage files.

        Args:
            files: The files, in source order.
            first: The first offset.
        """
        import numpy as np

        done: list[_Staged] = []
        if self.changes is None:
            for file in files:
                first, staged = self._rows(file, first)
                done += staged
        else:
            first, done = self._changes(files, first)
        return StagedColumns(
            rows=PlainRows.together([each.rows for each in done]),
            offsets=np.concatenate([np.empty(0, dtype=np.int64), *(each.offsets for each in done)]),
            lines=tuple(lines for each in done for lines in each.lines),
            next_offset=first,
        )

    def _rows(self, file: InputFile, first: int) -> tuple[int, list[_Staged]]:
        """Stage the rows of a query, and return the next offset."""
        import pyarrow as pa

        with pa.memory_map(file.path) as mapped, pa.ipc.open_file(mapped) as reader:
            rows = reader.read_all()
            size = _size_of_part(rows.num_rows)
            parts = [(rows.slice(begin, size), first + begin) for begin in range(0, rows.num_rows, size)]
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                tasks = [(*part, self._path()) for part in parts]
                done = list(threads.map(lambda task: self._stage_rows(*task), tasks))
        return first + rows.num_rows, done

    def _stage_rows(self, rows: pa.Table, first: int, path: Path) -> _Staged:
        import numpy as np
        import pyarrow as pa

        is_plain = rows.column(IS_PLAIN).to_numpy()
        offsets = np.arange(first, first + rows.num_rows, dtype=np.int64)
        rows = rows.drop_columns([IS_PLAIN]).append_column(OFFSET, pa.array(offsets))
        others = offsets[~is_plain]
        if len(others):
            rows = rows.filter(pa.array(is_plain))
        with StagedRowsWriter(tables=self.tables, batch_id=self.batch_id, path=path) as writer:
            if rows.num_rows:
                writer.write(rows)
        return _Staged(writer.staged, others)

    def _changes(self, files: Sequence[InputFile], first: int) -> tuple[int, list[_Staged]]:
        """Stage changes, and return the next offset."""
        numbered, begin = [], first
        for file in files:
            numbered.append((file, first))
            first += sum(batch.num_rows for batch in _batches(file))
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            tasks = [(part, self._path()) for part in _parts(numbered, first, _size_of_part(first - begin))]
            return first, list(threads.map(lambda task: self._stage_changes(*task), tasks))

    def _stage_changes(self, files: Sequence[tuple[InputFile, int]], path: Path) -> _Staged:
        import numpy as np
        import pyarrow as pa

        assert self.changes is not None  # these are some
        lines, held = [], list[pa.Table]()
        with StagedRowsWriter(tables=self.tables, batch_id=self.batch_id, path=path) as writer:
            for file, first in files:
                found, place = list[tuple[int, FoundLine]](), 0
                for batch in _batches(file):
                    rows, is_plain = self.changes.typed(batch)
                    offsets = pa.array(np.arange(first + place, first + place + batch.num_rows))
                    rows = rows.append_column(OFFSET, offsets)
                    if is_plain.false_count:
                        found += self._others(file, batch, is_plain, first, place)
                        rows = rows.filter(is_plain)
                    held.append(rows)
                    place += batch.num_rows
                    if _is_enough(held):
                        writer.write(pa.concat_tables(held))
                        held.clear()
                if found:
                    of_lines = np.array([offset for offset, _ in found], dtype=np.int64)
                    lines.append(FoundLines(file=file, lines=[each for _, each in found], offsets=of_lines))
            if held:
                writer.write(pa.concat_tables(held))
        return _Staged(writer.staged, np.empty(0, dtype=np.int64), tuple(lines))

    def _others(
        self, file: InputFile, batch: pa.RecordBatch, is_plain: pa.Array, first: int, place: int
    ) -> Iterator[tuple[int, FoundLine]]:
        """Yield the records of changes that are not plain, with their offsets."""
        import numpy as np

        others = batch.filter(call("invert", is_plain))
        places = np.flatnonzero(~is_plain.to_numpy(zero_copy_only=False)) + place
        for at, record in zip(places.tolist(), records_of(others, self.held_bytes), strict=True):
            yield first + at, FoundLine(number=file.file.first_line + at, position=at, record=record)

    def _path(self) -> Path:
        self._number += 1
        return self.folder / f"rows-{self._number:05}.zstd.parquet"


def _batches(file: InputFile) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with pa.memory_map(file.path) as mapped, pa.ipc.open_stream(mapped) as stream:
        yield from stream


def _is_enough(held: Sequence[pa.Table]) -> bool:
    return (
        sum(each.num_rows for each in held) >= _ROWS_AT_ONCE
        or sum(each.nbytes for each in held) >= _BYTES_AT_ONCE
    )


def _parts(
    numbered: Sequence[tuple[InputFile, int]], end: int, size: int
) -> Iterator[list[tuple[InputFile, int]]]:
    """Yield files put together to about so many rows; a file is never divided."""
    part: list[tuple[InputFile, int]] = []
    for number, (file, first) in enumerate(numbered):
        part.append((file, first))
        following = numbered[number + 1][1] if number + 1 < len(numbered) else end
        if following - part[0][1] >= size:
            yield part
            part = []
    if part:
        yield part


def _size_of_part(rows: int) -> int:
    """Return how many rows one of the files has that rows are cut into."""
    number = max(1, -(-rows // ROWS_PER_FILE), min(os.cpu_count() or 1, rows // _ROWS_PER_THREAD))
    return max(1, -(-rows // number))
