"""A returned frame as changes of the asset's table: staged once, its tombstones kept, then the rows to merge.

Belongs here: what a run does with the tombstones of an own asset. Does not belong here: which changes are
late (`delta/write/changes.py`), and the tombstones of declared pipelines (`steps/apply_changes.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.tables.tombstones import IS_TRUNCATE, tombstones_name
from etl_assets.delta.table import Table
from etl_assets.delta.write.changes import IS_DELETED, ChangeColumns, tombstones_in, without_late
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import create_like
from etl_assets.delta.write.frame_columns import columns_of
from etl_assets.delta.write.schema_changes import change_columns, columns_after
from etl_assets.delta.write.staged import STAGED_FILE, STAGED_ROW, StagedRows
from etl_assets.delta.write.write import Write
from etl_assets.delta.write.write_spec import SchemaChanges, WriteSpec
from etl_assets.errors import ContractError
from etl_assets.steps.step import staging_folder
from etl_assets.transforms.analysis import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_deletes(rows: DataFrame, spec: WriteSpec, *, table: str) -> DataFrame:
    """Return a frame with `_is_deleted` and `_is_truncate`, and without the columns that are not stored.

    Raises:
        ContractError: `apply_as_deletes` is no condition on the frame's columns, or a column has one of these
            names.
    """
    from pyspark.sql import functions as F

    taken = [name for name in rows.columns if name.lower() in (IS_DELETED, IS_TRUNCATE)]
    if taken:
        raise ContractError(
            f"the rows for {table} have the column {taken[0]}, which marks deletes while changes are applied",
            fix="rename it in the asset",
            table=table,
        )
    text = spec.apply_as_deletes or "FALSE"
    place = f"`apply_as_deletes` of {table}"
    found = analyzed(place, lambda: rows.select(F.expr(text)), rows.columns).schema.fields
    if [field.dataType.simpleString() for field in found] != ["boolean"]:
        raise ContractError(
            f"{place} is {found[0].dataType.simpleString()}, not true or false",
            fix="compare a column with something, such as: op = 'D'",
            table=table,
        )
    return rows.withColumns(
        {IS_DELETED: F.coalesce(F.expr(text), F.lit(False)), IS_TRUNCATE: F.lit(False)}
    ).drop(*spec.except_column_list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedChanges:
    """The changes of one write.

    Attributes:
        staged: One change for each key, as files: the frame is not evaluated again.
        table: The asset's table.
        spec: How it is written.
        wait_seconds: How long a commit waits for a table's lock.
    """

    staged: StagedRows
    table: Table
    spec: WriteSpec
    wait_seconds: float

    @property
    def count(self) -> int:
        """How many changes there are."""
        return len(self.staged.here([IS_DELETED]))

    def rows_to_merge(self) -> DataFrame:
        """Commit the tombstones of the deletes, and return the changes that are not late.

        Raises:
            ContractError: the table of tombstones is another asset's.
            CommitConflict: another run has added tombstones meanwhile; nothing was written.
        """
        changes = self.staged.frame.drop(STAGED_FILE, STAGED_ROW)
        kept = self._keep(changes)
        if kept is None:
            return changes.drop(IS_TRUNCATE)
        return without_late(changes, kept, self._columns).drop(IS_TRUNCATE)

    @property
    def _columns(self) -> ChangeColumns:
        assert self.spec.sequence_by is not None  # apply_changes needs it
        return ChangeColumns(keys=self.spec.keys, order=(self.spec.sequence_by,))

    def _keep(self, changes: DataFrame) -> DataFrame | None:
        """Commit tombstones, and return all there are; None if there are none."""
        table = Table(name=tombstones_name(self.table.name), domain=self.table.domain)
        has_deletes = True in self.staged.here([IS_DELETED]).column(IS_DELETED).to_pylist()
        version, spark = table.version(), changes.sparkSession
        if not has_deletes and version < 0:
            return None
        made = tombstones_in(changes, self._columns)
        if version < 0:
            version = create_like(spark, table, made, delta_partition=None, wait_seconds=self.wait_seconds)
        version = self._fitted(table, made, version)
        if has_deletes:
            write = Write(
                rows=made,
                base_version=version,
                upsert=self._columns.upsert_of_tombstones,
                deterministic=True,
            )
            version = commit(table, write, wait_seconds=self.wait_seconds).version
        return table.read(spark, version)

    def _fitted(self, table: Table, made: DataFrame, version: int) -> int:
        """Widen the columns of the tombstones as those of the table were, and return their version."""
        snapshot = table.snapshot(version)
        assert snapshot is not None  # the caller has made it
        stored = columns_of(snapshot)
        if missing := [name for name in made.columns if name not in stored.names]:
            raise ContractError(
                f"the table {table.name} has no column {missing[0]}: it does not hold the tombstones of the"
                f" present `keys` and `sequence_by` of {self.table.name}",
                fix=f"give the asset another name, or take {table.path} away if {self.table.name} is made"
                " again from the beginning",
                table=table.name,
                column=missing[0],
            )
        after = columns_after(made.schema, stored, SchemaChanges.WIDEN)
        if after == stored:
            return version
        return change_columns(
            made.sparkSession,
            table,
            after,
            base_version=version,
            widens=True,
            wait_seconds=self.wait_seconds,
        )


@contextmanager
def staged_changes(rows: DataFrame, table: Table, base: int) -> Generator[StagedRows]:
    """Stage rows for the time of the block."""
    with staging_folder(table, base + 1) as folder:
        path = str(Path(folder) / "changes")
        rows.write.parquet(path)
        yield StagedRows(rows.sparkSession, path, rows.schema)
