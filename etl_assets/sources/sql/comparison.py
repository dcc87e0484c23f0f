"""What a query returned, compared with the records that were accepted from it before.

Of a full load only the rows that differ from the last record of their id are left. Where a range has the ids
of all rows, each id that has a record and is not among them becomes a record of a deleted row, with the
values of the last one. Both depend only on the table's version and the staged files.

Memory holds the ids of one range, or of a part of all ids; what is compared is read in parts from the table.

Belongs here: the comparison. Does not belong here: reading the database (`full_load.py`, `source.py`), and
what a deleted row does to the pipeline's table (`steps/`).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused
from etl_assets.sources.ranges import RangeRead
from etl_assets.sources.sql.staged import (
    DELETED,
    DELETED_FIELD,
    IDS,
    QUERY,
    ROWS,
    SQL_FIELDS,
    file_name,
    staged_files,
)

if TYPE_CHECKING:
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

IDS_AT_ONCE = 500_000
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The last record of an id."""

    order: Any
    offset: int
    fingerprint: str
    is_deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryComparison:
    """The comparison for one pipeline.

    Attributes:
        source: Name of the source in the table's column `source`.
        id: Fields that identify a row.
        order: Returns what tells which of two records of an id is newer, before their offset; None: nothing
            else does.
    """

    source: str
    id: tuple[str, ...]
    order: Callable[[Mapping[str, Any]], Any] | None = None

    def __call__(self, table: Table, version: int, found: RangeRead, folder: Path) -> RangeRead:
        """Return a range without the rows that are known, and with those that are gone.

        Args:
            table: The table of accepted records.
            version: The version to compare with.
            found: The range, as it was read.
            folder: The folder of its files.
        """
        snapshot = table.snapshot(version)
        if snapshot is None or not any(True for _ in snapshot.files()):
            return found  # nothing is known, so every row is new and none is gone
        load = found.read.end[QUERY].get("load")
        day = folder / found.read.details["day"]
        # 1. Leave out rows that have not changed.
        if load is not None and (rows := day / file_name(ROWS, load)).exists():
            self._leave_out_known(snapshot, rows)
        # 2. Add those that are gone.
        deleted = day / file_name(DELETED, load)
        if (ids := folder / IDS).exists():
            self._write_deleted(snapshot, ids, deleted)
        names = [each.name for each in found.files]
        paths = tuple(day / name for name in names if name != deleted.name)
        return replace(found, files=staged_files(found.read, (*paths, deleted)))

    def _leave_out_known(self, snapshot: Snapshot, path: Path) -> None:
        """Rewrite a file of rows without those that the last record of their id is like."""
        ids: list[bytes | None] = []
        fingerprints: dict[bytes, str] = {}
        repeated: set[bytes] = set()
        with path.open("rb") as lines:
            for line in lines:
                id_, fingerprint = self._of_line(line)
                ids.append(id_)
                if id_ is None:
                    continue
                if id_ in fingerprints:
                    repeated.add(id_)
                fingerprints[id_] = fingerprint
        known = self._known(snapshot, lambda id_: id_ in fingerprints)
        unchanged = {
            id_
            for id_, record in known.items()
            if not record.is_deleted and record.fingerprint == fingerprints[id_] and id_ not in repeated
        }
        if not unchanged:
            return
        changed = path.with_suffix(".changed")
        with path.open("rb") as lines, changed.open("wb") as kept:
            kept.writelines(line for line, id_ in zip(lines, ids, strict=True) if id_ not in unchanged)
        changed.replace(path)

    def _write_deleted(self, snapshot: Snapshot, ids: Path, path: Path) -> None:
        """Write the last records of the ids that are not in a file of ids."""
        with ids.open("rb") as lines:
            number = sum(1 for _ in lines)
        parts = -(-max(number, snapshot.row_count()) // IDS_AT_ONCE) or 1
        with path.open("wb") as file:
            for part in range(parts):
                gone = self._gone(snapshot, ids, lambda id_, part=part: zlib.crc32(id_) % parts == part)
                for record in self._records_at(snapshot, gone):
                    kept = {name: value for name, value in record.items() if name not in SQL_FIELDS}
                    file.write(canonical_json.write(kept) + b"\n")

    def _gone(self, snapshot: Snapshot, ids: Path, is_wanted: Callable[[bytes], bool]) -> list[int]:
        """Return the offsets of the last records of wanted ids that are not in a file, unless deleted."""
        with ids.open("rb") as lines:
            there = {id_ for line in lines if is_wanted(id_ := self._id_of(orjson.loads(line)))}
        known = self._known(snapshot, lambda id_: is_wanted(id_) and id_ not in there)
        return sorted(record.offset for record in known.values() if not record.is_deleted)

    def _known(self, snapshot: Snapshot, is_wanted: Callable[[bytes], bool]) -> dict[bytes, _Known]:
        """Return the newest record of each wanted id."""
        newest: dict[bytes, _Known] = {}
        for row in _rows(snapshot, ("offset", "record", "fingerprint"), self._of_query):
            record = orjson.loads(row["record"])
            id_ = self._id_of(record)
            if not is_wanted(id_):
                continue
            order = None if self.order is None else self.order(record)
            before = newest.get(id_)
            if before is not None and not _is_newer(order, row["offset"], before):
                continue
            newest[id_] = _Known(
                order=order,
                offset=row["offset"],
                fingerprint=row["fingerprint"],
                is_deleted=record.get(DELETED_FIELD) is True,
            )
        return newest

    def _records_at(self, snapshot: Snapshot, offsets: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yield the records at some offsets, in their order."""
        import pyarrow.dataset as ds

        for start in range(0, len(offsets), _ROWS_AT_ONCE):
            some = list(offsets[start : start + _ROWS_AT_ONCE])
            wanted = self._of_query & ds.field("offset").isin(some)
            found = {row["offset"]: row["record"] for row in _rows(snapshot, ("offset", "record"), wanted)}
            for offset in some:
                yield canonical_json.parse(found[offset].encode())[0]

    @property
    def _of_query(self) -> Any:
        """Records of the query; one that was replayed corrects a record, and is none of the query's."""
        import pyarrow.dataset as ds

        return ds.field("source") == self.source

    def _of_line(self, line: bytes) -> tuple[bytes | None, str]:
        """Return the id and the fingerprint of a row; no id if it will be rejected."""
        try:
            value, is_fast = canonical_json.parse(line.removesuffix(b"\n"))
        except Refused:
            return None, ""
        content = (canonical_json.write_fast if is_fast else canonical_json.write)(value)
        return self._id_of(value), hashlib.sha256(content).hexdigest()

    def _id_of(self, record: Mapping[str, Any]) -> bytes:
        return orjson.dumps([record.get(name) for name in self.id], default=str)


def _is_newer(order: Any, offset: int, before: _Known) -> bool:
    if order is None or before.order is None:
        return (order is not None, offset) > (before.order is not None, before.offset)
    return (order, offset) > (before.order, before.offset)


def _rows(snapshot: Snapshot, columns: Sequence[str], wanted: Any) -> Iterator[dict[str, Any]]:
    """Yield rows; little is read ahead, so that memory does not grow with their number."""
    scanner = snapshot.dataset().scanner(
        columns=list(columns),
        filter=wanted,
        batch_size=_ROWS_AT_ONCE,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )
    for batch in scanner.to_batches():
        yield from batch.to_pylist()
