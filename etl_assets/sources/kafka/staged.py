"""Staged records of a topic: Arrow files with the bytes of keys, values and headers, as they came.

Values with a schema are JSON here, decoded while they were read.

Belongs here: writing and reading these files, and what a Kafka record is to the validation. Does not belong
here: which records are read (`source.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.envelope import AnnotatedRecord, BadRecord, CutLine, Record
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.sources.lines import Block

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".arrows"
_FIELD = "kafka."
_HEADER = "headers."
_MOST_LINES = 65_536
"""Most lines, with empty ones for offsets without a record, of one list."""


@cache
def staged_schema(*, decoded: bool = False) -> pa.Schema:
    """Return the columns of a staged file.

    Args:
        decoded: Whether its values were decoded: `value` is JSON then, or the original bytes of a record with
            a `reason` to reject it.
    """
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    fields = [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.large_binary()),
        ("headers", pa.list_(header)),
    ]
    return pa.schema([*fields, *([("reason", pa.string()), ("error", pa.string())] if decoded else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRecords:
    """How staged files are read. The first line of a file is its first record, and positions are offsets.

    An offset without a record (a transaction's marker, an aborted or compacted record) is an empty line.

    Attributes:
        include: What records have beside the fields of their values.
        keep_tombstones: Whether a record without a value is kept, as one without fields.
    """

    include: tuple[str, ...] = ()
    keep_tombstones: bool = False

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of its files."""
        return (SUFFIX,)

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Return the whole file."""
        yield Block(path=path, start=0, end=None)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the records of a file, with the offset of the first one of each list."""
        import pyarrow as pa

        partition = int(block.path.rpartition("/")[2].partition("-")[0])
        next_offset: int | None = None
        with pa.OSFile(block.path) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                first = batch.column("offset")[0].as_py() if next_offset is None else next_offset
                if self._are_plain(batch, first, held_bytes):
                    next_offset = first + batch.num_rows
                    yield first, batch.column("value").to_numpy(zero_copy_only=False).tolist()
                    continue
                next_offset, held = first, list[Record]()
                for offset, record in self._records(batch, partition, held_bytes):
                    while (missing := offset - next_offset) > 0:
                        held += [b""] * min(missing, _MOST_LINES)
                        next_offset += min(missing, _MOST_LINES)
                        if len(held) >= _MOST_LINES:
                            yield first, held
                            first, held = next_offset, []
                    held.append(record)
                    next_offset += 1
                if held:
                    yield first, held

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the offset of each record."""
        return range(first, first + len(records))

    def _are_plain(self, batch: pa.RecordBatch, first: int, held_bytes: int) -> bool:
        """Return whether records are values of one offset after the other, and nothing else."""
        import pyarrow.compute as pc

        values, offsets = batch.column("value"), batch.column("offset")
        if self.include or values.null_count or offsets[-1].as_py() - first + 1 != batch.num_rows:
            return False
        if "reason" in batch.schema.names and batch.column("reason").null_count < batch.num_rows:
            return False
        lengths = pc.call_function("binary_length", [values]).to_numpy()
        are_objects = pc.call_function("starts_with", [values], pc.MatchSubstringOptions("{"))
        return int(lengths.max()) <= held_bytes and are_objects.false_count == 0

    def _records(
        self, batch: pa.RecordBatch, partition: int, held_bytes: int
    ) -> Iterator[tuple[int, Record]]:
        offsets, values = batch.column("offset").to_pylist(), batch.column("value").to_pylist()
        bad = _bad_records(batch, values, held_bytes)
        if not self.include and not self.keep_tombstones:
            for offset, value in zip(offsets, values, strict=True):
                yield offset, bad[offset] if offset in bad else self._record(value, held_bytes)
            return
        for offset, value, row in zip(
            offsets, values, batch.drop_columns(["value"]).to_pylist(), strict=True
        ):
            if offset in bad:
                yield offset, bad[offset]
                continue
            record = self._record(b"{}" if value is None and self.keep_tombstones else value, held_bytes)
            if isinstance(record, bytes):
                record = AnnotatedRecord(record)
                record.added = self._added(row, partition)
                if value is None:
                    record.added[_FIELD + "tombstone"] = True
            yield offset, record

    def _record(self, value: bytes | None, held_bytes: int) -> Record:
        if value is None:
            return BadRecord(
                start=b"",
                reason=DeadLetterReason.NOT_AN_OBJECT,
                error="the record has no value (a tombstone); `tombstones: keep` takes it",
            )
        if len(value) > held_bytes:
            return CutLine(start=value[:held_bytes], size=len(value))
        if not value.strip():
            return BadRecord(
                start=value, reason=DeadLetterReason.MALFORMED_JSON, error="the value of the record is empty"
            )
        return value

    def _added(self, row: dict[str, Any], partition: int) -> dict[str, Any]:
        headers = {each["name"]: each["value"] for each in row["headers"] or ()}
        found: dict[str, Any] = {}
        for name in self.include:
            if name == "partition":
                found[_FIELD + name] = partition
            elif name.startswith(_HEADER):
                found[_FIELD + name] = _text(headers.get(name.removeprefix(_HEADER)))
            else:
                found[_FIELD + name] = _text(row[name])
        return found


def _bad_records(batch: pa.RecordBatch, values: list[Any], held_bytes: int) -> dict[int, BadRecord]:
    """Return the records that could not be decoded, by offset, with their original bytes."""
    if "reason" not in batch.schema.names or batch.column("reason").null_count == batch.num_rows:
        return {}
    rows = zip(
        batch.column("offset").to_pylist(),
        values,
        batch.column("reason").to_pylist(),
        batch.column("error").to_pylist(),
        strict=True,
    )
    return {
        offset: BadRecord(start=value[:held_bytes], reason=DeadLetterReason(reason), error=error)
        for offset, value, reason, error in rows
        if reason is not None
    }


def _text(value: Any) -> Any:
    """Return bytes as text, in base64 if they are not UTF-8; other values unchanged."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
