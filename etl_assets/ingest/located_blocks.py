"""Staged blocks with what their lines say of their source, and the parts of staged files that they are in.

Belongs here: from a block to its lines, their places and positions. Does not belong here: what becomes of the lines
(`raw_rows.py`, `raw_exceptions.py`).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedBlock:
    """A staged block with what its lines say of their source, and what becomes of its events.

    Attributes:
        staged: The block.
        day: The day of its file.
        source: The source of its file.
        path: Where its file lies.
        file_position: The file's place there.
        lines_before: Lines that the file has before it.
        new: Events that become rows.
        repeated: Events that are duplicates or conflicts. Those that are neither are rows of the table already.
    """

    staged: StagedBlock
    day: dt.date
    source: str
    path: str
    file_position: str
    lines_before: int
    new: int
    repeated: int

    @property
    def exceptions(self) -> int:
        """Lines that do not become rows, but for those that are rows already."""
        return self.staged.rejected + self.repeated

    @property
    def first_ordinal(self) -> int:
        """The ordinal of its first line."""
        return first_ordinal(self.staged.file_index, self.staged.block_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Some staged lines of a row group.

    Attributes:
        blocks: Blocks of the row group.
        row: Of each line its row in the row group.
        block: Of each line its block.
        number: Of each line its number in the block, from 0.
    """

    blocks: Sequence[LocatedBlock]
    row: np.ndarray
    block: np.ndarray
    number: np.ndarray

    def where(self, wanted: np.ndarray) -> Lines:
        """Those of the lines for which `wanted` is true."""
        return Lines(
            blocks=self.blocks, row=self.row[wanted], block=self.block[wanted], number=self.number[wanted]
        )

    def ordinals(self) -> np.ndarray:
        """The ordinal of each."""
        return np.array([each.first_ordinal for each in self.blocks])[self.block] + self.number

    def sources(self) -> pa.Array:
        """The source of each."""
        return self._of_block(each.source for each in self.blocks)

    def source_positions(self) -> pa.Array:
        """`<day>/<file>:<line>` of each."""
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
    """A row group of a staged file with the blocks that it has lines of.

    Attributes:
        file: The staged file, open.
        kind: What is staged in it.
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
        """All its rows, those of other blocks too; some columns, or all."""
        return self.file.read_row_group(self.number, columns=None if columns is None else list(columns))

    def lines(self, block_line: pa.ChunkedArray) -> Lines:
        """The blocks' lines in it, by its column of that name."""
        spans = [each.staged.span(self.kind) for each in self.blocks]
        inside = [
            (max(first - self.begin, 0), min(end - self.begin, len(block_line))) for first, end in spans
        ]
        row = np.concatenate([np.arange(first, end) for first, end in inside])
        block = np.repeat(np.arange(len(self.blocks)), [end - first for first, end in inside])
        return Lines(blocks=self.blocks, row=row, block=block, number=block_line.to_numpy()[row])


def row_groups(staging: Path, kind: Kind, blocks: Iterable[LocatedBlock]) -> Iterator[RowGroup]:
    """The row groups of staged files that have lines of some blocks, in the order of the blocks."""
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
