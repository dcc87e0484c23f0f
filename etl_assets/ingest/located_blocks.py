"""Staged blocks with their place in the source, and the parts of staged files that contain them.

Belongs here: from a block to its lines, their ordinals and source positions. Does not belong here: what
becomes of the lines (`raw_rows.py`, `raw_exceptions.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etl_assets.ingest.stage_lines import Kind, StagedBlock, staged_file
from etl_assets.transforms.line_positions import first_ordinal

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from etl_assets.sources.source_files import InputFile


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedBlock:
    """A staged block with the source of its lines and the outcomes of its events.

    Attributes:
        staged: The block.
        input_file: Its file.
        lines_before: Number of lines before it in its file.
        new: Events that become rows.
        repeated: Events that are duplicates or conflicts. Events that are neither new nor repeated are rows
            of the table already.
    """

    staged: StagedBlock
    input_file: InputFile
    lines_before: int
    new: int
    repeated: int

    @property
    def day(self) -> dt.date:
        """The day of its file."""
        return self.input_file.file.day

    @property
    def source(self) -> str:
        """The source of its file."""
        return self.input_file.file.source

    @property
    def path(self) -> str:
        """Path of its file."""
        return self.input_file.path

    @property
    def file_position(self) -> str:
        """Source position of its file, without a line number."""
        return self.input_file.file.position

    @property
    def exceptions(self) -> int:
        """Number of lines that become exceptions: rejected lines, duplicates and conflicts."""
        return self.staged.rejected + self.repeated

    @property
    def first_ordinal(self) -> int:
        """The ordinal of the block's first line."""
        return first_ordinal(self.staged.file_index, self.staged.block_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Some staged lines of a row group.

    Attributes:
        blocks: Blocks of the row group.
        row: For each line, its row in the row group.
        block: For each line, the index of its block.
        number: For each line, its number in the block, from 0.
    """

    blocks: Sequence[LocatedBlock]
    row: np.ndarray
    block: np.ndarray
    number: np.ndarray

    def where(self, wanted: np.ndarray) -> Lines:
        """Return the lines for which `wanted` is true."""
        return Lines(
            blocks=self.blocks, row=self.row[wanted], block=self.block[wanted], number=self.number[wanted]
        )

    def ordinals(self) -> np.ndarray:
        """Return the ordinal of each line."""
        return np.array([each.first_ordinal for each in self.blocks])[self.block] + self.number

    def sources(self) -> pa.Array:
        """Return the source of each line."""
        return self._of_block(each.source for each in self.blocks)

    def source_positions(self) -> pa.Array:
        """Return the position of each line: `<day>/<file>:<line>`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        number = self.number + np.array([each.lines_before + 1 for each in self.blocks])[self.block]
        files = self._of_block(each.file_position for each in self.blocks)
        texts = [files, pa.array(number).cast(pa.string()), pa.scalar(":")]
        return pc.call_function("binary_join_element_wise", texts)

    def _of_block(self, values: Iterable[str]) -> pa.Array:
        import pyarrow as pa

        return pa.array(list(values), pa.string()).take(pa.array(self.block))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group of a staged file, with the blocks that have lines in it.

    Attributes:
        file: The staged file, open.
        kind: The kind of lines staged in the file.
        number: The row group's number.
        begin: The row of the file that it begins with.
        blocks: The blocks.
    """

    file: pq.ParquetFile
    kind: Kind
    number: int
    begin: int
    blocks: Sequence[LocatedBlock]

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all its rows, including those of other blocks; some columns, or all."""
        return self.file.read_row_group(self.number, columns=None if columns is None else list(columns))

    def lines(self, block_line: pa.ChunkedArray) -> Lines:
        """Return the lines of the blocks in this row group, by its column `block_line`."""
        spans = [each.staged.span(self.kind) for each in self.blocks]
        inside = [
            (max(first - self.begin, 0), min(end - self.begin, len(block_line))) for first, end in spans
        ]
        row = np.concatenate([np.arange(first, end) for first, end in inside])
        block = np.repeat(np.arange(len(self.blocks)), [end - first for first, end in inside])
        return Lines(blocks=self.blocks, row=row, block=block, number=block_line.to_numpy()[row])


def row_groups(staging: Path, kind: Kind, blocks: Iterable[LocatedBlock]) -> Iterator[RowGroup]:
    """Yield the row groups of staged files that have lines of some blocks, in the order of the blocks."""
    import pyarrow.parquet as pq

    for part, of_part in groupby(blocks, key=lambda block: block.staged.part):
        waiting = list(of_part)
        with pq.ParquetFile(staged_file(staging, kind, part)) as file:
            begin = 0
            for number in range(file.num_row_groups):
                end = begin + file.metadata.row_group(number).num_rows
                spans = ((block, *block.staged.span(kind)) for block in waiting)
                if here := [block for block, first, last in spans if first < end and last > begin]:
                    yield RowGroup(file=file, kind=kind, number=number, begin=begin, blocks=here)
                begin = end
