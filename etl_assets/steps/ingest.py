"""Landing files to raw_events: every line judged, each event once, in order of acceptance.

One batch is one plan (`sources.batch_plan`), one commit of exceptions and one commit of rows. The rows' commit makes
the batch count.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.envelope import Limits
from etl_assets.contracts.reasons import EXCEPTIONAL_OUTCOMES, DeadLetterReason, Outcome, RecordEncoding
from etl_assets.contracts.spark_types import check_schema
from etl_assets.contracts.tables import RAW_EVENTS, RAW_EVENTS_EXCEPTIONS
from etl_assets.delta.commit import Commit, Transaction, Write, commit, ensure_table
from etl_assets.delta.log import read_entry
from etl_assets.delta.offsets import ONE_PARTITION_A_FILE, Run, count_runs, deal_offsets, read_staged
from etl_assets.delta.session import scoped_settings
from etl_assets.delta.table import Table
from etl_assets.errors import CommitConflict, InputError
from etl_assets.sources.batch_plan import BatchPlan, CommittedBatch, ReadProgress
from etl_assets.sources.landing import Folders, SourceFile
from etl_assets.steps.exceptions import commit_exceptions, exception_id
from etl_assets.steps.step import (
    INSERTED,
    READ,
    REFUSED,
    ReadMode,
    StepContext,
    StepReport,
    logger,
    staging_folder,
)
from etl_assets.testing.failpoints import Failpoint, failpoint
from etl_assets.transforms.find_repeats import find_repeats
from etl_assets.transforms.parse_events import BLANK, parse_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGE = "ingest"
FILES = "files"
"""Transaction id under which raw_events' batches of files are committed; the version is the batch id."""

