"""One batch of source files into the source's table: validate its records, find repeats, assign offsets.

A batch is one plan (`sources.batch_plan`), one commit of exceptions and one commit of rows. It counts once
its rows are committed. Does not belong here: the search for repeats (`repeats.py`).
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.table import Table
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.offsets import next_offset
from etl_assets.delta.write.write import Transaction, Write
from etl_assets.error_policy import disk_is_full
from etl_assets.errors import CommitConflict
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.ingest.exceptions_tasks import exceptions_tasks
from etl_assets.ingest.located_blocks import LocatedBlock
from etl_assets.ingest.original_offsets import offsets_of, write_offsets
from etl_assets.ingest.pending_plan import FILES
from etl_assets.ingest.raw_exceptions import RawExceptions
from etl_assets.ingest.raw_rows import RawRows, rows_tasks
from etl_assets.ingest.repeats import Repeats, RepeatSearch
from etl_assets.ingest.stage_lines import Staged, stage_lines
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.landing import Folders, verify
from etl_assets.sources.ledger import FILES as FILES_READ
from etl_assets.sources.positions import transactions_of
from etl_assets.steps.exceptions import Exceptions, Stamps, commit_exceptions
from etl_assets.steps.step import INSERTED, READ, REFUSED, SKIPPED, StepContext, StepReport
from etl_assets.transforms.line_positions import (
    first_ordinal,
)

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract
    from etl_assets.ingest.records import Records
    from etl_assets.sources.source_files import InputFile


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestBatch:
    """A planned batch, ready to be written to the table.

    Attributes:
        context: The step's context.
        table: The source's table.
        rejects: The contract of the table of exceptions.
        stage: Name of the stage in exceptions.
        folders: Folders of the plan's files.
        records: What records must be.
        plan: The files and the version they become.
        staging: Folder for temporary files.
    """

    context: StepContext
    table: Table
    rejects: TableContract
    stage: str
    folders: tuple[Folders, ...]
    records: Records
    plan: BatchPlan
    staging: Path

    def write(self) -> StepReport:
        """Validate the files' lines, then commit exceptions and rows.

        Raises:
            SourceUnreadable: a file cannot be read.
            SourceChanged: a file changed while it was read; nothing was written.
            CommitConflict: another run has committed this batch, or other files as this batch.
        """
        # 1. Validate the lines. The files must be unchanged after they have been read.
        staged = self._stage()
        verify(self.folders, self.plan.files)
        failpoint(Failpoint.STAGE_AFTER_WRITE, table=self.table.name)
        # 2. Find the outcomes.
        search = RepeatSearch(
            context=self.context,
            table=self.table,
            id_column=self.records.id_column,
            plan=self.plan,
        )
        repeats = search.find(staged, self.staging / "repeats")
        outcomes = self._count_outcomes(staged, repeats)
        blocks = tuple(self._placed(staged, repeats))
        # 3. Commit the exceptions, then the rows: only the second commit makes the batch count.
        self._commit_exceptions(staged.folder, blocks, repeats)
        done = self._commit_rows(staged.folder, blocks, repeats)
        return self._report(done, outcomes)

    def _stage(self) -> Staged:
        """Validate every line once and stage the result: the later phases read columns of it."""
        files = self._input_files()
        folder = self.staging / "lines"
        folder.mkdir()
        with self._files_named():
            return stage_lines(self.context.session, files, self.records, folder)

    def _input_files(self) -> list[InputFile]:
        by_source = {folders.source: folders for folders in self.folders}
        return [by_source[file.source].input_file(file) for file in self.plan.files]

    @contextmanager
    def _files_named(self) -> Generator[None]:
        """Name the file behind an error of reading the plan's files: the original error names no fix.

        Raises:
            SourceUnreadable: a file cannot be read.
            SourceChanged: a file changed in the meantime.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, Py4JError, OSError, EOFError, RuntimeError, zlib.error) as error:
            # A full disk says what to do. Checking the compressed files first would only delay that.
            if disk_is_full(error):
                raise
            verify(self.folders, self.plan.files)
            for folders in self.folders:
                of_folder = [file for file in self.plan.files if file.source == folders.source]
                folders.verify_compression(of_folder)
                folders.refuse_named(of_folder, error)
            raise

    def _count_outcomes(self, staged: Staged, repeats: Repeats) -> dict[dt.date | None, Counter[str]]:
        """Count the outcomes of the batch by day. An event is accepted unless it is rejected or a repeat."""
        counts: dict[dt.date | None, Counter[str]] = {day: Counter() for day in self.plan.days}
        for block in staged.blocks:
            figures = counts[self.plan.files[block.file_index].day]
            figures[READ] += block.lines - block.blank
            if block.skipped:
                figures[SKIPPED] += block.skipped
            figures[Outcome.REJECTED.value] += block.rejected
        for (index, outcome), events in repeats.outcomes().items():
            if outcome != Outcome.ACCEPTED.value:
                counts[self.plan.files[index].day][outcome] += events
        for figures in counts.values():
            refused = figures[Outcome.CONFLICT.value] + figures[Outcome.REJECTED.value]
            others = figures[SKIPPED] + figures[Outcome.DUPLICATE.value]
            figures[Outcome.ACCEPTED.value] = figures[READ] - refused - others
            figures[REFUSED] = refused
        return counts

    def _commit_exceptions(self, staging: Path, blocks: tuple[LocatedBlock, ...], repeats: Repeats) -> None:
        """Commit the lines that do not become rows as exceptions, if there are any."""
        tasks = tuple(exceptions_tasks(blocks))
        if not tasks:
            return

        originals = self._originals(staging, blocks, repeats)

        def make(stamps: Stamps) -> Exceptions:
            rows = RawExceptions(
                session=self.context.session,
                contract=self.rejects,
                stage=self.stage,
                records=self.records,
                tasks=tasks,
                staging=staging,
                repeats=repeats.files,
                originals=originals,
                stamps=stamps,
            )
            return Exceptions(frame=rows.for_commit(), files=rows.write)

        with self._files_named():
            commit_exceptions(
                self.context,
                self.rejects,
                make,
                output=self.table.name,
                days=self.plan.days,
                facts=self.plan.facts(),
            )

    def _originals(self, staging: Path, blocks: tuple[LocatedBlock, ...], repeats: Repeats) -> str | None:
        """Write the offsets of events that later lines of the batch repeat.

        Returns the file; None if there are no such events.
        """
        originals = repeats.original_ordinals()
        if not len(originals):
            return None
        offsets = offsets_of(
            originals,
            blocks,
            repeats=repeats.ordinals(),
            staging=staging,
            first_offset=self._first_offset(),
        )
        return write_offsets(staging, originals, offsets)

    def _first_offset(self) -> int:
        return next_offset(self.table.snapshot(self.plan.batch_id - 1))

    def _commit_rows(self, staging: Path, blocks: tuple[LocatedBlock, ...], repeats: Repeats) -> Commit:
        """Append the events that the table does not have yet, with their offsets."""
        contract = self.table.contract
        assert contract is not None
        rows = RawRows(
            session=self.context.session,
            contract=contract,
            repeating=self.records.repeating,
            tasks=tuple(rows_tasks(blocks, self._first_offset())),
            staging=staging,
            repeats=repeats.files,
            ingest_domain=self.context.domain.name,
            ingested_at=self.context.clock(),
            batch_id=self.plan.batch_id,
        )
        done = commit(
            self.table,
            Write(
                rows=rows.for_commit(),
                files=rows.write,
                base_version=self.plan.batch_id - 1,
                transaction=Transaction(app_id=FILES, version=self.plan.batch_id),
                transactions={} if self.plan.wanted is None else transactions_of(self.plan.wanted.end),
                facts={FILES_READ: self.plan.marks, **self.plan.facts_of_range(self.table.path)},
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
        if done.repeated:
            raise CommitConflict(
                f"another run committed batch {self.plan.batch_id} of {self.table.name}",
                fix="run again: files that it has not read are planned again",
                table=self.table.name,
            )
        return done

    def _placed(self, staged: Staged, repeats: Repeats) -> Iterator[LocatedBlock]:
        """Yield the blocks with their source and the outcomes of their events."""
        files = self._input_files()
        first = [first_ordinal(block.file_index, block.block_start) for block in staged.blocks]
        bounds = [*first, np.iinfo(np.int64).max]
        old = np.diff(np.searchsorted(repeats.ordinals(), bounds))
        repeated = np.diff(np.searchsorted(repeats.exceptional_ordinals(), bounds))
        for (block, before), not_new, again in zip(staged.lines_before(), old, repeated, strict=True):
            yield LocatedBlock(
                staged=block,
                input_file=files[block.file_index],
                lines_before=before + files[block.file_index].file.first_line - 1,
                new=block.events - int(not_new),
                repeated=int(again),
            )

    def _report(self, done: Commit, outcomes: Mapping[dt.date | None, Counter[str]]) -> StepReport:
        for day, rows in done.net_rows_by_partition.items():
            outcomes[dt.date.fromisoformat(day)][INSERTED] = rows
        return StepReport(
            table=self.table.name, version=done.version, counts=outcomes, commits=int(not done.repeated)
        )
