"""The rows of a delivery: those above a position by file statistics, and the keys of deleted rows.

A tombstone is written before the rows that it is about are removed. One whose row is still there, and older,
is not consumed: the position in the tombstones stays, and the next delivery reads it again.

Belongs here: reading, some rows at a time. Does not belong here: whether everything is delivered
(`sinks/decision.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.columns import TableContract
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.log.entries import UNDO, commit_notes
from etl_assets.delta.read.data_files import batches_of_snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.writing import storage_named
from etl_assets.sinks.sink import SinkPosition

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.snapshot import Snapshot

ROWS_AT_ONCE = 20_000
_MOST_COMMITS = 1_000
"""Commits since the position that are searched for an undo; beyond, everything is delivered."""
_BATCH = "_batch_id"


@dataclass(frozen=True, kw_only=True)
class RowsSince:
    """What a delivery brings.

    Attributes:
        position: Where the target is afterwards.
        rows: Yields new rows.
        deleted: Yields the keys of deleted rows.
        has_deleted: Whether there are any.
    """

    position: SinkPosition
    rows: Callable[[], Iterator[pa.RecordBatch]]
    deleted: Callable[[], Iterator[pa.RecordBatch]]
    has_deleted: bool


@dataclass(frozen=True, kw_only=True)
class DeliveryRows:
    """One version of a table, and of its tombstones.

    Attributes:
        contract: The table's contract.
        table: The table and the version.
        tombstones: The table of its tombstones and the version; None if there is none.
        replays: The version of the table `replays` with the newest key that was requested again.
    """

    contract: TableContract
    table: tuple[Table, int]
    tombstones: tuple[Table, int] | None
    replays: int = -1

    @property
    def position(self) -> SinkPosition:
        """The position of a target that has all of it."""
        return SinkPosition(
            table_id=self.snapshot.table_id,
            version=self.table[1],
            tombstones=-1 if self.tombstones is None else self.tombstones[1],
            replays=self.replays,
        )

    @property
    def snapshot(self) -> Snapshot:
        """The table at the version."""
        return _snapshot(self.table)

    def at(self, position: SinkPosition) -> DeliveryRows:
        """Return the rows as they were at an earlier position."""
        tombstones = None if self.tombstones is None else (self.tombstones[0], position.tombstones)
        if position.tombstones < 0:
            tombstones = None
        return DeliveryRows(
            contract=self.contract,
            table=(self.table[0], position.version),
            tombstones=tombstones,
            replays=position.replays,
        )

    def since(self, before: SinkPosition | None) -> RowsSince:
        """Return what came after a position; None for every row."""
        version = -1 if before is None else before.version
        keys, held = (None, None)
        if before is not None and self.tombstones is not None:
            keys, held = self._deleted_after(before.tombstones)
        position = self.position
        if held is not None:
            position = replace(position, tombstones=held)
        return RowsSince(
            position=position,
            rows=lambda: self._rows(version),
            deleted=lambda: iter(()) if keys is None else iter(keys.to_batches(ROWS_AT_ONCE)),
            has_deleted=keys is not None and keys.num_rows > 0,
        )

    def is_readable(self) -> bool:
        """Return whether the version is still there: its log, and its files as far as they are known."""
        from deltalake.exceptions import DeltaError

        for table, version in filter(None, (self.table, self.tombstones)):
            try:
                snapshot = table.snapshot(version)
            except (DeltaError, FileNotFoundError):
                return False
            if snapshot is None or not all((table.path / each).exists() for each in snapshot.files()):
                return False
        return True

    def was_there(self, before: SinkPosition | None) -> Callable[[pa.RecordBatch], list[bool]]:
        """Return what tells which keys of some rows had a row at a position.

        If that version cannot be read any more, or is another table's, all of them had: a target that has a
        row takes it as changed.
        """
        if before is None:
            return lambda batch: [False] * batch.num_rows
        if before.table_id != self.position.table_id:
            return lambda batch: [True] * batch.num_rows
        old = DeliveryRows(contract=self.contract, table=(self.table[0], before.version), tombstones=None)
        keys = list(self.contract.merge_key)
        readable: list[bool] = []

        def there(batch: pa.RecordBatch) -> list[bool]:
            import pyarrow.dataset as ds

            if not readable:
                readable.append(old.is_readable())
            if not readable[0]:
                return [True] * batch.num_rows
            among = ds.field(keys[0]).isin(batch.column(keys[0]).unique())
            known = {key for found in batches_of(old.table, keys, among) for key in tuples_of(found, keys)}
            return [key in known for key in tuples_of(batch, keys)]

        return there

    def _rows(self, version: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds

        column = self.contract.batch_column
        wanted = None if version < 0 or column is None else ds.field(column) > version
        yield from self.rows_where(wanted)

    def rows_where(self, wanted: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows that meet a condition, with the contract's columns; None for every row.

        Raises:
            FilesGone, ReplicaCorrupt: a file of the table is gone or damaged.
        """
        stored = {field["name"] for field in self.snapshot.fields()}
        there = [name for name in self.contract.names if name in stored]
        for batch in batches_of(self.table, there, wanted):
            yield batch if len(there) == len(self.contract.names) else _with_new_columns(batch, self.contract)

    def _deleted_after(self, version: int) -> tuple[pa.Table, int | None]:
        """Return the keys of deleted rows, and the tombstones' position if it has to stay."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        assert self.tombstones is not None
        found = _snapshot(self.tombstones)
        contract = self.tombstones[0].contract
        assert contract is not None
        order = [
            each for each in contract.names if each not in (IS_TRUNCATE, _BATCH, *self.contract.merge_key)
        ]
        keys = list(self.contract.merge_key)
        wanted = (ds.field(_BATCH) > version) & ~ds.field(IS_TRUNCATE)
        dead = pa.Table.from_batches(
            [*batches_of(self.tombstones, [*keys, *order], wanted)], schema=schema_of(found, [*keys, *order])
        )
        if not dead.num_rows:
            return dead.select(keys), None
        alive, pending = _alive(self.table, dead, keys, order)
        mask = [key not in alive for key in tuples_of(dead, keys)]
        return dead.select(keys).filter(pa.array(mask, pa.bool_())), version if pending else None


def _alive(
    table: tuple[Table, int], dead: pa.Table, keys: list[str], order: list[str]
) -> tuple[set[tuple[Any, ...]], bool]:
    """Return which of some keys have a row, and whether one of these rows is older than its tombstone."""
    import pyarrow.dataset as ds

    tombstones = dict(zip(tuples_of(dead, keys), tuples_of(dead, order), strict=True))
    # Prune files by the first key; the rest is compared here.
    among = ds.field(keys[0]).isin(dead.column(keys[0]).combine_chunks().unique())
    alive, pending = set(), False
    columns = [*keys, *(name for name in order if name not in keys)]
    for batch in batches_of(table, columns, among):
        for key, place in zip(tuples_of(batch, keys), tuples_of(batch, order), strict=True):
            if key in tombstones:
                alive.add(key)
                pending = pending or place < tombstones[key]
    return alive, pending


def rows_taken_out(rows: DeliveryRows, before: SinkPosition | None) -> bool:
    """Return whether an undo changed the table after a position, or might have: the log says no more."""
    if before is None or before.version >= rows.position.version:
        return False
    steps = rows.position.version - before.version
    if steps > _MOST_COMMITS:
        return True
    notes = [*islice(commit_notes(rows.table[0].path, rows.table[1]), steps)]
    return len(notes) < steps or any(UNDO in note.user_metadata for note in notes)


def has_truncate(rows: DeliveryRows, before: SinkPosition | None) -> bool:
    """Return whether a truncate came after a position: its rows have no tombstones of their own."""
    import pyarrow.dataset as ds

    if before is None or rows.tombstones is None or before.tombstones >= rows.tombstones[1]:
        return False
    wanted = (ds.field(_BATCH) > before.tombstones) & ds.field(IS_TRUNCATE)
    return any(True for _ in batches_of(rows.tombstones, [_BATCH], wanted))


def _snapshot(pinned: tuple[Table, int]) -> Snapshot:
    table, version = pinned
    found = table.snapshot(version)
    assert found is not None  # it has that version
    return found


def schema_of(snapshot: Snapshot, columns: list[str]) -> pa.Schema:
    """Return the schema of some columns of a table."""
    import pyarrow as pa

    schema = snapshot.dataset().schema
    return pa.schema([schema.field(name) for name in columns])


def batches_of(
    pinned: tuple[Table, int], columns: list[str], wanted: Any, *, files: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows, see `batches_of_snapshot`.

    Raises:
        FilesGone, ReplicaCorrupt: a file of the table is gone or damaged.
    """
    with storage_named(pinned[0]):
        yield from batches_of_snapshot(_snapshot(pinned), columns, wanted, at_once=ROWS_AT_ONCE, files=files)


def _with_new_columns(batch: pa.RecordBatch, contract: TableContract) -> pa.RecordBatch:
    """Return rows with the columns that are declared and that no run has added to the table yet: null."""
    import pyarrow as pa

    schema = data_file_schema(contract)
    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def tuples_of(rows: Any, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return the values of some columns, row by row."""
    return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))
