"""The tombstones of a load whose changes this process has staged: those that are there, and the new ones.

Belongs here: reading and committing tombstones without Spark. Does not belong here: what they make late
(`newest_changes.py`), and the same by Spark (`apply_changes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.compute.in_process import is_little_work
from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.read.data_files import new_data_file, pieces_of
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.read.rows import files_with
from etl_assets.delta.write.content import StoredFile, content_of
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.rewrite import Rewrite, Rewritten, can_rewrite, commit_rewrite
from etl_assets.delta.write.writing import storage_named
from etl_assets.pipelines.declared import BATCH_ID
from etl_assets.steps.apply_changes import Tombstones
from etl_assets.steps.known_keys import KnownKeys
from etl_assets.steps.new_keys import KEYS_AT_ONCE, KeyedRows
from etl_assets.steps.newest_changes import ChangesOfLoad
from etl_assets.steps.row_order import Place, newest_place

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTombstones:
    """Tombstones of one version of their table.

    Attributes:
        tombstones: The tombstones of the run.
        content: Their data files.
        stored: Those that may concern the changes; none if the run replaces all tombstones.
    """

    tombstones: Tombstones
    content: tuple[StoredFile, ...]
    stored: tuple[StoredFile, ...]

    @classmethod
    def of(cls, tombstones: Tombstones, within: Within | None) -> KnownTombstones | None:
        """Return the tombstones; None where Spark reads them, because of features or much work.

        Args:
            tombstones: The tombstones of the run.
            within: Ranges that hold the keys of the changes, if known.
        """
        if tombstones.seen < 0:
            return cls(tombstones=tombstones, content=(), stored=())
        base = tombstones.table.snapshot(tombstones.seen)
        assert base is not None  # the run has seen it
        if not base.is_plain or not can_rewrite(tombstones.table, base):
            return None
        content = tuple(content_of(base).values())
        if not all(file.tells_rows for file in content):
            return None
        if tombstones.is_whole:
            return cls(tombstones=tombstones, content=content, stored=())
        key, near = tombstones.columns.keys[0], {*files_with(base, None, within)}
        stored = tuple(file for file in content if file.path in near or _may_have_null(file, key))
        if not is_little_work(sum(file.rows for file in stored)):
            return None
        return cls(tombstones=tombstones, content=content, stored=stored)

    def among(self, keys: pa.Table) -> tuple[pa.Table, Place | None]:
        """Return keys and order of the tombstones of some keys, and the place of the truncate.

        Raises:
            FilesGone, ReplicaCorrupt: a file of the table is gone or damaged.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = self.tombstones.columns
        names = [*dict.fromkeys((IS_TRUNCATE, *columns.keys, *columns.order))]
        types = data_file_schema(self.tombstones.contract)
        schema = pa.schema([types.field(name) for name in names])
        found, truncates = [schema.empty_table()], [schema.empty_table()]
        wanted = keys.group_by(keys.column_names).aggregate([])
        for file in self.stored:
            with storage_named(self._table):
                for piece in pieces_of(self._table.path / file.path, schema, at_once=KEYS_AT_ONCE):
                    is_truncate = piece.column(IS_TRUNCATE)
                    truncates.append(piece.filter(is_truncate))
                    deletes = piece.filter(pc.call_function("invert", [is_truncate]))
                    mine = deletes.join(wanted, keys.column_names, join_type="left semi")
                    found.append(mine.select(names))
        there = pa.concat_tables(found).drop_columns([IS_TRUNCATE])
        return there, newest_place(pa.concat_tables(truncates), columns.order)

    def commit(self, changes: ChangesOfLoad, folder: Path) -> None:
        """Commit the tombstones of changes, if there are some to keep or to replace.

        Args:
            changes: The changes.
            folder: A folder for a staged file.

        Raises:
            CommitConflict: another run has added tombstones meanwhile.
        """
        replaces = self.tombstones.is_whole and any(file.rows for file in self.content)
        if not changes.deletes.num_rows and changes.truncate is None and not replaces:
            return
        base = self.tombstones.seen
        if base < 0:
            ensure_table(self._table, wait_seconds=self._wait_seconds)
            base = 0
        file = folder / "tombstones.zstd.parquet"
        made = self._made(changes, base + 1)
        with new_data_file(file, made.schema) as writer:
            writer.write_table(made)
        rows = KeyedRows(contract=self.tombstones.contract, files=[file], kept=None)
        write = partial(self._replacing, rows, made.num_rows)
        if not replaces:
            order = self.tombstones.columns.order
            write = KnownKeys(table=self._table, rows=rows, order=order, stored=self.stored).write
        commit_rewrite(self._table, Rewrite(base_version=base, write=write), wait_seconds=self._wait_seconds)

    def _made(self, changes: ChangesOfLoad, batch_id: int) -> pa.Table:
        """Return the tombstones that changes leave."""
        import pyarrow as pa

        schema = data_file_schema(self.tombstones.contract)
        deletes = changes.newest_deletes()
        made = pa.table(
            {
                **{name: deletes.column(name) for name in deletes.column_names},
                IS_TRUNCATE: pa.repeat(pa.scalar(False), deletes.num_rows),
                BATCH_ID: pa.repeat(pa.scalar(batch_id), deletes.num_rows),
            }
        ).select(schema.names)
        truncates = []
        if changes.truncate is not None:
            truncates.append({IS_TRUNCATE: True, BATCH_ID: batch_id, **changes.truncate})
        return pa.concat_tables([made.cast(schema), pa.Table.from_pylist(truncates, schema=schema)])

    def _replacing(self, rows: KeyedRows, number: int, folder: Path) -> Rewritten:
        rows.write(folder, {})
        deleted = sum(file.rows for file in self.content)
        return Rewritten(
            removed=self.content, source_rows=number, inserted=number, updated=0, deleted=deleted
        )

    @property
    def _table(self) -> Table:
        return self.tombstones.table

    @property
    def _wait_seconds(self) -> float:
        return self.tombstones.context.lock_wait_seconds


def _may_have_null(file: StoredFile, column: str) -> bool:
    """Return whether a file may have a truncate, which has no key."""
    nulls = file.statistics.get("nullCount", {}).get(column)
    return nulls is None or nulls > 0