_RUN_KEY = ("file_index", "block_start")
_PATTERN_CHARACTERS = frozenset("{}[]*?\\")
_ONE_TASK_BYTES = 8 << 20
_FILE_SHIFT = 40
"""A file has fewer bytes than this power of two, so that file index, block start and line give one number that rises in
source order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The part of a file that one task read: its lines, and what it has of each outcome."""

    lines: int
    outcomes: Mapping[str, int]
    lowest_id: str | None
    highest_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """The step.

    Attributes:
        context: Its surroundings.
        folders: Where files are: the landing folder and the replays of dead letters.
        limits: What a record may be.
        mode: Read unread files only, or all of a day's.
        settle_seconds: How long a file must have been unchanged.
        max_batch_bytes: Input of one batch; a larger file is a batch of its own.
    """

    context: StepContext
    folders: tuple[Folders, ...]
    limits: Limits
    mode: ReadMode
    settle_seconds: float
    max_batch_bytes: int
    table: Table = field(init=False)
    progress: ReadProgress = field(init=False)

    def __post_init__(self) -> None:
        table = self.context.table(RAW_EVENTS.name)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "progress", ReadProgress(self.context.domain.progress_path(table.name)))

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Read the days' files, batch by batch, until none is left.

        Raises:
            SourceUnreadable: a file cannot be read.
            SourceChanged: a file changed while it was read; nothing of its batch was written.
        """
        version = self.table.version()
        report = StepReport(table=self.table.name, version=version, counts={day: Counter() for day in days})
        pending = self._pending(version, set(days))
        if pending is not None:
            report += self._carry_out(pending)
        files, notes = self._files(days)
        report += StepReport(table=self.table.name, version=version, notes=notes)
        batches = list(batches_of(files, self.max_batch_bytes))
        for number, batch in enumerate(batches, start=1):
            logger.info("raw_events: batch %d of %d, %d files", number, len(batches), len(batch))
            version = ensure_table(
                self.context.spark, self.table, wait_seconds=self.context.lock_wait_seconds
            )
            report += self._carry_out(self.progress.plan(version + 1, batch))
        return report

    def committed(self) -> CommittedBatch:
        """The last batch of files in the table."""
        return committed_batch(self.table)

    def _pending(self, version: int, days: set[dt.date]) -> BatchPlan | None:
        """The plan a killed run left, if it is all of these days; else its files are planned anew with their days."""
        plan = self.progress.pending(table_version=version, committed=self.committed())
        if plan is not None and (self.mode is ReadMode.WHOLE or not days.issuperset(plan.days)):
            self.progress.discard(plan)
            return None
        return plan

    def _files(self, days: Sequence[dt.date]) -> tuple[list[SourceFile], tuple[str, ...]]:
        now_ns, committed = time.time_ns(), self.committed()
        files: list[SourceFile] = []
        notes: list[str] = []
        for day in sorted(days):
            for folders in self.folders:
                listing = folders.list_day(day, now_ns=now_ns, settle_seconds=self.settle_seconds)
                notes += [
                    f"{day}/{name} is still being written and was not read" for name in listing.unsettled
                ]
                notes += [f"{day}/{name} is no event file and is never read" for name in listing.ignored]
                unread = self.progress.unread(listing.files, committed=committed)
                notes += [
                    f"{day}/{file.name} changed after it had been read and was read again"
                    for file in self.progress.changed(unread)
                ]
                files += listing.files if self.mode is ReadMode.WHOLE else unread
        return files, tuple(notes)

    def _carry_out(self, plan: BatchPlan) -> StepReport:
        started = time.monotonic()
        try:
            self._verify(plan)
            with staging_folder(self.table, plan.batch_id) as folder:
                report = _Batch(self, plan, folder).write()
        except InputError:
            self.progress.discard(plan)
            raise
        self.progress.record(plan)
        logger.info("raw_events: batch %d committed in %.1f s", plan.batch_id, time.monotonic() - started)
        return report

    def _verify(self, plan: BatchPlan) -> None:
        for folders in self.folders:
            folders.verify(file for file in plan.files if file.source == folders.source)


def committed_batch(table: Table) -> CommittedBatch:
    """The last batch of files in raw_events, from its log: no Spark."""
    snapshot = table.snapshot()
    batch_id = -1 if snapshot is None else snapshot.transaction_version(FILES)
    try:
        digest = read_entry(table.path, batch_id).user_metadata["facts"]["plan"] if batch_id >= 0 else None
    except (FileNotFoundError, KeyError):
        digest = None
    return CommittedBatch(batch_id=batch_id, digest=digest)


def batches_of(files: Iterable[SourceFile], max_bytes: int) -> Iterator[tuple[SourceFile, ...]]:
    """Cut files, in source order, into batches of at most `max_bytes`; a larger file stands alone."""
    batch: list[SourceFile] = []
    size = 0
    for file in sorted(files):
        if batch and size + file.size > max_bytes:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield tuple(batch)


class _Batch:
    """One planned batch on its way into the table."""

    def __init__(self, ingest: Ingest, plan: BatchPlan, folder: Path) -> None:
        self._ingest = ingest
        self._plan = plan
        self._staged, self._repeats = str(folder / "events"), str(folder / "repeats")
        self._spark = ingest.context.spark
        self._table = ingest.table

    def write(self) -> StepReport:
        self._stage()
        self._ingest._verify(self._plan)
        failpoint(Failpoint.STAGE_AFTER_WRITE, table=self._table.name)
        staged = read_staged(self._spark, self._staged)
        lines = self._count_lines(staged)
        blocks = self._positions(lines)
        self._find_repeats(staged, blocks, lines)
        repeats = self._spark.read.parquet(self._repeats)
        outcomes = self._count_outcomes(lines, repeats)
        self._commit_exceptions(staged, blocks, repeats, outcomes)
        done = self._commit_rows(staged, blocks, repeats)
        return self._report(done, outcomes)

    def _stage(self) -> None:
        """Judge every line once and keep the result: all that follows reads columns of it."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        by_source = {folders.source: folders for folders in self._ingest.folders}
        files = {
            str(by_source[file.source].path_of(file)): (index, file.day)
            for index, file in enumerate(self._plan.files)
        }
        text = _read_lines(self._spark, list(files))
        if sum(file.size for file in self._plan.files) < _ONE_TASK_BYTES:
            text = text.coalesce(1)
        try:
            parse_events(text, files, self._ingest.limits).write.parquet(self._staged)
        except (PySparkException, Py4JError):
            # Spark names a file that it cannot read deep in a Java trace, if at all.
            for folders in self._ingest.folders:
                folders.verify_compression(file for file in self._plan.files if file.source == folders.source)
            raise

    def _count_lines(self, staged: DataFrame) -> dict[tuple[int, int], Block]:
        """For each block its number of lines, and how many are rejected or blank."""
        from pyspark.sql import functions as F

        rows = staged.groupBy(*_RUN_KEY).agg(
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
            file = self._plan.files[index]
            rows.append((index, start, before, file.source, file.position))
            before += block.lines
        schema = (
            "file_index INT, block_start BIGINT, lines_before BIGINT, source STRING, file_position STRING"
        )
        return F.broadcast(self._spark.createDataFrame(rows, schema))

    def _find_repeats(
        self, staged: DataFrame, blocks: DataFrame, lines: Mapping[tuple[int, int], Block]
    ) -> None:
        events = (
            staged.where("reason IS NULL")
            .join(blocks, list(_RUN_KEY))
            .select("event_id", "fingerprint", _ordinal().alias("ordinal"), "source", _source_position())
        )
        find_repeats(events, self._history(lines)).write.parquet(self._repeats)

    def _history(self, lines: Mapping[tuple[int, int], Block]) -> DataFrame | None:
        """The accepted events that the batch may repeat: those between its lowest and highest id.

        By file statistics Delta opens only files with such ids: few, where ids rise with time.
        """
        from pyspark.sql import functions as F

        ids = [name for block in lines.values() for name in (block.lowest_id, block.highest_id) if name]
        base = self._plan.batch_id - 1
        snapshot = self._table.snapshot(base)
        if not ids or snapshot is None or not snapshot.row_count():
            return None
        in_range = F.col("event_id").between(min(ids), max(ids))
        history = self._table.read(self._spark, base).where(in_range)
        return history.select("event_id", "fingerprint", "offset", "source", "source_position")

    def _count_outcomes(
        self, blocks: Mapping[tuple[int, int], Block], repeats: DataFrame
    ) -> dict[dt.date | None, Counter[str]]:
        """Outcomes of the batch by day; what is neither rejected nor a repeat is accepted."""
        from pyspark.sql import functions as F

        counts: dict[dt.date | None, Counter[str]] = {day: Counter() for day in self._plan.days}
        for (index, _), block in blocks.items():
            figures = counts[self._plan.files[index].day]
            figures[READ] += block.lines - block.outcomes[BLANK]
            figures[Outcome.REJECTED.value] += block.outcomes[Outcome.REJECTED.value]
        file_index = F.shiftright("ordinal", _FILE_SHIFT).alias("file_index")
        by_file = repeats.groupBy(file_index, "outcome").count()
        for row in by_file.where(F.col("outcome") != Outcome.ACCEPTED.value).collect():
            counts[self._plan.files[row["file_index"]].day][row["outcome"]] += row["count"]
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
                self._ingest.context,
                RAW_EVENTS_EXCEPTIONS,
                _exceptions(staged, blocks, repeats),
                output=self._table.name,
                days=self._plan.days,
            )

    def _commit_rows(self, staged: DataFrame, blocks: DataFrame, repeats: DataFrame) -> Commit:
        """Append the events that are in the table under no position yet, with their offsets."""
        from pyspark.sql import functions as F

        new = staged.where("reason IS NULL").withColumn("ordinal", _ordinal())
        new = new.join(F.broadcast(repeats.select("ordinal")), "ordinal", "left_anti")
        with scoped_settings(self._spark, ONE_PARTITION_A_FILE):
            done = self._append(new, count_runs(new, _RUN_KEY), blocks)
        expected = CommittedBatch(batch_id=self._plan.batch_id, digest=self._plan.digest)
        if done.repeated and committed_batch(self._table) != expected:
            raise CommitConflict(
                f"another run committed batch {self._plan.batch_id} of {self._table.name} with other files",
                fix="run again: the files are planned anew",
                table=self._table.name,
            )
        return done

    def _append(self, new: DataFrame, runs: Sequence[Run], blocks: DataFrame) -> Commit:
        from pyspark.sql import functions as F

        snapshot = self._table.snapshot(self._plan.batch_id - 1)
        newest = None if snapshot is None else snapshot.maximum("offset")
        rows = (
            deal_offsets(new, runs, _RUN_KEY, 0 if newest is None else newest + 1)
            .join(blocks, list(_RUN_KEY))
            .select(
                "*",
                _source_position(),
                F.lit(self._ingest.context.domain.name).alias("ingest_domain"),
                F.lit(self._ingest.context.clock()).alias("ingested_at"),
                F.lit(self._plan.batch_id).cast("bigint").alias("batch_id"),
            )
            .select(*RAW_EVENTS.names)
        )
        check_schema(RAW_EVENTS, rows.schema)
        return commit(
            self._table,
            Write(
                rows=rows,
                base_version=self._plan.batch_id - 1,
                transaction=Transaction(app_id=FILES, version=self._plan.batch_id),
                facts={"plan": self._plan.digest},
            ),
            wait_seconds=self._ingest.context.lock_wait_seconds,
        )

    def _report(self, done: Commit, outcomes: Mapping[dt.date | None, Counter[str]]) -> StepReport:
        for day, rows in done.net_rows_by_partition.items():
            outcomes[dt.date.fromisoformat(day)][INSERTED] = rows
        return StepReport(
            table=self._table.name, version=done.version, counts=outcomes, commits=int(not done.repeated)
        )


