"""The step from a table to a sink: which rows the target lacks, their delivery, and the record of it.

Neither Spark nor a JVM. If the process dies before the target's commit, the next step delivers the same rows.
If it dies between the target's commit and the record, the next step finds the target ahead and records it.
A target without commits gets the delivery that was begun to its end, as it was planned (`delivery_plan.py`).
Keys that were requested again, which are replays of dead letters, are part of the next delivery.

Belongs here: the order of the parts. Does not belong here: reading rows (`delivery_rows.py`,
`requested_rows.py`), the record (`delivery_record.py`), and the target's protocol (`sinks/`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from etl_assets.contracts.columns import TableContract
from etl_assets.contracts.tables import REPLAYS
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import base_of
from etl_assets.delta.write.run_fence import expect_current_at_newest
from etl_assets.delta.write.writing import storage_named
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sinks.decision import DeliveryExtent, Head, extent_of
from etl_assets.sinks.fencing import placed, raised, with_token
from etl_assets.sinks.replay_requests import ReplayRequest, done_up_to, newest_request, requests_after
from etl_assets.sinks.sink import Delivered, Delivery, Guarantee, Sink, SinkPosition
from etl_assets.steps.delivery_plan import PlannedDelivery, claimed, delivery_log, finish
from etl_assets.steps.delivery_record import (
    DeliveryRecord,
    commit_record,
    last_recorded,
    recorded_position,
)
from etl_assets.steps.delivery_rejects import DeliveryRejects
from etl_assets.steps.delivery_rows import DeliveryRows, has_truncate, rows_taken_out
from etl_assets.steps.reject_history import first_rejected_at
from etl_assets.steps.requested_rows import PastDelivery, RequestedRows, past_deliveries
from etl_assets.steps.step import READ, ReadMode, StepContext, StepReport

if TYPE_CHECKING:
    from etl_assets.effects.delivery_log import DeliveryLog

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
        """Bring the target to the table's newest version.

        That is one delivery, or two if the first one is a delivery that an earlier step began.
        """
        record = self.context.table(self.deliveries.name)
        whole = self.mode is ReadMode.WHOLE
        with self.context.turn(record.name):
            seen = record.version()
            report = StepReport(table=record.name, version=seen)
            recorded = recorded_position(record, self.table.name)
            rows = self._rows(recorded)
            if rows is None:
                return report
            if recorded == rows.position and not whole:
                return report
            with closing(self.open_sink()) as sink:
                sink.prepare(self.table)
                plan, one = self._delivered(sink, rows, recorded, record, seen, whole=whole)
                report += one
                if plan.is_continued and plan.after != rows.position:
                    recorded = recorded_position(record, self.table.name)
                    report += self._delivered(sink, rows, recorded, record, record.version(), whole=False)[1]
            return report

    def _rows(self, recorded: SinkPosition | None) -> DeliveryRows | None:
        """Return the table's rows as of now, with the newest request; None if there is no table."""
        # Tombstones first. A run writes tombstones, then rows. One that writes both in between is in the rows
        # and not yet in the tombstones: its position stays before them, and the next delivery reads them. If
        # its rows are missing too, nothing of it is delivered. The other way round, tombstones could come
        # without their rows; the keys are there then, and are held back (`delivery_rows.py`).
        tombstones = None if self.tombstones is None else self._pinned(self.tombstones.name)
        table = self._pinned(self.table.name)
        if table is None:
            return None
        replays = self.context.table(REPLAYS.name).snapshot()
        number = -1 if recorded is None else recorded.replays
        settled = number if replays is None else done_up_to(number, replays.version)
        with storage_named(table[0]):
            newest = newest_request(replays, self.deliveries.name, settled)
        if replays is not None and settled < number:
            newest = replays.version  # put back: the record goes back with it
        return DeliveryRows(contract=self.table, table=table, tombstones=tombstones, replays=newest)

    def _requests(self, after: int, up_to: int) -> tuple[ReplayRequest, ...]:
        replays = self.context.table(REPLAYS.name)
        with storage_named(replays):
            return requests_after(replays.snapshot(), self.deliveries.name, self.table, after, up_to=up_to)

    def _pinned(self, name: str) -> tuple[Table, int] | None:
        table = self.context.table(name)
        version = table.version()
        return None if version < 0 else (table, version)

    def _delivered(
        self,
        sink: Sink,
        rows: DeliveryRows,
        recorded: SinkPosition | None,
        record: Table,
        seen: int,
        *,
        whole: bool,
    ) -> tuple[PlannedDelivery, StepReport]:
        began, started = self.context.clock(), time.monotonic()
        held_by = self._fenced(sink) if sink.keeps_position else None
        before = placed(held_by) if sink.keeps_position else recorded
        present = self.context.table(REPLAYS.name).version()
        is_ours = before is not None and before.table_id == rows.position.table_id
        held = done_up_to(before.replays, present) if before is not None and is_ours else -1
        settled = -1 if recorded is None else done_up_to(recorded.replays, present)
        if held > rows.replays:
            rows = replace(rows, replays=held)
        # 1. Decide. A target that is at the head while the record is not: its writer died between the two.
        head = Head(
            position=rows.position,
            rows_taken_out=rows_taken_out(rows, before),
            has_truncate=has_truncate(rows, before),
        )
        known = None if recorded is None else replace(recorded, replays=settled)
        extent = extent_of(before, head, recorded=known, asked_whole=whole)
        base = base_of(record, seen, wait_seconds=self.context.lock_wait_seconds)
        notes: tuple[str, ...] = ()
        done: Delivered | None = None
        plan = PlannedDelivery(
            before=before, after=rows.position, whole=extent is DeliveryExtent.WHOLE, number=base + 1
        )
        # Requests that the record does not have. The target may have some of them.
        rejects = self._rejects(settled, rows.replays)
        past = past_deliveries(record, rows.position.table_id) if rejects.requests else ()
        if extent is DeliveryExtent.NOTHING:
            notes = ("the target had everything already; the figures of its delivery are not known",)
        else:
            # 2. Deliver; rejected rows are stored before the target commits.
            plan, done, notes = self._carry_out(sink, rows, plan, record, rejects, past, held, held_by)
        # 3. Settle what was requested, then record the delivery.
        if rejects.requests or rejects.unusable:
            requested = RequestedRows(requests=rejects.requests, rows=rows.at(plan.after), past=past)
            # Without `has_all` an earlier process delivered some of them: the table knows what was rejected.
            has_all = plan.whole or held <= settled
            is_known = done is not None and has_all and sink.guarantee is not Guarantee.AT_LEAST_ONCE
            rejects.settle(requested.result, is_known=is_known)
        version = commit_record(
            self.context,
            record,
            DeliveryRecord(
                before=before,
                after=plan.after,
                whole=None if done is None else plan.whole,
                done=done,
                guarantee=sink.guarantee.value,
                domain=self.context.domain.name,
                began_at=began,
                seconds=time.monotonic() - started,
            ),
            table=self.table.name,
            base=base,
        )
        report = StepReport(
            table=record.name, version=version, counts={None: _figures(done)}, commits=1, notes=notes
        )
        return plan, report

    def _fenced(self, sink: Sink) -> SinkPosition | None:
        """Return the position of a target as it is stored, after rejecting lost runners there.

        Raises:
            LeaseLost: a runner with a higher token has written there.
        """
        held, run = sink.position(), self.context.run
        if run is None or (wanted := raised(held, run, target=sink.target)) is None:
            return held
        nothing: Delivery = Delivery(
            before=held,
            after=wanted,
            whole=False,
            rows=lambda: iter(()),
            deleted=lambda: iter(()),
            reject=lambda rejections: None,
        )
        sink.deliver(nothing)
        return wanted

    def _rejects(self, after: int, up_to: int) -> DeliveryRejects:
        found = self._requests(after, up_to)
        # Since when the target lacks its row tells whether it had one before (`was_there`).
        since = first_rejected_at(self.context.table(self.rejects.name), [r for r in found if r.attempt > 2])
        return DeliveryRejects(
            context=self.context,
            contract=self.rejects,
            stage=self.deliveries.name,
            table=self.table,
            requests=tuple(
                replace(each, rejected_at=since.get(each.letter_id, each.rejected_at))
                for each in found
                if each.problem is None
            ),
            unusable=tuple(each for each in found if each.problem is not None),
        )

    def _carry_out(
        self,
        sink: Sink,
        rows: DeliveryRows,
        plan: PlannedDelivery,
        record: Table,
        rejects: DeliveryRejects,
        past: Sequence[PastDelivery],
        held: int,
        held_by: SinkPosition | None,
    ) -> tuple[PlannedDelivery, Delivered, tuple[str, ...]]:
        """Deliver, and return the plan that was carried out, its figures and notes.

        `held` is the number of requests that the target has, `held_by` its position as it is stored.
        """
        log: DeliveryLog | None = None
        done: Delivered | None = None
        if sink.guarantee is Guarantee.AT_LEAST_ONCE:
            log = delivery_log(self.context, self.deliveries.name)
            plan, done = claimed(log, rows, plan, recorded=last_recorded(record))
            rows = rows.at(plan.after) if plan.is_continued else rows
        rejects.keep_up_to(plan.after.replays)
        wanted = RequestedRows(
            requests=tuple(each for each in rejects.requests if each.number > held), rows=rows, past=past
        )
        since = None if plan.whole else plan.before
        found = wanted.added_to(rows.since(since), since)
        plan = replace(plan, after=found.position)
        if done is None:
            failpoint(Failpoint.SINK_BEFORE_DELIVERY, table=self.deliveries.name)
            done = sink.deliver(
                Delivery(
                    before=held_by if sink.keeps_position else plan.before,
                    after=with_token(plan.after, held_by, self.context.run),
                    whole=plan.whole,
                    rows=found.rows,
                    deleted=found.deleted,
                    reject=rejects.reject,
                    number=plan.number,
                    was_there=wanted.was_there(rows.was_there(plan.before)),
                    progress=log,
                    expect_current=partial(expect_current_at_newest, record),
                )
            )
            finish(log, done, table=self.deliveries.name)
        notes = done.notes
        if not sink.applies_deletes and (plan.whole or found.has_deleted):
            notes += (f"rows that are gone from {self.table.name} stay in {sink.target}: it removes none",)
        return plan, done, notes


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
