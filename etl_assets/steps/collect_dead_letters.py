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
from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
from etl_assets.delta.read.rows import After, whole_days
from etl_assets.delta.session import frame_of
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import base_of
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import Write
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

    from etl_assets.pipelines.stage import Stage


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
        inputs = table.domain.catalog.inputs_of(table.name)
        readings = {name: read_changes(self.context.table(name), table, days, self.mode) for name in inputs}
        news = sorted({day for reading in readings.values() for day in reading.days})
        snapshot = table.snapshot()
        has_letters = (
            {day for (day,) in snapshot.rows_by("partition_date")} if snapshot is not None else set()
        )
        # Only days with new rejects, or with dead letters that new rows may close, have to be written.
        refused = {day for name in self._rejects for day in readings[name].days}
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
            dead_letters_of(readings[name].rows(spark)) for name in self._rejects if readings[name].days
        ]
        incoming = _union(refused, stored.drop("batch_id").limit(0))
        replayed = _union(
            [
                (self._accepted if stage.source and stage.keeps_records else self._marked)(
                    readings, stage, whole
                )
                for stage in self._stages
                if stage.delivers or stage.source is not None
            ],
            frame_of(spark, [], "dead_letter_id STRING, attempts INT, is_final BOOLEAN"),
        )
        takes_replays = [stage for stage in self._stages if stage.takes_replays]
        done = _union(
            [
                self._whole(readings[stage.name], whole, ("event_id",)).select(
                    F.lit(stage.name_in_rejects).alias("stage"), "event_id"
                )
                for stage in takes_replays
            ],
            frame_of(spark, [], "stage STRING, event_id STRING"),
        )
        stages = frame_of(spark, [(stage.name_in_rejects,) for stage in takes_replays], "stage STRING")
        letters = current_letters(incoming, stored, replayed, stages, done)
        return letters.withColumn("batch_id", F.lit(base + 1).cast("bigint"))

    @property
    def _stages(self) -> tuple[Stage, ...]:
        """The stages that reject records."""
        return tuple(stage for stage in self.context.domain.catalog.stages if stage.rejects is not None)

    @property
    def _rejects(self) -> tuple[str, ...]:
        """Names of their tables of rejected records."""
        return tuple(stage.rejects.name for stage in self._stages if stage.rejects is not None)

    def _accepted(self, readings: dict[str, Changes], stage: Stage, after: After) -> DataFrame:
        """Return the dead letters and attempts whose records a source accepted.

        Duplicates count too: another copy was accepted first.
        """
        from pyspark.sql import functions as F

        assert stage.rejects is not None  # a source may reject records
        columns = ("source", "source_position")
        rows = self._whole(readings[stage.name], after, columns)
        again = self._whole(readings[stage.rejects.name], after, (*columns, "outcome")).where(
            F.col("outcome") == Outcome.DUPLICATE.value
        )
        return _attempts(rows.unionByName(again.drop("outcome")), is_final=False)

    def _marked(self, readings: dict[str, Changes], stage: Stage, after: After) -> DataFrame:
        """Return the dead letters and attempts that the table of rejected rows marks as replayed.

        Their rows a target took or needs no more, or a table without records got them.
        """
        from pyspark.sql import functions as F

        assert stage.rejects is not None  # a target may reject rows
        rows = self._whole(readings[stage.rejects.name], after, ("source", "source_position", "outcome"))
        return _attempts(rows.where(F.col("outcome") == Outcome.REPLAYED.value), is_final=True)

    def _whole(self, reading: Changes, after: After, columns: Sequence[str]) -> DataFrame:
        """Return all rows of the days in a stage's table, new or not; none if the table is missing."""
        spark = self.context.spark
        if reading.version < 0:
            return frame_of(spark, [], ", ".join(f"{name} STRING" for name in columns))
        return reading.source.read(spark, reading.version, after).select(*columns)


def _attempts(rows: DataFrame, *, is_final: bool) -> DataFrame:
    """Return the dead letters and attempts of rows that come from replays."""
    from pyspark.sql import functions as F

    return rows.where(F.col("source") == REPLAYS).select(
        replayed_letter("source_position").alias("dead_letter_id"),
        replay_attempt("source_position").alias("attempts"),
        F.lit(is_final).alias("is_final"),
    )


def _union(frames: Sequence[DataFrame], empty: DataFrame) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames) if frames else empty
