"""Apply changes to a table: keep their tombstones, then return the rows of its MERGE.

Tombstones are committed before the rows. A run that ends in between has deleted nothing yet; the next one
reads the same changes, and a change is late only where it is older than a tombstone, so that a delete still
deletes after its own.

Belongs here: what a stage does with the tombstones of its table. Does not belong here: what is late
(`delta/write/changes.py`), and the commit of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.write.changes import (
    ChangeColumns,
    tombstones_in,
    truncated_rows,
    without_late,
)
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.contract_columns import fit_to_contract, stored_columns
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.write import ALL_ROWS, Write
from etl_assets.delta.write.write_version import moved_on
from etl_assets.steps.step import StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.table import Table

BATCH_ID = "_batch_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """The tombstones of a table, for one run.

    Attributes:
        context: The step's context.
        contract: Their table.
        seen: Its version before the run read the version of its input; -1 if there was none. Another run that
            adds tombstones afterwards is a conflict: this one may replace them only by those of no less
            changes.
        columns: What the columns of changes mean.
        is_whole: Whether the run reads all changes there are, so that only their tombstones are kept.
        is_first: Whether the table has read no change yet, so that a run that ends early is followed by one
            that reads all.
    """

    context: StepContext
    contract: TableContract
    seen: int
    columns: ChangeColumns
    is_whole: bool
    is_first: bool

    @property
    def table(self) -> Table:
        """Their table."""
        return self.context.table(self.contract.name)

    def expect_unchanged(self) -> None:
        """Reject tombstones that another run added before the version of the rows was read.

        Late changes would not be known as such. From then on such a run is a conflict of the rows, which it
        commits after its tombstones.

        Raises:
            CommitConflict: there are some; nothing was written.
        """
        if (now := self.table.version()) != self.seen:
            raise moved_on(self.table, current=now, base=self.seen)

    def keep(self, changes: DataFrame, *, are_there: bool) -> DataFrame | None:
        """Commit the tombstones of changes, and return all that are kept; None if there are none.

        Args:
            changes: Keys, order, `_is_deleted` and `_is_truncate`.
            are_there: Whether there is a delete or a truncate among them.

        Raises:
            CommitConflict: another run has added tombstones meanwhile.
            ContractError: tombstones of other keys are there.
        """
        if self.seen < 0 and not are_there:
            return None
        base = self._fitted(self.seen if self.seen >= 0 else self._created())
        has_rows = self._has_rows(base)
        if are_there or (self.is_whole and has_rows):
            made = tombstones_in(changes, self.columns)
            base = self._commit(made, base, replaces=self.is_whole and has_rows)
        elif not has_rows:
            return None
        kept = self.table.read(self.context.spark, base)
        return kept.select(IS_TRUNCATE, *self.columns.keys, *self.columns.order)

    def live(self, changes: DataFrame, kept: DataFrame) -> DataFrame:
        """Return the upserts and deletes that are not late.

        Args:
            changes: As for `keep`, with any other columns.
            kept: All tombstones.
        """
        return without_late(changes, kept, self.columns)

    def truncated(self, newest: DataFrame, kept: DataFrame, stored: DataFrame) -> DataFrame:
        """Return deletes of the stored rows that a truncate removes, but for those of keys with a change.

        Args:
            newest: The newest changes that are not late, one for each key.
            kept: All tombstones.
            stored: The table's rows.
        """
        return truncated_rows(stored, newest, kept, self.columns)

    def _has_rows(self, version: int) -> bool:
        snapshot = self.table.snapshot(version)
        return snapshot is not None and any(True for _ in snapshot.files())

    def _created(self) -> int:
        ensure_table(self.table, wait_seconds=self.context.lock_wait_seconds)
        return 0

    def _fitted(self, base: int) -> int:
        """Give the table its columns, and return its version."""
        return fit_to_contract(
            self.context.spark,
            self.table,
            base_version=base,
            # Keys of other types are former ones. All changes are read again, now or by the next run.
            rows_go=self.is_first,
            wait_seconds=self.context.lock_wait_seconds,
        )

    def _commit(self, rows: DataFrame, base: int, *, replaces: bool) -> int:
        from pyspark.sql import functions as F

        table = self.table
        snapshot = table.snapshot(base)
        assert snapshot is not None  # `base` is a version of the table
        rows = rows.withColumn(BATCH_ID, F.lit(base + 1).cast("bigint")).select(*self.contract.names)
        former = [f for f in stored_columns(snapshot).fields if f.name not in self.contract.names]
        rows = rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in former})
        done = commit(
            table,
            Write(
                rows=rows,
                base_version=base,
                upsert=None if replaces else self.columns.upsert_of_tombstones,
                replaces=ALL_ROWS if replaces else None,
                deterministic=True,
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
        return done.version
