"""Staged changes that lack values of their row, completed by this process.

Belongs here: the stored rows and tombstones that a load needs for that, and its files with all values. Does
not belong here: which value a change gets (`delta/write/completed_changes.py`), and the same by Spark
(`delta/write/partial_changes.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.read.data_files import new_data_file, rows_at_once
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.read.rows import files_with
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.delta.write.completed_changes import (
    FORMER_KEY,
    IS_STORED,
    LackingColumns,
    completed_changes,
)
from etl_assets.delta.write.writing import storage_named
from etl_assets.pipelines.declared import BATCH_ID, DeclaredTables
from etl_assets.steps.known_tombstones import KnownTombstones
from etl_assets.steps.new_keys import read_columns, stored_pieces
from etl_assets.steps.plain_stage import PlainRows, record_columns
from etl_assets.transforms.plain_records import PlainRecords

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

_LAST = (1 << 63) - 1
_ROWS_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteChanges:
    """The completion of one load.

    Attributes:
        tables: The pipeline's tables.
        columns: What their columns mean.
        table: The pipeline's table.
        base: The version of it that the load is planned on.
        tombstones: Its tombstones.
        within: Ranges that hold each row of the table with one of the changes' keys, if known.
        folder: Folder for staged rows.
    """

    tables: DeclaredTables
    columns: LackingColumns
    table: Table
    base: Snapshot
    tombstones: KnownTombstones
    within: Within | None
    folder: Path

    def run(self, plain: PlainRows) -> PlainRows | None:
        """Return staged rows with the values that they lack; the same rows if nothing is to be done.

        None where Spark does it: former keys are of a type that only Spark reads.

        Raises:
            FilesGone, ReplicaCorrupt: a file of the table is gone or damaged.
        """
        import pyarrow as pa

        if not plain.files:
            return plain
        contract = self.tables.table
        small = [*dict.fromkeys((*self.columns.keys, self.columns.sequence, self.columns.lacks))]
        staged = read_columns(contract, plain.files, small)
        lacking = staged.filter(call("is_valid", staged.column(self.columns.lacks)))
        # 1. The keys whose stored rows may have or want values.
        former = self._former(lacking)
        if former is None:
            return None
        wanted = pa.concat_tables([lacking.select(list(self.columns.keys)), former])
        late = self._wanting(staged)
        if not wanted.num_rows and not late.num_rows:
            return plain
        keys = pa.concat_tables([wanted, late]).group_by(list(self.columns.keys)).aggregate([])
        # 2. Everything that is known of them.
        rows = self._changes(plain)
        stored = self._stored(keys, rows.column_names)
        gone, truncated = self.tombstones.among(
            pa.concat_tables([keys, rows.select(list(self.columns.keys)).drop_null()])
        )
        parts = [rows, _flagged(stored, is_stored=True), _flagged(gone, is_deleted=True, is_stored=True)]
        if truncated is not None:
            place = pa.table({name: pa.array([value]) for name, value in truncated.items()})
            parts.append(_flagged(place, is_truncate=True, is_stored=True))
        known = pa.concat_tables(parts, promote_options="default")
        # 3. The changes with their values.
        return self._written(plain, completed_changes(known, self.columns))

    def _former(self, lacking: pa.Table) -> pa.Table | None:
        """Return the keys that rows of changes had before; None if a record of one is not plain."""
        texts = _former_texts(lacking.column(self.columns.lacks).to_pylist())
        return self._keys_of([each for each in texts if each is not None])

    def _keys_of(self, texts: Sequence[str]) -> pa.Table | None:
        """Return keys that are written as records."""
        import pyarrow as pa

        mine = [each for each in record_columns(self.tables) if each.column.name in self.columns.keys]
        records = PlainRecords.of(mine, frozenset(self.columns.keys))
        if records is None:
            return None
        found, positions = records.typed(pa.array(texts, pa.string()))
        schema = data_file_schema(self.tables.table)
        schema = pa.schema([schema.field(name).with_nullable(True) for name in self.columns.keys])
        return found.select(schema.names).cast(schema) if len(positions) == len(texts) else None

    def _wanting(self, staged: pa.Table) -> pa.Table:
        """Return the keys of stored rows that lack a value which an older change among these may have.

        Changes mostly come in their order: then no stored row is newer, and no file is read.
        """
        import pyarrow as pa

        sequence, names = self.columns.sequence, [*self.columns.keys, self.columns.lacks]
        within = self.within
        if pa.types.is_integer(staged.schema.field(sequence).type):
            first = call("min", staged.column(sequence)).as_py()
            within = tuple({**ranges, sequence: (first, _LAST)} for ranges in within or ({},))
        keys = staged.select(list(self.columns.keys))
        found = [keys.slice(0, 0)]
        for piece in self._pieces(within, names):
            lacking = piece.filter(call("is_valid", piece.column(self.columns.lacks)))
            if lacking.num_rows:
                lacking = lacking.select(list(self.columns.keys)).cast(keys.schema)
                found.append(lacking.join(keys, keys.column_names, join_type="left semi"))
        return pa.concat_tables(found)

    def _pieces(self, within: Within | None, names: Sequence[str]) -> Iterator[pa.Table]:
        import pyarrow as pa

        contract, files = self.tables.table, list(files_with(self.base, None, within))
        schema = data_file_schema(contract)
        schema = pa.schema([schema.field(name) for name in names])
        partitions = dict(self.base.partitions(files)) if contract.delta_partition else {}
        for file in files:
            path = self.table.path / file
            with storage_named(self.table):
                at_once = min(_ROWS_AT_ONCE, rows_at_once(path))
                yield from stored_pieces(path, schema, contract, partitions.get(file, {}), at_once=at_once)

    def _stored(self, keys: pa.Table, wanted: Sequence[str]) -> pa.Table:
        """Return the stored rows of some keys."""
        import pyarrow as pa

        names = [name for name in self.tables.table.names if name in wanted]
        found = []
        for piece in self._pieces(self.within, names):
            numbered = piece.select(list(keys.column_names)).append_column(
                "_row", pa.array(range(piece.num_rows), pa.int64())
            )
            mine = numbered.join(keys.cast(_schema(piece, keys)), keys.column_names, join_type="left semi")
            if mine.num_rows:
                found.append(piece.take(mine.column("_row")))
        schema = data_file_schema(self.tables.table)
        return pa.concat_tables(found or [pa.schema([schema.field(name) for name in names]).empty_table()])

    def _changes(self, plain: PlainRows) -> pa.Table:
        """Return all staged changes, with the former keys of those that lack values of another row."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.concat_tables([pq.read_table(file, partitioning=None) for file in plain.files])
        texts = _former_texts(rows.column(self.columns.lacks).to_pylist())
        rows = _flagged(rows)
        if any(texts):
            former = self._keys_of([each for each in texts if each is not None])
            assert former is not None  # they have been read before
            places, number = [], 0
            for each in texts:
                places.append(None if each is None else number)
                number += each is not None
            former = former.take(pa.array(places, pa.int64()))
            for name, column in zip(self.columns.former, former.columns, strict=True):
                rows = rows.append_column(name, column)
        if not plain.deleted:
            return rows
        gone = pa.concat_tables([pq.read_table(file, partitioning=None) for file in plain.deleted])
        is_truncate = gone.column(IS_TRUNCATE)
        gone = gone.drop_columns([IS_TRUNCATE]).append_column(IS_TRUNCATE, is_truncate)
        gone = gone.append_column(IS_DELETED, call("invert", is_truncate))
        gone = gone.append_column(IS_STORED, pa.repeat(pa.scalar(False), gone.num_rows))
        return pa.concat_tables([rows, gone], promote_options="default")

    def _written(self, plain: PlainRows, rows: pa.Table) -> PlainRows:
        """Write upserts as the staged file of the load."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.folder / "completed"
        folder.mkdir()
        upserts = rows.filter(call("invert", call("or", rows.column(IS_DELETED), rows.column(IS_TRUNCATE))))
        schema = pq.read_schema(plain.files[0]).remove_metadata()
        path = folder / "part-00000.zstd.parquet"
        place = upserts.column_names.index(BATCH_ID)
        batch = pa.repeat(call("max", rows.column(BATCH_ID)), upserts.num_rows)
        upserts = upserts.set_column(place, BATCH_ID, batch)
        with new_data_file(path, schema) as writer:
            for first in range(0, upserts.num_rows, _ROWS_AT_ONCE):
                writer.write_table(upserts.slice(first, _ROWS_AT_ONCE).select(schema.names).cast(schema))
        return replace(plain, files=(path,))


def _former_texts(lacks: Sequence[str | None]) -> list[str | None]:
    """Return the former key in each of some texts, if there is one."""
    mark = f'"{FORMER_KEY}":'
    return [json.loads(each).get(FORMER_KEY) if each and mark in each else None for each in lacks]


def _flagged(
    rows: pa.Table, *, is_deleted: bool = False, is_truncate: bool = False, is_stored: bool = False
) -> pa.Table:
    import pyarrow as pa

    for name, value in ((IS_DELETED, is_deleted), (IS_TRUNCATE, is_truncate), (IS_STORED, is_stored)):
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows


def _schema(piece: pa.Table, keys: pa.Table) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([piece.schema.field(name).with_nullable(True) for name in keys.column_names])
