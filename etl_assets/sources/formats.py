"""Formats of files with records: JSON Lines, CSV and Parquet, optionally compressed by gzip.

A format reads a block of a file as lists of records. Each record has a position in its file that depends on
what is before it in the file, and on nothing else. A place without a record (a header, a line inside a quoted
value) is an empty text, so that places count as the lines of an editor do.

Belongs here: from bytes to records. Does not belong here: which files to read (`landing.py`), and what a record
must be (`ingest/`).
"""

from __future__ import annotations

import base64
import csv
import datetime as dt
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any, Protocol

from etl_assets.contracts.envelope import BadRecord, CutLine, Record
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.errors import SourceUnreadable
from etl_assets.sources.lines import Block, blocks_of, read_lines

_RECORDS_AT_ONCE = 8_192


class RecordFormat(Protocol):
    """How files of a source are read."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of its files."""
        ...

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Cut a file of a given size in bytes into blocks that can be read independently."""
        ...

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the records of a block in lists, with the position of the first record of each list.

        Args:
            block: The block.
            held_bytes: How much of a record is held at least; of a longer one only the beginning is.

        Raises:
            OSError, EOFError, zlib.error: the file cannot be read or decompressed.
            SourceUnreadable: the file is not of this format.
        """
        ...

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the positions of consecutive records, the first of which is at `first`."""
        ...


@dataclass(frozen=True, slots=True)
class JsonLines:
    """One JSON object a line. Positions are bytes."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of its files."""
        return (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Cut a file into blocks."""
        return blocks_of(path, size, most_bytes)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the lines of a block."""
        for position, lines in read_lines(block, held_bytes):
            yield position, [*lines]

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the first byte of each line."""
        return accumulate((len(line) + 1 for line in records), initial=first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv:
    """Comma-separated values with a header, as RFC 4180 has them. Positions are lines, the header's is 0.

    Every value is text; `null_value` stands for none. A row with another number of values than the header has
    names, or with a quote that is not closed, is no record.
    """

    delimiter: str = ","
    null_value: str = ""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of its files."""
        return (".csv", ".csv.gz", ".tsv", ".tsv.gz")

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Return the whole file: only from its beginning is it known which line ends are inside quotes."""
        yield Block(path=path, start=0, end=None)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the rows of a file as mappings from the header's names to texts."""
        csv.field_size_limit(max(csv.field_size_limit(), held_bytes))
        lines = (line for _, some in read_lines(block, held_bytes) for line in some)
        rows = _rows(lines, held_bytes)
        header = next(rows, None)
        if header is None:
            return
        names = self._names(header.content, block.path)
        yield 0, [b""] * header.lines
        position, held = header.lines, list[Record]()
        for row in rows:
            held += [*[b""] * (row.lines - 1), self._record(row.content, names)]
            if len(held) >= _RECORDS_AT_ONCE:
                yield position, held
                position, held = position + len(held), []
        if held:
            yield position, held

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the line of each record."""
        return range(first, first + len(records))

    def _names(self, header: bytes | CutLine | BadRecord, path: str) -> list[str]:
        """Return the names of the header.

        Raises:
            SourceUnreadable: it is no header.
        """
        names = self._values(header) if isinstance(header, bytes) else header
        if isinstance(names, CutLine):
            why = "is too long"
        elif isinstance(names, BadRecord):
            why = f"cannot be read: {names.error}"
        elif empty := [number for number, name in enumerate(names, start=1) if not name.strip()]:
            why = f"has no name for column {empty[0]}"
        elif twice := [name for name in names if names.count(name) > 1]:
            why = f"names {twice[0][:100]!r} twice"
        else:
            return names
        raise SourceUnreadable(
            f"{path}: its first line, which should be a CSV header, {why}",
            fix="give the file a header with a name of its own for each column, or move the file out of the folder",
            file=path,
        )

    def _record(self, row: bytes | CutLine | BadRecord, names: list[str]) -> Record:
        if not isinstance(row, bytes) or not row.strip():
            return row
        values = self._values(row)
        if isinstance(values, BadRecord):
            return values
        if len(values) != len(names):
            return BadRecord(
                start=row,
                reason=DeadLetterReason.MALFORMED_CSV,
                error=f"the row has {len(values)} values, and the header {len(names)} names",
            )
        none = self.null_value
        return {name: None if value == none else value for name, value in zip(names, values, strict=True)}

    def _values(self, row: bytes) -> list[str] | BadRecord:
        try:
            text = row.decode()
            if '"' not in text:
                return text.split(self.delimiter)
            (values,) = csv.reader([text], delimiter=self.delimiter, strict=True)
        except UnicodeDecodeError as error:
            return BadRecord(
                start=row, reason=DeadLetterReason.INVALID_UTF8, error=f"byte {error.start + 1} is not UTF-8"
            )
        except (csv.Error, ValueError) as error:
            return BadRecord(
                start=row,
                reason=DeadLetterReason.MALFORMED_CSV,
                error=f"a value is not quoted as CSV has it: {error}",
            )
        return values


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a CSV file, and the number of lines that it takes."""

    content: bytes | CutLine | BadRecord
    lines: int = 1


def _rows(lines: Iterable[bytes | CutLine], held_bytes: int) -> Iterator[_Row]:
    """Yield rows. Lines belong together while a quote is open.

    A quote that is still open after `held_bytes`, or at the end, spoils its own line only.
    """
    waiting: deque[bytes | CutLine] = deque()
    source = iter(lines)
    while (line := waiting.popleft() if waiting else next(source, None)) is not None:
        if isinstance(line, CutLine):
            yield _Row(line)
            continue
        parts, size, is_open = [line], len(line), line.count(b'"') % 2 == 1
        while is_open and size <= held_bytes:
            more = waiting.popleft() if waiting else next(source, None)
            if not isinstance(more, bytes):
                if more is not None:
                    waiting.appendleft(more)
                break
            parts.append(more)
            size += len(more) + 1
            is_open = is_open ^ (more.count(b'"') % 2 == 1)
        if is_open:
            waiting.extendleft(reversed(parts[1:]))
            yield _Row(
                BadRecord(start=line, reason=DeadLetterReason.MALFORMED_CSV, error="a quote is not closed")
            )
        else:
            whole = b"\n".join(parts).removesuffix(b"\r")
            held = whole if len(whole) <= held_bytes else CutLine(start=whole[:held_bytes], size=len(whole))
            yield _Row(held, len(parts))


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet files. Positions are rows.

    Values without a JSON form are texts: times as ISO 8601, bytes as base64.
    """

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of its files."""
        return (".parquet",)

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Return the whole file."""
        yield Block(path=path, start=0, end=None)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the rows of a file as mappings."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        position = 0
        try:
            with pq.ParquetFile(block.path) as file:
                for batch in file.iter_batches(batch_size=_RECORDS_AT_ONCE):
                    yield position, [_as_json(row) for row in batch.to_pylist()]
                    position += batch.num_rows
        except pa.ArrowInvalid as error:
            raise SourceUnreadable(
                f"{block.path} is not a whole Parquet file: {error}",
                fix="write the file again as a whole, or move it out of the folder",
                file=block.path,
            ) from error

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the row of each record."""
        return range(first, first + len(records))


def _as_json(value: Any) -> Any:
    """Return a value that JSON has."""
    match value:
        case dict():
            return {key: _as_json(item) for key, item in value.items()}
        case list():
            return [_as_json(item) for item in value]
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dt.timedelta():
            return str(value)
        case float():
            return Decimal(repr(value))
        case _:
            return value


JSON_LINES = JsonLines()