def _read_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The lines of files, with file and block; file names are taken as they are, not as patterns.

    Names with characters of a pattern are read apart: beside them, and with patterns switched off, Spark reads every
    other file twice.
    """
    from pyspark.sql import functions as F

    odd = [path for path in paths if not _PATTERN_CHARACTERS.isdisjoint(path)]
    plain = [path for path in paths if _PATTERN_CHARACTERS.isdisjoint(path)]
    reader = spark.read.option("lineSep", "\n")
    frames = [reader.text(plain)] if plain else []
    if odd:
        frames.append(reader.option("__globPaths__", "false").text(odd))
    located = [
        frame.select(
            F.col("value").cast("binary"),
            F.col("_metadata.file_path").alias("file_path"),
            F.col("_metadata.file_block_start").alias("block_start"),
        )
        for frame in frames
    ]
    return reduce(lambda one, other: one.unionByName(other), located)


def _exceptions(staged: DataFrame, blocks: DataFrame, repeats: DataFrame) -> DataFrame:
    """What does not become a row, as exceptions but for domain, time and batch."""
    from pyspark.sql import functions as F

    lines = staged.withColumn("ordinal", _ordinal()).join(F.broadcast(repeats), "ordinal", "left")
    exceptional = lines.where(
        f"(reason IS NOT NULL AND reason != '{BLANK}') OR outcome IN ('duplicate', 'conflict')"
    )
    conflict = F.col("outcome") == Outcome.CONFLICT.value
    located = exceptional.join(blocks, list(_RUN_KEY)).withColumn("source_position", _source_position())
    return located.select(
        exception_id(STAGE, "record", "fingerprint"),
        F.lit(STAGE).alias("stage"),
        F.coalesce("outcome", F.lit(Outcome.REJECTED.value)).alias("outcome"),
        F.when(conflict, F.lit(DeadLetterReason.FINGERPRINT_CONFLICT.value))
        .when(F.col("outcome").isNull(), F.col("reason"))
        .alias("reason"),
        F.when(
            conflict,
            F.lit("an event with this id and other content was accepted before; the first one stands"),
        )
        .when(F.col("outcome").isNull(), F.col("error"))
        .alias("error"),
        F.when(conflict, _as_wire_event()).otherwise(F.col("record")).alias("record"),
        F.when(conflict, F.lit(RecordEncoding.UTF8.value))
        .otherwise(F.col("record_encoding"))
        .alias("record_encoding"),
        "source",
        "source_position",
        "event_id",
        "original_offset",
        "trace_id",
        "partition_date",
    )


def _ordinal():  # noqa: ANN202 - pyspark's Column is imported only for type checking
    from pyspark.sql import functions as F

    return F.expr(f"file_index * {1 << _FILE_SHIFT} + block_start + block_line")


def _source_position():  # noqa: ANN202
    from pyspark.sql import functions as F

    return F.expr("concat(file_position, ':', lines_before + block_line + 1)").alias("source_position")


def _as_wire_event():  # noqa: ANN202
    """The event of a conflict as one JSON object again, with its canonical payload."""
    from pyspark.sql import functions as F

    head = F.to_json(
        F.struct(
            "event_id",
            "tenant_id",
            "aggregate_id",
            "event_type",
            "schema_version",
            F.date_format("occurred_at", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("timestamp"),
            "trace_id",
            "span_id",
        )
    )
    return F.concat(F.regexp_replace(head, r"\}$", ""), F.lit(',"payload":'), F.col("payload"), F.lit("}"))
