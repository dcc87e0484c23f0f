"""The step from files of a source to its table.

Every record is validated, and each is stored once, in order of acceptance.

Belongs here: which files to read, cut into planned batches that are each carried out once. Does not belong
here: the work on one batch (`ingest_batch.py`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.compute.freed_memory import give_back_freed_memory
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.ingest.ingest_batch import IngestBatch
from etl_assets.ingest.pending_plan import PendingPlan, pending_plan, take_back
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.landing import Folders, verify
from etl_assets.sources.ledger import Ledger
from etl_assets.sources.objects.copies import local_copies
from etl_assets.sources.source_files import Listing, SourceFile
from etl_assets.steps.step import ReadMode, StepContext, StepReport, logger, staging_folder
from etl_assets.steps.table_queue import give_way

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract
    from etl_assets.ingest.file_source import FileSource
    from etl_assets.pipelines.stage import Stage

MAX_FILES_PER_BATCH = 10_000
"""A commit names the files it read, at a cost of up to a hundred bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """The step.

    Attributes:
        context: The step's context.
        stage: The stage, which names its tables.
        source: The files, and what their records must be.
        mode: Whether to read unread files only, or all files of a day.
        max_batch_bytes: Input of one batch; a larger file is a batch of its own.
        most_batches: End after this many batches, whatever is left; None: read all files.
        table: The source's table.
    """

    context: StepContext
    stage: Stage
    source: FileSource
    mode: ReadMode
    max_batch_bytes: int
    most_batches: int | None = None
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", self.context.table(self.stage.name))

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Read the days' files, batch by batch, until none is left or `most_batches` are done.

        Raises:
            SourceUnreadable: a file cannot be read.
            SourceChanged: a file changed while it was read; nothing of its batch was written.
        """
        # 1. Complete or take back what a killed run left.
        version = self._settle(days)
        report = StepReport(table=self.table.name, version=version, counts={day: Counter() for day in days})
        if (plan := self._pending(version, days)) is not None:
            report += self._carry_out(plan)
        else:
            self._take_back()
        # 2. Find the files to read and cut them into batches.
        files, notes = self._files(days)
        report += StepReport(table=self.table.name, version=version, notes=notes)
        batches = list(batches_of(files, self.max_batch_bytes))[: self.most_batches]
        # 3. Carry out one batch after the other, each planned on the table's newest version.
        for number, batch in enumerate(batches, start=1):
            logger.info("%s: batch %d of %d, %d files", self.table.name, number, len(batches), len(batch))
            if report.commits:
                # files that another process reads meanwhile are read again here, which changes nothing
                give_way()
            version = ensure_table(self.table, wait_seconds=self.context.lock_wait_seconds)
            report += self._carry_out(BatchPlan(batch_id=version + 1, files=batch))
        return report

    def _settle(self, days: Sequence[dt.date]) -> int:
        """Return the version to plan on, and update the ledger to it.

        If there is something to read or to take back, an unacknowledged commit of a killed run is completed
        first. If its files were planned again, together with files that have arrived since, their lines could
        get other outcomes.
        """
        Ledger.of(self.table).keep()
        version, mirrored = self.table.version(), self.table.replication
        if version < 0 or mirrored is None or not (self._left() or self._files(days)[0]):
            return version
        mirrored.lead()
        Ledger.of(self.table).keep()
        return self.table.version()

    def _pending(self, version: int, days: Sequence[dt.date]) -> BatchPlan | None:
        """Return the plan of a run that committed its rejects and not its rows, as the next version.

        The plan is only reused if it covers no other days than these and its files are unchanged. Otherwise
        its rejects are taken back, and its files are planned again with their days. Versions added by a
        compaction since then do not matter. A batch of files committed since then does, because it may have
        read the plan's files.
        """
        if self.mode is ReadMode.WHOLE or (left := self._left()) is None:
            return None
        plan = left.plan
        if plan.wanted is not None or plan.batch_id > version + 1 or not set(days).issuperset(plan.days):
            return None
        there = {file for _, listing in self._listings(plan.days) for file in listing.files}
        return replace(plan, batch_id=version + 1) if there.issuperset(plan.files) else None

    def _left(self) -> PendingPlan | None:
        return pending_plan(self._rejects, self.table)

    def _take_back(self) -> None:
        """Take back the rejects of a plan that is not carried out.

        Its lines are validated again, and may get other outcomes.
        """
        if (left := self._left()) is None:
            return
        take_back(self._rejects, left, wait_seconds=self.context.lock_wait_seconds)
        logger.warning(
            "%s: a run ended before the rows of its batch of %d files; what it rejected was taken back",
            self.table.name,
            len(left.plan.files),
        )

    @property
    def _rejects_contract(self) -> TableContract:
        assert self.stage.rejects is not None  # a source always may reject records
        return self.stage.rejects

    @property
    def _rejects(self) -> Table:
        return self.context.table(self._rejects_contract.name)

    def _files(self, days: Sequence[dt.date]) -> tuple[list[SourceFile], tuple[str, ...]]:
        ledger = Ledger.of(self.table)
        files: list[SourceFile] = []
        notes: list[str] = []
        kind = self.source.folders[0].kind_of_file
        for day, listing in self._listings(days):
            notes += [f"{day}/{name} is still being written and was not read" for name in listing.unsettled]
            notes += [f"{day}/{name} is no {kind} and is never read" for name in listing.ignored]
            unread = ledger.unread(listing.files)
            notes += [
                f"{day}/{file.name} changed after it had been read and was read again"
                for file in ledger.changed(unread)
            ]
            files += listing.files if self.mode is ReadMode.WHOLE else unread
        return files, tuple(notes)

    def _listings(self, days: Iterable[dt.date]) -> Iterator[tuple[dt.date, Listing]]:
        now_ns = time.time_ns()
        now = [folders.scanned() for folders in self.source.folders]
        for day in sorted(days):
            for folders in now:
                yield (
                    day,
                    folders.list_day(day, now_ns=now_ns, settle_seconds=self.source.settle_seconds),
                )

    def _carry_out(self, plan: BatchPlan) -> StepReport:
        started = time.monotonic()
        verify(self.source.folders, plan.files)
        with (
            staging_folder(self.table, plan.batch_id) as folder,
            local_copies(self.source.folders, plan.files, folder / "objects") as folders,
        ):
            report = self._write(plan, folders, folder)
        give_back_freed_memory()
        Ledger.of(self.table).keep()
        logger.info(
            "%s: batch %d committed in %.1f s", self.table.name, plan.batch_id, time.monotonic() - started
        )
        return report

    def _write(self, plan: BatchPlan, folders: tuple[Folders, ...], staging: Path) -> StepReport:
        """Write the records of a planned batch."""
        return IngestBatch(
            context=self.context,
            table=self.table,
            rejects=self._rejects_contract,
            stage=self.stage.name_in_rejects,
            folders=folders,
            records=self.source.records,
            plan=plan,
            staging=staging,
        ).write()


def batches_of(files: Iterable[SourceFile], max_bytes: int) -> Iterator[tuple[SourceFile, ...]]:
    """Cut files, in source order, into batches of at most `max_bytes` and `MAX_FILES_PER_BATCH` files.

    A larger file is a batch of its own.
    """
    batch: list[SourceFile] = []
    size = 0
    for file in sorted(files):
        if batch and (size + file.size > max_bytes or len(batch) == MAX_FILES_PER_BATCH):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield tuple(batch)
