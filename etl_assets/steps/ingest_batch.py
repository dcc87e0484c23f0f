"""One batch of source files into raw_events: its lines judged, repeats found, offsets dealt.

A batch is one plan (`sources.batch_plan`), one commit of exceptions and one commit of rows. The rows' commit makes the
batch count.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.envelope import Limits
from etl_assets.contracts.reasons import EXCEPTIONAL_OUTCOMES, Outcome
from etl_assets.contracts.spark_types import check_schema
from etl_assets.contracts.tables import RAW_EVENTS, RAW_EVENTS_EXCEPTIONS
from etl_assets.delta.commit import Commit, Transaction, Write, commit
from etl_assets.delta.key_index import KeyIndex
from etl_assets.delta.offsets import ONE_PARTITION_A_FILE, Run, count_runs, deal_offsets, read_staged
from etl_assets.delta.rows import whole_days
from etl_assets.delta.session import scoped_settings
from etl_assets.delta.table import Table
from etl_assets.errors import CommitConflict
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.landing import Folders, verify
from etl_assets.sources.ledger import FILES as FILES_READ
from etl_assets.sources.lines import read_lines
from etl_assets.steps.exceptions import commit_exceptions
from etl_assets.steps.step import INSERTED, READ, REFUSED, StepContext, StepReport
from etl_assets.testing.failpoints import Failpoint, failpoint
from etl_assets.transforms.exceptions import ingest_exceptions
from etl_assets.transforms.find_repeats import find_repeats
from etl_assets.transforms.line_positions import RUN_KEY, file_index, ordinal, source_position
from etl_assets.transforms.parse_events import BLANK, parse_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES = "files"
"""Transaction id under which raw_events' batches of files are committed; the version is the batch id."""
_ONE_TASK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The part of a file that one task read: its lines, and what it has of each outcome."""

    lines: int
    outcomes: Mapping[str, int]
    lowest_id: str | None
    highest_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestBatch:
    """One planned batch on its way into the table.

    Attributes:
        context: The step's surroundings.
        table: raw_events.
        folders: Where the plan's files are.
        limits: What a record may be.
        plan: The files and the version they become.
        staging: Folder for what is in the making.
    """

    context: StepContext
    table: Table
    folders: tuple[Folders, ...]
    limits: Limits
    plan: BatchPlan
    staging: Path

    def write(self) -> StepReport:
        """Judge the files' lines and commit what they say.

        Raises:
            SourceUnreadable: a file cannot be read.
            SourceChanged: a file changed while it was read; nothing was written.
            CommitConflict: another run has committed this batch, or other files as this batch.
        """
        self._stage()
        verify(self.folders, self.plan.files)
        failpoint(Failpoint.STAGE_AFTER_WRITE, table=self.table.name)
        staged = read_staged(self.context.spark, self._staged_path)
        lines = self._count_lines(staged)
        blocks = self._positions(lines)
        self._find_repeats(staged, blocks, lines)
        repeats = self.context.spark.read.parquet(self._repeats_path)
        outcomes = self._count_outcomes(lines, repeats)
        self._commit_exceptions(staged, blocks, repeats, outcomes)
        done = self._commit_rows(staged, blocks, repeats)
        return self._report(done, outcomes)

    @property
    def _staged_path(self) -> str:
        return str(self.staging / "events")

    @property
    def _repeats_path(self) -> str:
        return str(self.staging / "repeats")

    def _stage(self) -> None:
        """Judge every line once and keep the result: all that follows reads columns of it."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        by_source = {folders.source: folders for folders in self.folders}
        files = {
            str(by_source[file.source].path_of(file)): (index, file.day)
            for index, file in enumerate(self.plan.files)
        }
        text = read_lines(self.context.spark, list(files))
        if sum(file.size for file in self.plan.files) < _ONE_TASK_BYTES:
            text = text.coalesce(1)
        try:
            parse_events(text, files, self.limits).write.parquet(self._staged_path)
        except (PySparkException, Py4JError):
            # Spark names a file that it cannot read deep in a Java trace, if at all.
            for folders in self.folders:
                folders.verify_compression(file for file in self.plan.files if file.source == folders.source)
            raise

    def _count_lines(self, staged: DataFrame) -> dict[tuple[int, int], Block]:
        """For each block its number of lines, and how many are rejected or blank."""
        from pyspark.sql import functions as F

        rows = staged.groupBy(*RUN_KEY).agg(
            F.count("*").alias("lines"),
            F.count_if(F.col("reason") == BLANK).alias(BLANK),
            F.count_if(F.col("reason").isNotNull() & (F.col("reason") != BLANK)).alias(
                Outcome.REJECTED.value
            ),
            F.min("event_id").alias("lowest_id"),
            F.max("event_id").alias("highest_id"),
        )
        return {
            (row["file_index"], row["block_start"]): Block(
                lines=row["lines"],
                outcomes={name: row[name] for name in (BLANK, Outcome.REJECTED.value)},
                lowest_id=row["lowest_id"],
                highest_id=row["highest_id"],
            )
            for row in rows.collect()
        }

    def _positions(self, blocks: Mapping[tuple[int, int], Block]) -> DataFrame:
        """For each block the file its lines are in and the number of lines before it."""
        from pyspark.sql import functions as F

        rows, before, current = [], 0, -1
        for (index, start), block in sorted(blocks.items()):
            before = 0 if index != current else before
            current = index
            file = self.plan.files[index]
            rows.append((index, start, before, file.source, file.position))
            before += block.lines
        schema = (
            "file_index INT, block_start BIGINT, lines_before BIGINT, source STRING, file_position STRING"
        )
        return F.broadcast(self.context.spark.createDataFrame(rows, schema))

    def _find_repeats(
        self, staged: DataFrame, blocks: DataFrame, lines: Mapping[tuple[int, int], Block]
    ) -> None:
        events = (
            staged.where("reason IS NULL")
            .join(blocks, list(RUN_KEY))
            .select("event_id", "fingerprint", ordinal(), "source", source_position())
        )
        find_repeats(events, self._history(lines)).write.parquet(self._repeats_path)

    def _history(self, lines: Mapping[tuple[int, int], Block]) -> DataFrame | None:
        """The accepted events that the batch may repeat: those between its lowest and highest id, of the days that the
        index names.

        Where ids rise with time, file statistics leave few files to open; where they are random, the index does.
        """
        import pyarrow as pa
        import pyarrow.dataset
        from pyspark.sql import functions as F

        ids = [name for block in lines.values() for name in (block.lowest_id, block.highest_id) if name]
        base = self.plan.batch_id - 1
        snapshot = self.table.snapshot(base)
        if not ids or snapshot is None or not snapshot.row_count():
            return None
        staged = pyarrow.dataset.dataset(self._staged_path, format="parquet")
        accepted = staged.scanner(["event_id"], filter=pyarrow.dataset.field("reason").is_null())
        ids_by_piece = (pa.chunked_array([batch.column(0)]) for batch in accepted.to_batches())
        days = KeyIndex(self.table, "event_id").days_of(ids_by_piece, base)
        if not days:
            return None
        history = self.table.read(self.context.spark, base, whole_days(days))
        return history.where(F.col("event_id").between(min(ids), max(ids))).select(
            "event_id", "fingerprint", "offset", "source", "source_position"
        )

    def _count_outcomes(
        self, blocks: Mapping[tuple[int, int], Block], repeats: DataFrame
    ) -> dict[dt.date | None, Counter[str]]:
        """Outcomes of the batch by day; what is neither rejected nor a repeat is accepted."""
        from pyspark.sql import functions as F

        counts: dict[dt.date | None, Counter[str]] = {day: Counter() for day in self.plan.days}
        for (index, _), block in blocks.items():
            figures = counts[self.plan.files[index].day]
            figures[READ] += block.lines - block.outcomes[BLANK]
            figures[Outcome.REJECTED.value] += block.outcomes[Outcome.REJECTED.value]
        by_file = repeats.groupBy(file_index(), "outcome").count()
        for row in by_file.where(F.col("outcome") != Outcome.ACCEPTED.value).collect():
            counts[self.plan.files[row["file_index"]].day][row["outcome"]] += row["count"]
        for figures in counts.values():
            refused = figures[Outcome.CONFLICT.value] + figures[Outcome.REJECTED.value]
            figures[Outcome.ACCEPTED.value] = figures[READ] - refused - figures[Outcome.DUPLICATE.value]
            figures[REFUSED] = refused
        return counts

    def _commit_exceptions(
        self,
        staged: DataFrame,
        blocks: DataFrame,
        repeats: DataFrame,
        outcomes: Mapping[dt.date | None, Counter[str]],
    ) -> None:
        """Write down what does not become a row, unless every line does."""
        if any(figures[outcome.value] for figures in outcomes.values() for outcome in EXCEPTIONAL_OUTCOMES):
            commit_exceptions(
                self.context,
                RAW_EVENTS_EXCEPTIONS,
                ingest_exceptions(staged, blocks, repeats),
                output=self.table.name,
                days=self.plan.days,
                facts=self.plan.facts(),
            )

    def _commit_rows(self, staged: DataFrame, blocks: DataFrame, repeats: DataFrame) -> Commit:
        """Append the events that are in the table under no position yet, with their offsets."""
        from pyspark.sql import functions as F

        new = staged.where("reason IS NULL").withColumn("ordinal", ordinal())
        new = new.join(F.broadcast(repeats.select("ordinal")), "ordinal", "left_anti")
        with scoped_settings(self.context.spark, ONE_PARTITION_A_FILE):
            done = self._append(new, count_runs(new, RUN_KEY), blocks)
        if done.repeated:
            raise CommitConflict(
                f"another run committed batch {self.plan.batch_id} of {self.table.name}",
                fix="run again: files that it has not read are planned anew",
                table=self.table.name,
            )
        return done

    def _append(self, new: DataFrame, runs: Sequence[Run], blocks: DataFrame) -> Commit:
        from pyspark.sql import functions as F

        snapshot = self.table.snapshot(self.plan.batch_id - 1)
        newest = None if snapshot is None else snapshot.maximum("offset")
        rows = (
            deal_offsets(new, runs, RUN_KEY, 0 if newest is None else newest + 1)
            .join(blocks, list(RUN_KEY))
            .select(
                "*",
                source_position(),
                F.lit(self.context.domain.name).alias("ingest_domain"),
                F.lit(self.context.clock()).alias("ingested_at"),
                F.lit(self.plan.batch_id).cast("bigint").alias("batch_id"),
            )
            .select(*RAW_EVENTS.names)
        )
        check_schema(RAW_EVENTS, rows.schema)
        return commit(
            self.table,
            Write(
                rows=rows,
                base_version=self.plan.batch_id - 1,
                transaction=Transaction(app_id=FILES, version=self.plan.batch_id),
                facts={FILES_READ: self.plan.marks},
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )

    def _report(self, done: Commit, outcomes: Mapping[dt.date | None, Counter[str]]) -> StepReport:
        for day, rows in done.net_rows_by_partition.items():
            outcomes[dt.date.fromisoformat(day)][INSERTED] = rows
        return StepReport(
            table=self.table.name, version=done.version, counts=outcomes, commits=int(not done.repeated)
        )


def committed_batch(table: Table) -> int:
    """The last batch of files in raw_events, from its log: no Spark. -1 for none."""
    snapshot = table.snapshot()
    return -1 if snapshot is None else snapshot.transaction_version(FILES)
