"""The step from raw_events to normalized_orders: typed and enriched rows, with dense offsets.

Events that break their contract become exceptions.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.read.rows import files_with, whole_days
from etl_assets.delta.session import frame_of, scoped_settings
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.create import base_of, ensure_table
from etl_assets.delta.write.offsets import (
    ONE_PARTITION_PER_FILE,
    Run,
    count_runs,
    count_runs_in_process,
    deal_offsets,
    next_offset,
)
from etl_assets.delta.write.staged import StagedRows
from etl_assets.delta.write.write import Write
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.orders.event_contracts import EVENT_CONTRACTS
from etl_assets.orders.tables.customers import CUSTOMERS
from etl_assets.orders.tables.exceptions import NORMALIZED_ORDERS_EXCEPTIONS
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.transforms.normalize_orders import Contracts, normalize_orders
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.replays import replayed_events
from etl_assets.steps.changes import Changes, read_changes
from etl_assets.steps.exceptions import Exceptions, commit_exceptions
from etl_assets.steps.step import (
    IGNORED,
    INSERTED,
    READ,
    REFUSED,
    ReadMode,
    StepContext,
    StepReport,
    staging_folder,
)
from etl_assets.transforms.exceptions import normalize_exceptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRANSFORMER = "normalize_orders/1"
_ONLY_FOR_REFUSED = ("payload", "source", "source_position")
_REFUSED, _NEW = "reason IS NOT NULL AND NOT known", "reason IS NULL AND NOT known"
"""Conditions on staged rows.

