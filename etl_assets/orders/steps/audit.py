"""The step from the stages' tables to audit_log: the outcome of every record.

It is off the critical path, and append only.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.read.range_predicate import Ranges, Within
from etl_assets.delta.read.rows import whole_days
from etl_assets.delta.session import frame_of
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import base_of
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import Write
from etl_assets.orders.tables.audit_log import AUDIT_LOG
from etl_assets.orders.tables.exceptions import NORMALIZED_ORDERS_EXCEPTIONS, RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.orders.transforms.audit import (
    audit_accepted,
    audit_committed,
    audit_exceptions,
    audit_normalized,
    files_read_again,
    first_outcomes,
)
from etl_assets.steps.changes import Changes, read_changes
from etl_assets.steps.step import INSERTED, ReadMode, StepContext, StepReport, upsert_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The step. Its merge only inserts, so that rows read again add nothing.

    The key of the merge is stage, source, position and attempt.
    """

    context: StepContext
    mode: ReadMode

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Record the rows that the days' tables have gained, in one commit."""
        table = self.context.table(AUDIT_LOG.name)
        seen = table.version()
        readings = {
            name: read_changes(self.context.table(name), table, days, self.mode)
            for name in table.domain.catalog.inputs_of(table.name)
        }
        counts: dict[dt.date | None, Counter[str]] = {day: Counter() for day in days}
        concerned = sorted({day for reading in readings.values() for day in reading.days})
        if not concerned:
            return StepReport(table=table.name, version=table.version(), counts=counts)
        base = base_of(table, seen, wait_seconds=self.context.lock_wait_seconds)
        rows = self._rows(readings, base + 1)
        check_schema(AUDIT_LOG, rows.schema)
        cursors: dict[str, int] = {}
        for reading in readings.values():
            cursors |= reading.consumed()[1]
        done = commit(
            table,
            Write(
                rows=rows,
                base_version=base,
                upsert=UpsertSpec(
                    # The source position identifies a record; the event id, which may be null, is left out.
                    merge_key=("stage", "source", "source_position", "attempt"),
                    delta_partition="partition_date",
                    partition_bound=True,
                    insert_only=True,
                ),
                partitions=[day.isoformat() for day in concerned],
                rows_at_most=_rows_at_most(readings),
                cursors=cursors,
                deterministic=True,
                known_within=_known_within(readings),
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
        for day, inserted in done.net_rows_by_partition.items():
            counts[dt.date.fromisoformat(day)][INSERTED] = inserted
        totals = upsert_counts(done)
        del totals[INSERTED]
        alone = concerned[0] if len(concerned) == 1 else None
        counts[alone] = counts.get(alone, Counter()) + totals
        return StepReport(
            table=table.name, version=done.version, counts=counts, commits=int(not done.repeated)
        )

    def _rows(self, readings: dict[str, Changes], batch_id: int) -> DataFrame:
        from pyspark.sql import functions as F

        spark = self.context.spark
        parts = self._ingested(readings)
        if readings[NORMALIZED_ORDERS.name].days:
            orders = readings[NORMALIZED_ORDERS.name].rows(spark)
            parts.append(audit_normalized(orders, self._refused_before(readings), self.context.clock()))
        if readings[WAREHOUSE_ROWS.name].days:
            parts.append(audit_committed(readings[WAREHOUSE_ROWS.name].rows(spark)))
        if readings[NORMALIZED_ORDERS_EXCEPTIONS.name].days:
            parts.append(audit_exceptions(readings[NORMALIZED_ORDERS_EXCEPTIONS.name].rows(spark)))
        rows = reduce(lambda one, other: one.unionByName(other), parts)
        return rows.withColumn("batch_id", F.lit(batch_id).cast("bigint"))

    def _ingested(self, readings: dict[str, Changes]) -> list[DataFrame]:
        spark, raw, refused = (
            self.context.spark,
            readings[RAW_EVENTS.name],
            readings[RAW_EVENTS_EXCEPTIONS.name],
        )
        rows = raw.rows(spark) if raw.days else None
        return first_outcomes(
            None if rows is None else audit_accepted(rows),
            audit_exceptions(refused.rows(spark)) if refused.days else None,
            None if rows is None or _of_one_batch(raw) else files_read_again(rows),
        )

    def _refused_before(self, readings: dict[str, Changes]) -> DataFrame:
        spark, reading = self.context.spark, readings[NORMALIZED_ORDERS_EXCEPTIONS.name]
        if reading.version < 0:
            return frame_of(spark, [], "event_id STRING, attempt INT")
        days = readings[NORMALIZED_ORDERS.name].days
        rows = reading.source.read(spark, reading.version, whole_days(days))
        return audit_exceptions(rows).select("event_id", "attempt")


def _of_one_batch(raw_events: Changes) -> bool:
    """Return whether the rows read belong to one batch, which has read each file once."""
    batches = raw_events.range_of("batch_id")
    return batches is not None and batches[0] == batches[1]


def _rows_at_most(readings: Mapping[str, Changes]) -> int | None:
    """Return the most rows that there can be: the audit log has a row for each one read."""
    numbers = [reading.rows_at_most() for reading in readings.values()]
    known = [rows for rows in numbers if rows is not None]
    return sum(known) if len(known) == len(numbers) else None


def _known_within(readings: Mapping[str, Changes]) -> Within:
    """Return the ranges in which audit_log may have rows with a key of those read.

    There is a range of positions per stage.

    Stage and position are both part of the key, so this holds whatever is read again.
    """
    found: list[Ranges] = []
    for name, reading in readings.items():
        if not reading.days:
            continue
        if name in (RAW_EVENTS.name, RAW_EVENTS_EXCEPTIONS.name):
            bounds = reading.bounds_of("source_position")
            found += _at("ingest", None if bounds is None else [bounds])
        elif name == NORMALIZED_ORDERS.name:
            found += _at("normalize", _as_text(reading.range_of("raw_offset")))
        elif name == NORMALIZED_ORDERS_EXCEPTIONS.name:
            found += _at("normalize", _as_text(reading.bounds_of("original_offset")))
        else:
            found += _at("commit", _as_text(reading.range_of("normalized_offset")))
    return tuple(found)


def _at(stage: str, positions: Sequence[tuple[str, str]] | None) -> Iterator[Ranges]:
    of_stage = {"stage": (stage, stage)}
    yield from (
        [of_stage]
        if positions is None
        else ({**of_stage, "source_position": position} for position in positions)
    )


def _as_text(offsets: tuple[int, int] | None) -> list[tuple[str, str]] | None:
    """Return a range of offsets as ranges of their decimal text.

    There is one range per number of digits, because 10 sorts before 9 as text.
    """
    if offsets is None:
        return None
    low, high = offsets
    lengths = range(len(str(low)), len(str(high)) + 1)
    return [
        (str(max(low, 10 ** (digits - 1) if digits > 1 else 0)), str(min(high, 10**digits - 1)))
        for digits in lengths
    ]
