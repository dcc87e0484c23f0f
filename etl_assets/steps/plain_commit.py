"""The commit of rows that this process has staged: tombstones first, then rows, without Spark.

Belongs here: the order of the commits, and what is known before the first one. Does not belong here: which
rows stand (`new_keys.py`, `known_keys.py`, `newest_changes.py`, `known_tombstones.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.rewrite import Rewrite, commit_rewrite
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import DeferredRows, Transaction, Write
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.steps.apply_changes import Tombstones
from etl_assets.steps.complete_changes import CompleteChanges
from etl_assets.steps.known_keys import KnownKeys, known_keys
from etl_assets.steps.known_tombstones import KnownTombstones
from etl_assets.steps.new_keys import KeyedRows, keyed_rows
from etl_assets.steps.newest_changes import ChangesOfLoad
from etl_assets.steps.plain_stage import PlainRows
from etl_assets.steps.step import StepContext
from etl_assets.transforms.lacking_values import lacking_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCommit:
    """The commit of one load.

    Attributes:
        context: The step's context.
        tables: The pipeline's tables.
        table: The pipeline's table.
        base: The version of it that the load is planned on.
        transaction: Identity of the commit.
        cursors: Cursors of the table after the commit.
        tombstones: The table's tombstones; None if it does not apply changes.
        upsert: Keys and order of the table.
        folder: Folder for staged rows.
        transactions: Other transaction ids to set with the commit, such as positions in a source.
        facts: Facts to keep with the commit.
    """

    context: StepContext
    tables: DeclaredTables
    table: Table
    base: Snapshot
    transaction: Transaction | None
    cursors: Mapping[str, int]
    tombstones: Tombstones | None
    upsert: UpsertSpec
    folder: Path
    transactions: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def run(self, plain: PlainRows, within: Within | None) -> tuple[Commit, int] | None:
        """Commit staged rows, and return how many stored rows truncates remove among those that are deleted.

        None where Spark does it: because of features or much work. Then nothing was written.

        Args:
            plain: The rows.
            within: Ranges that hold each row of the table with one of their keys, if known.

        Raises:
            CommitConflict: another run has written the table or its tombstones meanwhile.
        """
        changes = newest = kept = None
        # 1. Which changes stand, with values that they lack.
        if self.tombstones is not None:
            if (kept := KnownTombstones.of(self.tombstones, within)) is None:
                return None
            if (completed := self._completed(plain, kept, within)) is None:
                return None
            plain = completed
            changes = ChangesOfLoad.read(self.tables.table, self.tombstones.columns, plain)
            newest = changes.newest(*kept.among(changes.keys()))
        new = keyed_rows(self.tables, plain.files, self.table, self.base, within, newest)
        if new is None:
            return None
        truncate = None if newest is None else newest.truncate
        known = None
        if new.meets or truncate is not None:
            known = known_keys(self.tables, new, self.table, self.base, truncate)
            if known is None:
                return None
        # 2. Tombstones before rows.
        if kept is not None and changes is not None:
            kept.commit(changes, self.folder)
        # 3. The rows: of new keys only, they are an append.
        if known is None:
            return self._append(new), 0
        done = self._merge(known)
        return done, 0 if newest is None else max(0, done.source_rows - newest.keys.num_rows)

    def _completed(self, plain: PlainRows, kept: KnownTombstones, within: Within | None) -> PlainRows | None:
        if (lacking := lacking_columns(self.tables)) is None:
            return plain
        found = CompleteChanges(
            tables=self.tables,
            columns=lacking,
            table=self.table,
            base=self.base,
            tombstones=kept,
            within=within,
            folder=self.folder,
        )
        return found.run(plain)

    def _merge(self, known: KnownKeys) -> Commit:
        write = Rewrite(
            base_version=self.base.version,
            write=known.write,
            transaction=self.transaction,
            cursors=self.cursors,
            transactions=self.transactions,
            facts=self.facts,
        )
        return commit_rewrite(self.table, write, wait_seconds=self.context.lock_wait_seconds)

    def _append(self, new: KeyedRows) -> Commit:
        write = Write(
            rows=DeferredRows(schema=struct_type(self.tables.table), frame=_not_by_spark),
            base_version=self.base.version,
            transaction=self.transaction,
            upsert=replace(self.upsert, deleted_by=None),
            cursors=self.cursors,
            transactions=self.transactions,
            facts=self.facts,
            known_within=(),
            files=new.write,
        )
        return commit(self.table, write, wait_seconds=self.context.lock_wait_seconds)


def _not_by_spark() -> DataFrame:
    raise AssertionError("rows are staged by this process only for a table that it can append to")
