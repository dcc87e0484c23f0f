"""Landing files to raw_events: every line judged, each event once, in order of acceptance.

Belongs here: which files there are to read, cut into planned batches, each carried out once. Does not belong here: what
happens to one batch (`ingest_batch.py`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from etl_assets.contracts.envelope import Limits
from etl_assets.contracts.tables import RAW_EVENTS
from etl_assets.delta.create import ensure_table
from etl_assets.delta.table import Table
from etl_assets.errors import InputError
from etl_assets.sources.batch_plan import BatchPlan, CommittedBatch, ReadProgress
from etl_assets.sources.landing import Folders, SourceFile, verify
from etl_assets.steps.ingest_batch import IngestBatch, committed_batch
from etl_assets.steps.step import ReadMode, StepContext, StepReport, logger, staging_folder


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
            verify(self.folders, plan.files)
            with staging_folder(self.table, plan.batch_id) as folder:
                batch = IngestBatch(
                    context=self.context,
                    table=self.table,
                    folders=self.folders,
                    limits=self.limits,
                    plan=plan,
                    staging=folder,
                )
                report = batch.write()
        except InputError:
            self.progress.discard(plan)
            raise
        self.progress.record(plan)
        logger.info("raw_events: batch %d committed in %.1f s", plan.batch_id, time.monotonic() - started)
        return report


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
