"""Original lines of source files, read again: staged lines keep only what becomes a row.

Belongs here: finding the line of a staged event. Does not belong here: the first validation of lines
(`stage_lines.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain, islice

from etl_assets.contracts.envelope import CutLine, Limits
from etl_assets.ingest.located_blocks import LocatedBlock
from etl_assets.sources.lines import Block, read_lines
from etl_assets.transforms.parse_events import judge_lines


class SourceLines:
    """Reads single lines. Requests in the order of the lines in their files read each block once."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._block: LocatedBlock | None = None
        self._pieces: Generator[list[bytes | CutLine]] | None = None
        self._lines = iter(())
        self._next = 0

    def record(self, block: LocatedBlock, number: int, fingerprint: str) -> str:
        """Return the original line of a staged event.

        Args:
            block: The event's block.
            number: The line's number in the block, from 0.
            fingerprint: The event's fingerprint.

        Raises:
            RuntimeError: the file has another line there now: it was changed in the meantime.
            OSError, EOFError, zlib.error: the file can no longer be read.
        """
        if block is not self._block or number < self._next:
            self._open(block)
        line = next(islice(self._lines, number - self._next, None), b"")
        self._next = number + 1
        judged = judge_lines(
            [line],
            first=number,
            file_index=block.staged.file_index,
            block_start=block.staged.block_start,
            day=block.day,
            limits=self._limits,
        )
        if isinstance(line, CutLine) or [event.fingerprint for event in judged.events] != [fingerprint]:
            raise RuntimeError(f"line {block.lines_before + number + 1} of {block.path} is not what it was")
        return line.removesuffix(b"\r").decode()

    def close(self) -> None:
        """Close the open file."""
        if self._pieces is not None:
            self._pieces.close()

    def _open(self, block: LocatedBlock) -> None:
        self.close()
        source = Block(path=block.path, start=block.staged.block_start, end=None)
        self._pieces = read_lines(source, self._limits.held_bytes)
        self._lines = chain.from_iterable(self._pieces)
        self._block, self._next = block, 0
