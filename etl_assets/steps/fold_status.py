"""warehouse_rows to order_status_view: what is new, folded by order and combined with what is there."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from etl_assets.contracts.spark_types import check_schema
from etl_assets.contracts.tables import ORDER_STATUS_VIEW, WAREHOUSE_ROWS
from etl_assets.delta.commit import Write, commit
from etl_assets.delta.create import base_of
from etl_assets.delta.cursor import advance, read_cursors
from etl_assets.delta.upsert import Combine, UpsertSpec
from etl_assets.steps.step import ReadMode, StepContext, StepReport, upsert_counts
from etl_assets.transforms.order_status import changed_sql, combine_sql, fold_orders


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldStatus:
    """The step. The view has no days; its cursor is on the whole of warehouse_rows."""

    context: StepContext
    mode: ReadMode

    def run(self, days: Sequence[dt.date] = ()) -> StepReport:
        """Combine the new rows into the view, in one commit; `days` are not looked at."""
        source, table = self.context.table(WAREHOUSE_ROWS.name), self.context.table(ORDER_STATUS_VIEW.name)
        seen = table.version()
        version = source.version()
        snapshot = source.snapshot(version) if version >= 0 else None
        cursor = read_cursors(table, source.name, [None])[None] if self.mode is ReadMode.INCREMENTAL else -1
        recreated = cursor > version
        cursor = -1 if recreated else cursor
        newest = None if snapshot is None else snapshot.maximum("batch_id")
        # Not by the version: a compaction makes one without new rows.
        if newest is None or newest <= cursor:
            return StepReport(table=table.name, version=table.version(), counts={None: Counter()})
        base = base_of(table, seen, wait_seconds=self.context.lock_wait_seconds)
        rows = fold_orders(source.read(self.context.spark, version, after=cursor))
        check_schema(ORDER_STATUS_VIEW, rows.schema)
        transaction, cursors = advance(source.name, [None], version)
        combined = combine_sql("t", "s")
        done = commit(
            table,
            Write(
                rows=rows,
                base_version=base,
                transaction=None if recreated or self.mode is ReadMode.WHOLE else transaction,
                upsert=UpsertSpec(merge_key=ORDER_STATUS_VIEW.merge_key),
                combine=Combine(values=combined, condition=changed_sql("t", combined)),
                cursors=cursors,
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
        return StepReport(
            table=table.name,
            version=done.version,
            counts={None: upsert_counts(done)},
            commits=int(not done.repeated),
        )
