"""Original records of source files, read again: staged records keep only what becomes a row.

Belongs here: finding the record of a staged one. Does not belong here: the first validation
(`stage_lines.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from etl_assets.ingest.located_blocks import LocatedBlock
from etl_assets.ingest.validated_records import judge_lines
from etl_assets.sources.lines import Block

if TYPE_CHECKING:
    from etl_assets.contracts.envelope import Record
    from etl_assets.ingest.records import Records


class SourceLines:
    """Reads single records. Requests in the order of the records in their files read each block once."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._block: LocatedBlock | None = None
        self._pieces: Generator[tuple[int, list[Record]]] | None = None
        self._lines: Iterator[tuple[Record, int]] = iter(())
        self._next = 0

    def record(self, block: LocatedBlock, number: int, fingerprint: str) -> str:
        """Return the original record of a staged one, as text: its line, or the JSON of its values.

        Args:
            block: The event's block.
            number: The record's number in the block, from 0.
            fingerprint: The event's fingerprint.

        Raises:
            RuntimeError: the file has another record there now: it was changed in the meantime.
            OSError, EOFError, zlib.error: the file can no longer be read.
        """
        if block is not self._block or number < self._next:
            self._open(block)
        line, position = next(islice(self._lines, number - self._next, None), (b"", 0))
        self._next = number + 1
        judged = judge_lines(
            [line],
            first=number,
            file_index=block.staged.file_index,
            block_start=block.staged.block_start,
            input_file=block.input_file,
            positions=[position],
            records=self._records,
        )
        if [event.fingerprint for event in judged.events] != [fingerprint]:
            raise RuntimeError(f"record {block.lines_before + number + 1} of {block.path} is not what it was")
        if isinstance(line, bytes):
            return line.removesuffix(b"\r").decode()
        return judged.events[0].content

    def close(self) -> None:
        """Close the open file."""
        if self._pieces is not None:
            self._pieces.close()

    def _open(self, block: LocatedBlock) -> None:
        self.close()
        source = Block(path=block.path, start=block.staged.block_start, end=None)
        format_ = block.input_file.format
        self._pieces = format_.read(source, self._records.held_bytes)
        self._lines = (
            pair
            for position, some in self._pieces
            for pair in zip(some, format_.positions(position, some), strict=False)
        )
        self._block, self._next = block, 0