A row that the table already has stays in it, even if its contract has become stricter.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalize:
    """The step. `contracts` are the event contracts; tests pass others."""

    context: StepContext
    mode: ReadMode
    contracts: Contracts = field(default_factory=lambda: EVENT_CONTRACTS)

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Normalize the days' new events, in one commit."""
        from pyspark.sql import functions as F

        table = self.context.table(NORMALIZED_ORDERS.name)
        seen = table.version()
        # 1. Read the days' changes. Without any, Spark is not started.
        changes = read_changes(self.context.table(RAW_EVENTS.name), table, days, self.mode)
        counts: dict[dt.date | None, Counter[str]] = {day: Counter() for day in days}
        if not changes.days:
            return StepReport(table=table.name, version=table.version(), counts=counts)
        base = base_of(table, seen, wait_seconds=self.context.lock_wait_seconds)
        with staging_folder(table, base + 1) as folder:
            staged_path = str(folder / "orders")
            # 2. Stage every event with its reason to be rejected, and whether it is known.
            judged = self._judge(changes, base)  # starts Spark, before which no Spark column can be built
            kept = {name: F.when(F.col("reason").isNotNull(), F.col(name)) for name in _ONLY_FOR_REFUSED}
            judged = judged.withColumns(kept)
            judged.write.parquet(staged_path)
            failpoint(Failpoint.STAGE_AFTER_WRITE, table=table.name)
            staged = StagedRows(self.context.spark, staged_path, judged.schema)
            self._count(staged, counts)
            # 3. Commit the rejects before the rows, so that no record is lost by a kill in between.
            if any(figures[REFUSED] for figures in counts.values()):
                refused = normalize_exceptions(staged.frame.where(_REFUSED))
                commit_exceptions(
                    self.context,
                    NORMALIZED_ORDERS_EXCEPTIONS,
                    lambda stamps: Exceptions(frame=stamps.on(refused)),
                    output=table.name,
                    days=changes.days,
                )
            # 4. Assign offsets to the new rows and commit them.
            done = self._commit(staged, changes, base)
        for day, rows in done.net_rows_by_partition.items():
            counts[dt.date.fromisoformat(day)][INSERTED] = rows
        for figures in counts.values():
            figures[IGNORED] = figures[Outcome.NORMALIZED.value] - figures[INSERTED]
        return StepReport(
            table=table.name, version=done.version, counts=counts, commits=int(not done.repeated)
        )

    def _judge(self, changes: Changes, base: int) -> DataFrame:
        """Return every event read, typed, with `reason` and `known`: whether the table already has it."""
        from pyspark.sql import functions as F

        spark = self.context.spark
        events = self._with_replays(changes.rows(spark), changes.days)
        rows = normalize_orders(events, self._customers(), self.contracts)
        table = self.context.table(NORMALIZED_ORDERS.name)
        snapshot, days = table.snapshot(base), whole_days(changes.days)
        within = changes.known_within("offset", as_column="raw_offset")
        if snapshot is None or not any(files_with(snapshot, days, within)):
            return rows.withColumn("known", F.lit(False))
        known = table.read(spark, base, days, within).select("raw_offset", F.lit(True).alias("known"))
        return rows.join(known, "raw_offset", "left").withColumn("known", F.coalesce("known", F.lit(False)))

    def _customers(self) -> DataFrame:
        table = self.context.table(CUSTOMERS.name)
        version = ensure_table(table, wait_seconds=self.context.lock_wait_seconds)
        return table.read(self.context.spark, version).select("customer_id", "customer_region")

    def _with_replays(self, events: DataFrame, days: Sequence[dt.date]) -> DataFrame:
        """Return the events. Replayed ones get their corrected payload, if any, and the replay's position."""
        from pyspark.sql import functions as F

        handed_in = replayed_events(self.context.domain, days)
        if not handed_in:
            return events
        replays = frame_of(
            self.context.spark,
            [(each.event_id, each.payload, REPLAYS, each.source_position) for each in handed_in],
            "event_id STRING, __payload STRING, __source STRING, __source_position STRING",
        )
        replaced = ("payload", "source", "source_position")
        joined = events.join(F.broadcast(replays), "event_id", "left")
        return joined.withColumns({name: F.coalesce(f"__{name}", name) for name in replaced}).select(
            *events.columns
        )

    def _count(self, staged: StagedRows, counts: Mapping[dt.date | None, Counter[str]]) -> None:
        """Count rows read and rejected by day, from three columns of the staged rows."""
        for day, (read, refused) in _counted(staged).items():
            figures = counts[day]
            figures[READ], figures[REFUSED] = read, refused
            figures[Outcome.REJECTED.value] = refused
            figures[Outcome.NORMALIZED.value] = read - refused

    def _commit(self, staged: StagedRows, changes: Changes, base: int) -> Commit:
        from pyspark.sql import functions as F

        table = self.context.table(NORMALIZED_ORDERS.name)
        first_offset = next_offset(table.snapshot(base))
        transaction, cursors = changes.consumed()
        good = staged.frame.where(_NEW)
        with scoped_settings(self.context.spark, ONE_PARTITION_PER_FILE):
            rows = (
                deal_offsets(good, _count_new_runs(staged, good), (), first_offset)
                .select(
                    "*",
                    F.lit(TRANSFORMER).alias("transformer"),
                    F.lit(self.context.domain.name).alias("transform_domain"),
                    F.lit(base + 1).cast("bigint").alias("batch_id"),
                )
                .select(*NORMALIZED_ORDERS.names)
            )
            check_schema(NORMALIZED_ORDERS, rows.schema)
            return commit(
                table,
                Write(
                    rows=rows,
                    base_version=base,
                    transaction=transaction,
                    partitions=[day.isoformat() for day in changes.days],
                    rows_at_most=changes.rows_at_most(),
                    cursors=cursors,
                ),
                wait_seconds=self.context.lock_wait_seconds,
            )


def _counted(staged: StagedRows) -> dict[dt.date, tuple[int, int]]:
    """Return for each day how many events were read, and how many of them are rejected."""
    from pyspark.sql import functions as F

    if staged.is_little:
        rows = staged.here(["partition_date", "reason", "known"]).to_pylist()
        read = Counter(row["partition_date"] for row in rows)
        refused = Counter(
            row["partition_date"] for row in rows if row["reason"] is not None and not row["known"]
        )
        return {day: (number, refused[day]) for day, number in read.items()}
    counted = staged.frame.groupBy("partition_date").agg(
        F.count("*").alias("read"), F.count_if(F.expr(_REFUSED)).alias("refused")
    )
    return {row["partition_date"]: (row["read"], row["refused"]) for row in counted.collect()}


def _count_new_runs(staged: StagedRows, new: DataFrame) -> tuple[Run, ...]:
    """Return the runs of the rows that are `_NEW`, one per staged file."""
    import pyarrow.compute as pc

    if not staged.is_little:
        return count_runs(new, ())
    return count_runs_in_process(
        staged.here(["reason", "known"]).filter(pc.field("reason").is_null() & ~pc.field("known")), ()
    )
