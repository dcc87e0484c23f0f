"""The format of journal files: JSON Lines whose headers are no records."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etl_assets.contracts.envelope import AnnotatedRecord, CutLine, Record
from etl_assets.contracts.trace_context import TRACEPARENT
from etl_assets.sources.formats import JSON_LINES
from etl_assets.sources.http.journal_file import HEADER, SUFFIX
from etl_assets.sources.lines import Block

TRACEPARENT_FIELD = "http.headers.traceparent"
"""The field that a record has the trace context of its request in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLines:
    """JSON Lines, with headers, which are read as blank lines of the same length.

    Attributes:
        with_traceparent: Whether records have the trace context of their request.
    """

    with_traceparent: bool = False

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffix of the names of its files."""
        return (SUFFIX,)

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Cut a file into blocks; it is one if the headers at its beginning say something of its records."""
        if self.with_traceparent:
            yield Block(path=path, start=0, end=None)
        else:
            yield from JSON_LINES.blocks(path, size, most_bytes)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the lines of a block."""
        traces = _Traces()
        for position, lines in JSON_LINES.read(block, held_bytes):
            found = [*map(traces.traced, lines)] if self.with_traceparent else lines
            yield position, [_without_header(line) for line in found]

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the first byte of each line."""
        return JSON_LINES.positions(first, records)


class _Traces:
    """The trace contexts of the requests of one file, whose lines are given in order."""

    def __init__(self) -> None:
        self._line = 0
        self._waiting: list[tuple[int, int, str]] = []
        """Of requests to come, the last one first: first line, line behind the last one, trace context."""

    def traced(self, line: Record) -> Record:
        """Return a line with the trace context of its request."""
        self._line += 1
        if not isinstance(line, bytes):
            return line
        if line.startswith(HEADER):
            header: dict[str, Any] = json.loads(line[1:])
            if TRACEPARENT in header:
                first = header["line"]
                self._waiting.insert(0, (first, first + header["events"], header[TRACEPARENT]))
            return line
        while self._waiting and self._line >= self._waiting[-1][1]:
            self._waiting.pop()
        if not self._waiting or self._line < self._waiting[-1][0]:
            return line
        record = AnnotatedRecord(line)
        record.added = {TRACEPARENT_FIELD: self._waiting[-1][2]}
        return record


def _without_header(line: Record) -> Record:
    start = line.start if isinstance(line, CutLine) else line
    if isinstance(start, bytes) and start.startswith(HEADER):
        return b" " * len(start)
    return line
