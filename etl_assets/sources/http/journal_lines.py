"""The format of journal files: JSON Lines whose headers are no records."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from etl_assets.contracts.envelope import CutLine, Record
from etl_assets.sources.formats import JSON_LINES
from etl_assets.sources.http.journal_file import HEADER, SUFFIX
from etl_assets.sources.lines import Block


@dataclass(frozen=True, slots=True)
class JournalLines:
    """JSON Lines, with headers, which are read as blank lines of the same length."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffix of the names of its files."""
        return (SUFFIX,)

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Cut a file into blocks."""
        return JSON_LINES.blocks(path, size, most_bytes)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the lines of a block."""
        for position, lines in JSON_LINES.read(block, held_bytes):
            yield position, [_without_header(line) for line in lines]

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the first byte of each line."""
        return JSON_LINES.positions(first, records)


def _without_header(line: Record) -> Record:
    start = line.start if isinstance(line, CutLine) else line
    if isinstance(start, bytes) and start.startswith(HEADER):
        return b" " * len(start)
    return line
