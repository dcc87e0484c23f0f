"""The step from a source that is read in ranges to its table.

Each range is read into files of the batch's staging folder, and these are ingested like the files of a
folder. The commit of the rows has the positions after the range. Replayed dead letters come through files as
ever, before the ranges.

Belongs here: which range is read next, and what happens to the range of a run that died. Does not belong
here: the work on one batch (`ingest_batch.py`), and the source itself.
"""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.compute.freed_memory import give_back_freed_memory
from etl_assets.delta.log.log_places import notes_of
from etl_assets.delta.write.create import ensure_table
from etl_assets.errors import SourceLost
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.ingest.read_ahead import ReadAhead, StagedRange, read_range
from etl_assets.ingest.step import Ingest
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.landing import Folders
from etl_assets.sources.positions import positions_after, read_positions
from etl_assets.sources.source_files import SourceFile
from etl_assets.steps.step import READ, StepReport, logger, staging_folder
from etl_assets.steps.table_queue import give_way

if TYPE_CHECKING:
    from etl_assets.ingest.file_source import Ranges
    from etl_assets.sources.ranges import Positions, RangeRead, RangeSource, ReadRange


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRanges(Ingest):
    """The step. Reads every record from the positions on, whatever its day."""

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Ingest replayed dead letters of the days, then ranges until there is no more at a range's plan.

        Raises:
            SourceUnavailable, SourceRefused, SourceLost: as `RangeSource` says.
        """
        with closing(self._ranges.open()) as source, self._read_ahead(source) as ahead:
            # 1. Carry out the range of a killed run again, or take its rejects back.
            report = self._complete(source, days)
            # 2. Ingest replayed dead letters.
            report += Ingest.run(self, days)
            # 3. Store one range after the other, each planned after the newest version's positions.
            batches = report.commits
            committed: Positions | None = None
            while self.most_batches is None or batches < self.most_batches:
                if report.commits:
                    give_way()
                version = ensure_table(self.table, wait_seconds=self.context.lock_wait_seconds)
                positions = read_positions(self.table, version)
                with staging_folder(self.table, version + 1) as folder:
                    was_read = ahead.take(positions)
                    if committed is not None:
                        source.confirm(committed)
                    if was_read is None:
                        wanted = self._plan(source, positions)
                        if wanted is None:
                            break
                        if not report.commits and self._has_moved(version):
                            continue
                        was_read = read_range(source.read, wanted, folder / "range")
                    batches += 1
                    more = was_read.found.read.more
                    if more and (self.most_batches is None or batches < self.most_batches):
                        ahead.begin(positions_after(positions, was_read.found.read.end))
                    report += self._store(was_read, version, folder, days)
                    committed = positions_after(positions, was_read.found.read.end)
                if not more:
                    break
            if committed is not None:
                source.confirm(committed)
        return report

    def _has_moved(self, version: int) -> bool:
        """Return whether the table has another version once the commit of a killed run is completed."""
        if (mirrored := self.table.replication) is None:
            return False
        mirrored.lead()
        return self.table.version() != version

    @property
    def _ranges(self) -> Ranges:
        assert self.source.ranges is not None  # the step is built for sources that have some
        return self.source.ranges

    @contextmanager
    def _read_ahead(self, source: RangeSource) -> Generator[ReadAhead]:
        plan = partial(self._plan, source)
        with staging_folder(self.table, 0) as folder, ReadAhead(plan, source.read, folder) as ahead:
            yield ahead

    def _plan(self, source: RangeSource, positions: Positions) -> ReadRange | None:
        return source.plan(positions, max_bytes=self.max_batch_bytes, max_records=self._ranges.max_records)

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
                with staging_folder(self.table, version + 1) as folder:
                    was_read = read_range(source.read, left.plan.wanted, folder / "range")
                    return nothing + self._store(was_read, version, folder, days)
            except SourceLost as lost:
                logger.warning("%s: %s", self.table.name, lost.message)
        self._take_back()
        return nothing

    def _store(
        self, was_read: StagedRange, version: int, folder: Path, days: Sequence[dt.date]
    ) -> StepReport:
        """Store the records of a range as the version after `version`."""
        started = time.monotonic()
        found, staged = was_read.found, was_read.folder
        if self._ranges.compare is not None:
            found = self._ranges.compare(self.table, version, found, staged)
        failpoint(Failpoint.STAGE_AFTER_WRITE, table=self.table.name)
        report = self._write(
            BatchPlan(batch_id=version + 1, files=self._files_of(found, staged), wanted=found.read),
            (Folders(source=self._ranges.source, path=staged, format=self._ranges.format),),
            folder,
        )
        shutil.rmtree(staged, ignore_errors=True)
        give_back_freed_memory()
        logger.info(
            "%s: batch %d committed in %.1f s", self.table.name, version + 1, time.monotonic() - started
        )
        notes = (*found.read.notes, *notes_of(self.table.name, found.read.facts), *_other_days(report, days))
        return report + StepReport(table=self.table.name, version=report.version, notes=notes)

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
                    version=each.version,
                )
            )
        return tuple(files)


def _other_days(report: StepReport, days: Sequence[dt.date]) -> tuple[str, ...]:
    """Return a note on records of days that the run was not started for."""
    others = {
        day: figures[READ]
        for day, figures in report.counts.items()
        if day is not None and day not in days and figures[READ]
    }
    if not others:
        return ()
    return (f"{sum(others.values()):,} records belong to other days, from {min(others)} to {max(others)}",)
