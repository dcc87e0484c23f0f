"""The step from a table to a sink: which rows the target lacks, their delivery, and the record of it.

Neither Spark nor a JVM. If the process dies before the target's commit, the next step delivers the same rows.
If it dies between the target's commit and the record, the next step finds the target ahead and records it.

Belongs here: the order of the parts. Does not belong here: reading rows (`delivery_rows.py`), the record
(`delivery_record.py`), and the target's protocol (`sinks/`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from etl_assets.contracts.columns import TableContract
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import base_of
from etl_assets.sinks.decision import Extent, Head, extent_of
from etl_assets.sinks.sink import Delivered, Delivery, Sink, SinkPosition
from etl_assets.steps.delivery_record import (
    DeliveryRecord,
    commit_record,
    commit_rejections,
    recorded_position,
)
from etl_assets.steps.delivery_rows import DeliveryRows, has_truncate, rows_taken_out
from etl_assets.steps.step import READ, ReadMode, StepContext, StepReport

WRITTEN, UNCHANGED, DELETED, REJECTED = "written", "unchanged", "deleted", "rejected"


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """The step of one sink.

    Attributes:
        context: The context of the step.
        mode: Whether to deliver what is new, or every row.
        table: The table that the target follows.
        tombstones: The table with the tombstones of its deleted rows; None if it deletes none.
        deliveries: The table of deliveries.
        rejects: The table of rows that the target did not accept.
        open_sink: Opens the sink, and checks that it may be written.
    """

    context: StepContext
    mode: ReadMode
    table: TableContract
    tombstones: TableContract | None
    deliveries: TableContract
    rejects: TableContract
    open_sink: Callable[[], Sink]

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Bring the target to the table's newest version, in one delivery."""
        record = self.context.table(self.deliveries.name)
        with self.context.turn(record.name):
            seen = record.version()
            rows = self._rows()
            if rows is None:
                return StepReport(table=record.name, version=seen)
            recorded = recorded_position(record, self.table.name)
            if recorded == rows.position and self.mode is ReadMode.INCREMENTAL:
                return StepReport(table=record.name, version=seen)
            with closing(self.open_sink()) as sink:
                return self._delivered(sink, rows, recorded, record, seen)

    def _rows(self) -> DeliveryRows | None:
        """Return the table's rows as of now; None if there is no table."""
        # Tombstones first: they are written before the rows, so none is passed over (`delivery_rows.py`).
        tombstones = None if self.tombstones is None else self._pinned(self.tombstones.name)
        table = self._pinned(self.table.name)
        if table is None:
            return None
        return DeliveryRows(contract=self.table, table=table, tombstones=tombstones)

    def _pinned(self, name: str) -> tuple[Table, int] | None:
        table = self.context.table(name)
        version = table.version()
        return None if version < 0 else (table, version)

    def _delivered(
        self, sink: Sink, rows: DeliveryRows, recorded: SinkPosition | None, record: Table, seen: int
    ) -> StepReport:
        began, started = self.context.clock(), time.monotonic()
        sink.prepare(self.table)
        before = sink.position() if sink.keeps_position else recorded
        head = Head(
            position=rows.position,
            rows_taken_out=rows_taken_out(rows, before),
            has_truncate=has_truncate(rows, before),
        )
        # 1. Decide. A target that is at the head while the record is not: its writer died between the two.
        extent = extent_of(before, head, asked_whole=self.mode is ReadMode.WHOLE)
        base = base_of(record, seen, wait_seconds=self.context.lock_wait_seconds)
        notes: tuple[str, ...] = ()
        done: Delivered | None = None
        after = rows.position
        if extent is Extent.NOTHING:
            notes = ("the target had everything already; the figures of its delivery are not known",)
        else:
            # 2. Deliver; rejected rows are stored before the target commits.
            whole = extent is Extent.WHOLE
            found = rows.since(None if whole else before)
            after = found.position
            done = sink.deliver(
                Delivery(
                    before=before,
                    after=after,
                    whole=whole,
                    rows=found.rows,
                    deleted=found.deleted,
                    reject=lambda rejections: commit_rejections(
                        self.context, self.rejects, self.deliveries.name, rejections
                    ),
                )
            )
            if not sink.applies_deletes and (whole or found.has_deleted):
                notes = (f"rows that are gone from {self.table.name} stay in {sink.target}: it removes none",)
        # 3. Record it.
        version = commit_record(
            self.context,
            record,
            DeliveryRecord(
                before=before,
                after=after,
                whole=None if done is None else extent is Extent.WHOLE,
                done=done,
                guarantee=sink.guarantee.value,
                domain=self.context.domain.name,
                began_at=began,
                seconds=time.monotonic() - started,
            ),
            table=self.table.name,
            base=base,
        )
        return StepReport(
            table=record.name, version=version, counts={None: _figures(done)}, commits=1, notes=notes
        )


def _figures(done: Delivered | None) -> Counter[str]:
    if done is None:
        return Counter()
    return Counter(
        {
            READ: done.written + done.unchanged + done.rejected,
            WRITTEN: done.written,
            UNCHANGED: done.unchanged,
            DELETED: done.deleted,
            REJECTED: done.rejected,
        }
    )
