"""What a query returned, compared with the records that were accepted from it before.

Of a full load only the rows that differ from the last record of their id are left. Where a range has the ids
of all rows, each id that has a record and is not among them becomes a record of a deleted row, with the
values of the last one. Both depend only on the table's version and the staged files.

Memory holds the ids of one range, or of a part of all ids; what is compared is read in parts from the table.
Only records whose ids are looked for become objects of Python.

Belongs here: the comparison. Does not belong here: reading the database (`full_load.py`, `source.py`), and
what a deleted row does to the pipeline's table (`steps/`).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from etl_assets.contracts import canonical_json
from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.canonical_json import Refused
from etl_assets.delta.read.data_files import batches_of_snapshot
from etl_assets.delta.write.writing import storage_named
from etl_assets.sources.ranges import RangeRead, ReadRange
from etl_assets.sources.sql.row_ids import RowIds, lines_of
from etl_assets.sources.sql.staged import (
    DELETED,
    DELETED_FIELD,
    IDS,
    QUERY,
    ROWS,
    file_name,
    staged_files,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

    _Condition = Callable[[pa.Array], pa.Array]

IDS_AT_ONCE = 1_000_000
_IDS_COMPARED_AT_ONCE = 100_000
"""Rows whose ids are looked up at once: each look-up takes time for all ids that it compares with."""
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The last record of an id."""

    order: Any
    offset: int
    fingerprint: str
    is_deleted: bool


