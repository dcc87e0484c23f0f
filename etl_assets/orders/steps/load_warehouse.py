"""The step from normalized_orders to warehouse_rows: an insert-only merge by warehouse key."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.create import base_of
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import Write
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.orders.transforms.warehouse_rows import warehouse_rows
from etl_assets.steps.changes import Changes, read_changes
from etl_assets.steps.step import IGNORED, INSERTED, READ, UPDATED, ReadMode, StepContext, StepReport

_UPSERT = UpsertSpec(
    merge_key=WAREHOUSE_ROWS.merge_key,
    delta_partition="partition_date",
    partition_bound=True,
    insert_only=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWarehouse:
    """The step.

    A normalized row never changes, so a row of the table with the same key is the same row. The merge
    therefore only inserts, which is half the work of one that may update.
    """

    context: StepContext
    mode: ReadMode

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Insert the days' new rows, in one commit."""
        table = self.context.table(WAREHOUSE_ROWS.name)
        seen = table.version()
        changes = read_changes(self.context.table(NORMALIZED_ORDERS.name), table, days, self.mode)
        counts: dict[dt.date | None, Counter[str]] = {day: Counter() for day in days}
        if not changes.days:
            return StepReport(table=table.name, version=table.version(), counts=counts)
        done = self._commit(changes, seen)
        for day, inserted in done.net_rows_by_partition.items():
            counts[dt.date.fromisoformat(day)] += Counter(
                {INSERTED: inserted, Outcome.COMMITTED.value: inserted}
            )
        totals = Counter({READ: done.source_rows, UPDATED: done.updated, IGNORED: done.ignored})
        if len(changes.days) == 1:
            counts[changes.days[0]] += totals
        else:
            counts[None] = totals
        return StepReport(
            table=table.name, version=done.version, counts=counts, commits=int(not done.repeated)
        )

    def _commit(self, changes: Changes, seen: int) -> Commit:
        from pyspark.sql import functions as F

        table = self.context.table(WAREHOUSE_ROWS.name)
        base = base_of(table, seen, wait_seconds=self.context.lock_wait_seconds)
        rows = warehouse_rows(changes.rows(self.context.spark)).select(
            "*",
            F.lit(self.context.domain.name).alias("sink_domain"),
            F.lit(self.context.clock()).alias("committed_at"),
            F.lit(base + 1).cast("bigint").alias("batch_id"),
        )
        check_schema(WAREHOUSE_ROWS, rows.schema)
        transaction, cursors = changes.consumed()
        stands = table.snapshot(base)
        return commit(
            table,
            Write(
                rows=rows,
                base_version=base,
                transaction=transaction,
                upsert=_UPSERT,
                partitions=[day.isoformat() for day in changes.days],
                rows_at_most=changes.rows_at_most(),
                cursors=cursors,
                deterministic=True,
                known_within=() if stands is not None and changes.all_new_to(stands) else None,
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
