"""The step from a source that is read in ranges to its table.

Each range is read into files of the batch's staging folder, and these are ingested like the files of a
folder. The commit of the rows has the positions after the range. Replayed dead letters come through files as
ever, before the ranges.

Belongs here: which range is read next, and what happens to the range of a run that died. Does not belong
here: the work on one batch (`ingest_batch.py`), and the source itself.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.write.create import ensure_table
from etl_assets.errors import SourceLost
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.ingest.ingest_batch import IngestBatch
from etl_assets.ingest.step import Ingest
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.landing import Folders
from etl_assets.sources.positions import read_positions
from etl_assets.sources.source_files import SourceFile
from etl_assets.steps.step import READ, StepReport, logger, staging_folder
from etl_assets.steps.table_queue import give_way

if TYPE_CHECKING:
    from etl_assets.ingest.file_source import Ranges
    from etl_assets.sources.ranges import RangeRead, RangeSource, ReadRange


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRanges(Ingest):
    """The step. Reads every record from the positions on, whatever its day."""

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Ingest replayed dead letters of the days, then ranges until there is no more at a range's plan.

        Raises:
            SourceUnavailable, SourceRefused, SourceLost: as `RangeSource` says.
        """
        with closing(self._ranges.open()) as source:
            # 1. Carry out the range of a killed run again, or take its rejects back.
            report = self._complete(source, days)
            # 2. Ingest replayed dead letters.
            report += Ingest.run(self, days)
            # 3. Read one range after the other, each planned on the table's newest version.
            batches = report.commits
            while self.most_batches is None or batches < self.most_batches:
                if report.commits:
                    give_way()
                version = ensure_table(self.table, wait_seconds=self.context.lock_wait_seconds)
                wanted = source.plan(
                    read_positions(self.table, version),
                    max_bytes=self.max_batch_bytes,
                    max_records=self._ranges.max_records,
                )
                if wanted is None:
                    break
                done, more = self._read(source, wanted, version, days)
                report += done
                batches += 1
                if not more:
                    break
        return report

    @property
    def _ranges(self) -> Ranges:
        assert self.source.ranges is not None  # the step is built for sources that have some
        return self.source.ranges

    def _complete(self, source: RangeSource, days: Sequence[dt.date]) -> StepReport:
        """Carry out the range of a run that committed its rejects and not its rows.

        The range has the same records again, or its rejects are taken back and it is planned again.
        """
        version = self.table.version()
        nothing = StepReport(table=self.table.name, version=version, counts={day: Counter() for day in days})
        if (left := self._left()) is None or left.plan.wanted is None:
            return nothing
        if (mirrored := self.table.replication) is not None:
            mirrored.lead()
        version = self.table.version()
        if (left := self._left()) is None or left.plan.wanted is None:
            return nothing
        if source.is_repeatable and left.plan.batch_id <= version + 1:
            try:
                return nothing + self._read(source, left.plan.wanted, version, days)[0]
            except SourceLost as lost:
                logger.warning("%s: %s", self.table.name, lost.message)
        self._take_back()
        return nothing

    def _read(
        self, source: RangeSource, wanted: ReadRange, version: int, days: Sequence[dt.date]
    ) -> tuple[StepReport, bool]:
        """Carry out one range as the version after `version`; return whether there is more."""
        started = time.monotonic()
        with staging_folder(self.table, version + 1) as folder:
            staged = folder / "range"
            staged.mkdir()
            found = source.read(wanted, staged)
            if self._ranges.compare is not None:
                found = self._ranges.compare(self.table, version, found, staged)
            failpoint(Failpoint.STAGE_AFTER_WRITE, table=self.table.name)
            report = IngestBatch(
                context=self.context,
                table=self.table,
                rejects=self._rejects_contract,
                stage=self.stage.name_in_rejects,
                folders=(Folders(source=self._ranges.source, path=staged, format=self._ranges.format),),
                records=self.source.records,
                plan=BatchPlan(batch_id=version + 1, files=self._files_of(found, staged), wanted=found.read),
                staging=folder,
            ).write()
        logger.info(
            "%s: batch %d committed in %.1f s", self.table.name, version + 1, time.monotonic() - started
        )
        notes = (*found.read.notes, *_other_days(report, days))
        return report + StepReport(
            table=self.table.name, version=report.version, notes=notes
        ), found.read.more

    def _files_of(self, found: RangeRead, staged: Path) -> tuple[SourceFile, ...]:
        files = []
        for each in found.files:
            status = (staged / each.day.isoformat() / each.name).stat()
            files.append(
                SourceFile(
                    day=each.day,
                    source=self._ranges.source,
                    name=each.name,
                    size=status.st_size,
                    mtime_ns=status.st_mtime_ns,
                    place=each.place,
                    first_line=each.first_line,
                    identity=each.identity,
                )
            )
        return tuple(files)


def _other_days(report: StepReport, days: Sequence[dt.date]) -> tuple[str, ...]:
    """Return a note on records of days that the run was not started for."""
    others = {
        day: figures[READ] for day, figures in report.counts.items() if day not in days and figures[READ]
    }
    if not others:
        return ()
    return (f"{sum(others.values()):,} records belong to other days, from {min(others)} to {max(others)}",)