@dataclass(slots=True)
class _FirstLoad:
    """A load that began with an empty table: all its rows are new, and none is gone.

    That holds as long as one snapshot of the database is read, and nothing else is written to the table.
    """

    load: tuple[int, str] | None = None
    version: int = -1

    def begins(self, load: tuple[int, str] | None, version: int) -> None:
        """Take a range of a load as its first one, after which the table has the next version."""
        self.load, self.version = load, version

    def goes_on(self, load: tuple[int, str] | None, version: int) -> bool:
        """Return whether a range of a load follows the last one."""
        if load is None or load != self.load or version != self.version + 1:
            return False
        self.version = version
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryComparison:
    """The comparison for one pipeline.

    Attributes:
        source: Name of the source in the table's column `source`.
        id: Fields that identify a row.
        order: Returns what tells which of two records of an id is newer, before their offset; None: nothing
            else does.
        deleted_field: Field of the records of rows that are gone.
        with_former: Whether a row that has changed becomes a record of its former values too, like that of a
            row that is gone.
    """

    source: str
    id: tuple[str, ...]
    order: Callable[[Mapping[str, Any]], Any] | None = None
    deleted_field: str = DELETED_FIELD
    with_former: bool = False
    _first: _FirstLoad = field(default_factory=_FirstLoad, init=False, compare=False)

    def __call__(self, table: Table, version: int, found: RangeRead, folder: Path) -> RangeRead:
        """Return a range without the rows that are known, and with those that are gone.

        Args:
            table: The table of accepted records.
            version: The version to compare with.
            found: The range, as it was read.
            folder: The folder of its files.

        Raises:
            FilesGone, ReplicaCorrupt: a file of the table is gone or damaged.
        """
        snapshot, load = table.snapshot(version), _load_of(found.read)
        if snapshot is None or not any(True for _ in snapshot.files()):
            self._first.begins(load, version)
            return found  # nothing is known, so every row is new and none is gone
        if self._first.goes_on(load, version):
            return found
        with storage_named(table):
            return self._compared(snapshot, found, folder)

    def _compared(self, snapshot: Snapshot, found: RangeRead, folder: Path) -> RangeRead:
        load = found.read.end[QUERY].get("load")
        day = folder / found.read.details["day"]
        # 1. Leave out rows that have not changed.
        if load is not None and (rows := day / file_name(ROWS, load)).exists():
            self._leave_out_known(snapshot, rows)
        # 2. Add those that are gone.
        deleted = day / file_name(DELETED, load)
        if (ids := folder / IDS).exists():
            changed = day / file_name(ROWS, load) if self.with_former else None
            self._write_deleted(snapshot, ids, deleted, changed)
        names = [each.name for each in found.files]
        paths = tuple(day / name for name in names if name != deleted.name)
        return replace(found, files=staged_files(found.read, (*paths, deleted)))

    def _leave_out_known(self, snapshot: Snapshot, path: Path) -> None:
        """Rewrite a file of rows without those that the last record of their id is like."""
        # 1. Find the last records of the ids in the file. A range of new rows ends here.
        columns = list(self._row_ids.of_file(path))
        known = {
            id_: record.fingerprint
            for id_, record in self._known(snapshot, partial(_are_among, _joined(columns))).items()
            if not record.is_deleted
        }
        if not known:
            return
        ids = [some.to_pylist() for some in columns]
        # 2. Compare the rows that have one. Of an id that stands twice, both rows are left.
        unchanged: dict[bytes, tuple[int, int] | None] = {}
        for piece, (some, lines) in enumerate(zip(ids, lines_of(path), strict=True)):
            for row, (id_, line) in enumerate(zip(some, lines.to_pylist(), strict=True)):
                if id_ not in known or (fingerprint := _fingerprint(line)) is None:
                    continue
                is_like = fingerprint == known[id_] and id_ not in unchanged
                unchanged[id_] = (piece, row) if is_like else None
        left_out = {place for place in unchanged.values() if place is not None}
        if not left_out:
            return
        # 3. Write the others.
        changed = path.with_suffix(".changed")
        with changed.open("wb") as kept:
            for piece, lines in enumerate(lines_of(path)):
                rows = enumerate(lines.to_pylist())
                kept.writelines(line + b"\n" for row, line in rows if (piece, row) not in left_out)
        changed.replace(path)

    def _write_deleted(self, snapshot: Snapshot, ids: Path, path: Path, changed: Path | None) -> None:
        """Write the last records of the ids that are not in a file of ids, or are in one of changed rows."""
        with ids.open("rb") as lines:
            number = sum(1 for _ in lines)
        parts = -(-max(number, snapshot.row_count()) // IDS_AT_ONCE) or 1
        with path.open("wb") as file:
            for part in range(parts):
                gone = self._gone(snapshot, ids, changed, partial(_are_in_part, part, parts))
                for record in self._records_at(snapshot, gone):
                    kept = {name: value for name, value in record.items() if name != self.deleted_field}
                    file.write(canonical_json.write(kept) + b"\n")

    def _gone(self, snapshot: Snapshot, ids: Path, changed: Path | None, are_wanted: _Condition) -> list[int]:
        """Return the offsets of the last records of wanted ids that are not in a file of ids, or are in one
        of changed rows, unless deleted.
        """
        there = self._ids_in(ids, are_wanted)
        if changed is not None and changed.exists():
            there = there.filter(call("invert", _are_among(self._ids_in(changed, are_wanted), there)))

        def are_gone(some: pa.Array) -> pa.Array:
            return call("and_not", are_wanted(some), _are_among(there, some))

        known = self._known(snapshot, are_gone)
        return sorted(record.offset for record in known.values() if not record.is_deleted)

    def _ids_in(self, path: Path, are_wanted: _Condition) -> pa.Array:
        """Return the wanted ids of a file."""
        return _joined([some.filter(are_wanted(some)) for some in self._row_ids.of_file(path)])

    def _known(self, snapshot: Snapshot, are_wanted: _Condition) -> dict[bytes, _Known]:
        """Return the newest record of each wanted id."""
        newest: dict[bytes, _Known] = {}
        for rows in batches_of_snapshot(
            snapshot, ("offset", "record", "fingerprint"), self._of_query, at_once=_IDS_COMPARED_AT_ONCE
        ):
            ids, is_deleted = self._row_ids.of(rows.column("record"))
            wanted = are_wanted(ids)
            found = (column.filter(wanted).to_pylist() for column in (ids, *rows.columns, is_deleted))
            for id_, offset, record, fingerprint, is_gone in zip(*found, strict=True):
                order = None if self.order is None else self.order(orjson.loads(record))
                before = newest.get(id_)
                if before is None or _is_newer(order, offset, before):
                    newest[id_] = _Known(
                        order=order, offset=offset, fingerprint=fingerprint, is_deleted=is_gone
                    )
        return newest

    def _records_at(self, snapshot: Snapshot, offsets: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yield the records at some offsets, in their order."""
        import pyarrow.dataset as ds

        for start in range(0, len(offsets), _ROWS_AT_ONCE):
            some = list(offsets[start : start + _ROWS_AT_ONCE])
            wanted = self._of_query & ds.field("offset").isin(some)
            batches = batches_of_snapshot(snapshot, ("offset", "record"), wanted, at_once=_ROWS_AT_ONCE)
            found = {row["offset"]: row["record"] for batch in batches for row in batch.to_pylist()}
            for offset in some:
                yield canonical_json.parse(found[offset].encode())[0]

    @property
    def _of_query(self) -> Any:
        """Records of the query; one that was replayed corrects a record, and is none of the query's."""
        import pyarrow.dataset as ds

        return ds.field("source") == self.source

    @property
    def _row_ids(self) -> RowIds:
        return RowIds(names=self.id, deleted_field=self.deleted_field)


def _load_of(read: ReadRange) -> tuple[int, str] | None:
    """Return the load of a range and the snapshot that it reads; None if the database keeps no snapshot."""
    session = read.details.get("session")
    return (read.end[QUERY]["load"], session) if session else None


def _fingerprint(line: bytes) -> str | None:
    """Return the fingerprint of a row; None if it will be rejected."""
    try:
        return hashlib.sha256(canonical_json.canonical(line)[0]).hexdigest()
    except Refused:
        return None


def _is_newer(order: Any, offset: int, before: _Known) -> bool:
    if order is None or before.order is None:
        return (order is not None, offset) > (before.order is not None, before.offset)
    return (order, offset) > (before.order, before.offset)


def _joined(ids: Sequence[pa.Array]) -> pa.Array:
    """Return ids as one array, without null."""
    import pyarrow as pa

    return pa.concat_arrays([pa.array([], pa.binary()), *ids]).drop_null()


def _are_among(known: pa.Array, ids: pa.Array) -> pa.Array:
    """Return which ids are some of the known ones; null is none of them."""
    import pyarrow.compute as pc

    def is_in(some: pa.Array, others: pa.Array) -> pa.Array:
        return pc.call_function("is_in", [some], pc.SetLookupOptions(value_set=others))

    # A look-up begins with a hash table of all values that it compares with. These ids are the fewer ones.
    return is_in(ids, known.filter(is_in(known, ids.drop_null())))


def _are_in_part(part: int, parts: int, ids: pa.Array) -> pa.Array:
    """Return which ids are in one of some parts of all ids; null is in none."""
    import pyarrow as pa

    if parts == 1:
        return call("is_valid", ids)
    found = [id_ is not None and zlib.crc32(id_) % parts == part for id_ in ids.to_pylist()]
    return pa.array(found, pa.bool_())
