"""Formats of files with records: JSON Lines, CSV and Parquet, optionally compressed by gzip.

A format reads a block of a file as lists of records. Each record has a position in its file that depends on
what is before it in the file, and on nothing else. A line without a record (a header, a further line of a
row) is an empty text, so that records count as the lines of an editor do.

Belongs here: from bytes to records. Does not belong here: which files to read (`landing.py`), which lines are
a row (`csv_rows.py`), values of Arrow (`arrow_values.py`), and what a record must be (`ingest/`).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from etl_assets.contracts.envelope import BadRecord, CutLine, Record
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.errors import SourceUnreadable
from etl_assets.sources.csv_rows import rows_of
from etl_assets.sources.lines import Block, blocks_of, named, read_lines

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_RECORDS_AT_ONCE = 8_192
_BYTES_AT_ONCE = 4 << 20
"""About how many records, or bytes, a list of a format has: records may be long."""


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
    """One JSON object a line. Positions are bytes of the content, also where it is compressed."""

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
    """Comma-separated values with a header, as RFC 4180 has them. Positions are lines, counted from 0.

    A row that takes several lines has the position of its first one. Every value is text; `null_value` stands
    for none. A row with another number of values than the header has names, with a quote that is not closed,
    or not in UTF-8, is no record; the rows after it are. Lines of white space are left out.
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
        lines = (line for _, some in read_lines(block, held_bytes) for line in some)
        names: list[str] | None = None
        position, size, held = 0, 0, list[Record]()
        for row in rows_of(lines, held_bytes, self.delimiter.encode()):
            if self._is_blank(row.content):
                record: Record = b""
            elif names is None:
                names, record = self._names(row.content, block.path), b""
            else:
                record = self._record(row.content, names)
            held.append(record)
            if row.lines > 1:
                held += [b""] * (row.lines - 1)
            size += len(row.content)
            if len(held) >= _RECORDS_AT_ONCE or size >= _BYTES_AT_ONCE:
                yield position, held
                position, size, held = position + len(held), 0, []
        if held:
            yield position, held

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the line of each record."""
        return range(first, first + len(records))

    def _is_blank(self, row: bytes | CutLine | BadRecord) -> bool:
        """Return whether a row has no values; between tabs there may be empty ones."""
        return isinstance(row, bytes) and not row.strip() and self.delimiter.encode() not in row

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
        elif twice := [name for name, times in Counter(names).items() if times > 1]:
            why = f"names {twice[0][:100]!r} twice"
        else:
            return names
        raise SourceUnreadable(
            f"{path!r} has a first line, which should be a CSV header, that {why}",
            fix="give the file a header with a name of its own for each column, or move the file out of the"
            " folder",
            file=path,
        )

    def _record(self, row: bytes | CutLine | BadRecord, names: list[str]) -> Record:
        if not isinstance(row, bytes):
            return row
        values = self._values(row)
        if isinstance(values, BadRecord):
            return values
        if len(values) != len(names):
            return _malformed(row, f"the row has {len(values)} values, and the header {len(names)} names")
        none = self.null_value
        return {name: None if value == none else value for name, value in zip(names, values, strict=True)}

    def _values(self, row: bytes) -> list[str] | BadRecord:
        try:
            text = row.decode()
        except UnicodeDecodeError as error:
            reason = DeadLetterReason.INVALID_UTF8
            return BadRecord(start=row, reason=reason, error=f"byte {error.start + 1} is not UTF-8")
        if '"' not in text:
            if "\r" in text:
                return _malformed(row, "a carriage return is not followed by a line feed")
            return text.split(self.delimiter)
        # The limit is the process's: another library may have set it, also since the last row.
        if csv.field_size_limit() < len(text):
            csv.field_size_limit(len(text))
        try:
            (values,) = csv.reader([text], delimiter=self.delimiter, strict=True)
        except (csv.Error, ValueError) as error:
            return _malformed(row, f"a value is not quoted as CSV has it: {error}")
        return values


def _malformed(row: bytes, error: str) -> BadRecord:
    return BadRecord(start=row, reason=DeadLetterReason.MALFORMED_CSV, error=error)


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet files. Positions are rows.

    Values without a JSON form are texts: times as ISO 8601, bytes as base64 (`arrow_values.py`).
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
            with named(block.path), pq.ParquetFile(block.path) as file:
                _refuse_equal_names(file.schema_arrow, block.path)
                for batch in file.iter_batches(batch_size=_rows_at_once(file)):
                    yield position, _records_of(batch)
                    position += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise SourceUnreadable(
                f"{block.path!r} is not a whole Parquet file: {error}",
                fix="write the file again as a whole, or move it out of the folder",
                file=block.path,
            ) from error

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the row of each record."""
        return range(first, first + len(records))


def _rows_at_once(file: pq.ParquetFile) -> int:
    """Return how many rows have about `_BYTES_AT_ONCE`, by the sizes that the file states."""
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    largest = max((group.total_byte_size / group.num_rows for group in groups if group.num_rows), default=1)
    return max(1, min(_RECORDS_AT_ONCE, int(_BYTES_AT_ONCE / max(largest, 1))))


def _records_of(batch: pa.RecordBatch) -> list[Record]:
    from etl_assets.sources.arrow_values import json_values

    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    columns = [json_values(column) for column in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _refuse_equal_names(schema: pa.Schema, path: str) -> None:
    """Check that no two columns, or fields of a struct, have one name.

    Raises:
        SourceUnreadable: two have.
    """
    from pyarrow import types

    waiting = [list(schema)]
    while waiting:
        fields = waiting.pop()
        if twice := [name for name, times in Counter(each.name for each in fields).items() if times > 1]:
            raise SourceUnreadable(
                f"{path!r} names {twice[0][:100]!r} twice",
                fix="give each column and each field a name of its own, or move the file out of the folder",
                file=path,
            )
        for each in fields:
            if types.is_nested(each.type):
                nested = each.type.num_fields
                waiting.append([each.type.field(number) for number in range(nested)])


JSON_LINES = JsonLines()
"""The format of folders that name no other."""
