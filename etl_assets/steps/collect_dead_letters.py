"""The step from the stages' exceptions to dead_letters: all rejects, with the state of each dead letter."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.commit import Write, commit
from etl_assets.delta.create import base_of
from etl_assets.delta.rows import After, whole_days
from etl_assets.delta.session import frame_of
from etl_assets.delta.upsert import UpsertSpec
from etl_assets.orders.tables.dead_letters import DEAD_LETTERS
from etl_assets.orders.tables.exceptions import EXCEPTIONS_TABLES, RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.sources.landing import REPLAYS
from etl_assets.steps.changes import Changes, read_changes
from etl_assets.steps.step import ReadMode, StepContext, StepReport, upsert_counts
from etl_assets.transforms.dead_letters import (
    current_letters,
    dead_letters_of,
    replay_attempt,
    replayed_letter,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectDeadLetters:
    """The step. It is the only writer of dead_letters besides the operator's `dead-letters discard`."""

    context: StepContext
    mode: ReadMode

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Update the dead letters of the days, in one commit."""
        table = self.context.table(DEAD_LETTERS.name)
        seen = table.version()
        counts: dict[dt.date | None, Counter[str]] = {day: Counter() for day in days}
        readings = {
            name: read_changes(self.context.table(name), table, days, self.mode)
            for name in table.domain.catalog.inputs_of(table.name)
        }
        news = sorted({day for reading in readings.values() for day in reading.days})
        snapshot = table.snapshot()
        has_letters = (
            {day for (day,) in snapshot.rows_by("partition_date")} if snapshot is not None else set()
        )
        # Only days with new rejects, or with dead letters that new rows may close, have to be written.
        refused = {day for contract in EXCEPTIONS_TABLES for day in readings[contract.name].days}
        concerned = [day for day in news if day in refused or day.isoformat() in has_letters]
        if not concerned:
            return StepReport(table=table.name, version=table.version(), counts=counts)
        base = base_of(table, seen, wait_seconds=self.context.lock_wait_seconds)
        rows = self._letters(readings, concerned, base)
        check_schema(DEAD_LETTERS, rows.schema)
        cursors: dict[str, int] = {}
        for reading in readings.values():
            cursors |= reading.consumed()[1]
        done = commit(
            table,
            Write(
                rows=rows,
                base_version=base,
                upsert=UpsertSpec(
                    merge_key=DEAD_LETTERS.merge_key, delta_partition="partition_date", partition_bound=True
                ),
                partitions=[day.isoformat() for day in concerned],
                cursors=cursors,
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
        counts[concerned[0] if len(concerned) == 1 else None] = upsert_counts(done)
        return StepReport(
            table=table.name, version=done.version, counts=counts, commits=int(not done.repeated)
        )

    def _letters(self, readings: dict[str, Changes], days: Sequence[dt.date], base: int) -> DataFrame:
        from pyspark.sql import functions as F

        spark, whole = self.context.spark, whole_days(days)
        table = self.context.table(DEAD_LETTERS.name)
        stored = table.read(spark, base, whole)
        refused = [
            dead_letters_of(readings[contract.name].rows(spark))
            for contract in EXCEPTIONS_TABLES
            if readings[contract.name].days
        ]
        incoming = reduce(
            lambda one, other: one.unionByName(other), refused, stored.drop("batch_id").limit(0)
        )
        raw = self._whole(readings[RAW_EVENTS.name], whole, ("source", "source_position"))
        # Duplicates count as replayed too: another copy was accepted first.
        again = self._whole(
            readings[RAW_EVENTS_EXCEPTIONS.name], whole, ("source", "source_position", "outcome")
        ).where(F.col("outcome") == Outcome.DUPLICATE.value)
        replayed = raw.unionByName(again.drop("outcome")).where(F.col("source") == REPLAYS)
        replayed = replayed.select(
            replayed_letter("source_position").alias("dead_letter_id"),
            replay_attempt("source_position").alias("attempts"),
        )
        normalized = self._whole(readings[NORMALIZED_ORDERS.name], whole, ("event_id",))
        letters = current_letters(incoming, stored, replayed, normalized)
        return letters.withColumn("batch_id", F.lit(base + 1).cast("bigint"))

    def _whole(self, reading: Changes, after: After, columns: Sequence[str]) -> DataFrame:
        """Return all rows of the days in a stage's table, new or not; none if the table is missing."""
        spark = self.context.spark
        if reading.version < 0:
            return frame_of(spark, [], ", ".join(f"{name} STRING" for name in columns))
        return reading.source.read(spark, reading.version, after).select(*columns)
