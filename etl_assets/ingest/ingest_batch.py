"""One batch of source files into the source's table: validate its records, find repeats, assign offsets.

A batch is one plan (`sources.batch_plan`), one commit of exceptions and one commit of rows. It counts once
its rows are committed.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.read.key_index import KeyIndex
from etl_assets.delta.read.rows import rows_in_process, whole_days
from etl_assets.delta.read.sorted_runs import Hashes
from etl_assets.delta.session import frame_of
from etl_assets.delta.table import Table
from etl_assets.delta.write.commit import Commit, Transaction, Write, commit
from etl_assets.delta.write.offsets import next_offset
from etl_assets.error_policy import disk_is_full
from etl_assets.errors import CommitConflict
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.ingest.located_blocks import LocatedBlock
from etl_assets.ingest.original_offsets import offsets_of, write_offsets
from etl_assets.ingest.pending_plan import FILES
from etl_assets.ingest.raw_exceptions import RawExceptions, exceptions_tasks
from etl_assets.ingest.raw_rows import RawRows, repeated_ordinals, rows_tasks
from etl_assets.ingest.stage_lines import Staged, StagedBlock, stage_lines
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.landing import Folders, verify
from etl_assets.sources.ledger import FILES as FILES_READ
from etl_assets.steps.exceptions import Exceptions, Stamps, commit_exceptions
from etl_assets.steps.step import INSERTED, READ, REFUSED, StepContext, StepReport
from etl_assets.transforms.find_duplicates import find_duplicates, find_duplicates_in_process
from etl_assets.transforms.line_positions import (
    RUN_KEY,
    file_index_of,
    first_ordinal,
    ordinal,
    source_position,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from etl_assets.contracts.columns import TableContract
    from etl_assets.ingest.records import Records
    from etl_assets.sources.source_files import InputFile

MAX_EVENTS_IN_PROCESS = 100_000
"""Repeats among up to this many events are found in this process; beyond that Spark is as fast."""
_NO_ORDINALS = np.empty(0, dtype=np.int64)
_LOOKED_AT = ("fingerprint", *RUN_KEY, "block_line")
"""Columns read of an event that may be a repeat, besides its id."""
_KNOWN_COLUMNS = ("fingerprint", "offset", "source", "source_position")
"""Columns read of an event that was accepted before, besides its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Result of `find_duplicates`, in Parquet files of a folder; without a folder there are no repeats."""

    folder: Path | None

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files, sorted."""
        return () if self.folder is None else tuple(sorted(map(str, self.folder.glob("*.parquet"))))

    def ordinals(self) -> np.ndarray:
        """Return the ordinals of the events that do not become rows, sorted."""
        return repeated_ordinals(self.files)

    def exceptional_ordinals(self) -> np.ndarray:
        """Return the ordinals of duplicates and conflicts, sorted."""
        import pyarrow.parquet as pq

        exceptional = [("outcome", "!=", Outcome.ACCEPTED.value)]
        found = (pq.read_table(file, columns=["ordinal"], filters=exceptional) for file in self.files)
        return np.sort(np.concatenate([_NO_ORDINALS, *(rows.column(0).to_numpy() for rows in found)]))

    def original_ordinals(self) -> np.ndarray:
        """Return the ordinals of events of the batch that others repeat, sorted, each once."""
        import pyarrow.parquet as pq

        found = (pq.read_table(file, columns=["original_ordinal"]).column(0) for file in self.files)
        return np.unique(np.concatenate([_NO_ORDINALS, *(rows.drop_null().to_numpy() for rows in found)]))

    def outcomes(self) -> Counter[tuple[int, str]]:
        """Return the number of repeats by file index and outcome."""
        import pyarrow.parquet as pq

        counts: Counter[tuple[int, str]] = Counter()
        for file in self.files:
            rows = pq.read_table(file, columns=["ordinal", "outcome"])
            counts.update(
                (file_index_of(place), outcome)
                for place, outcome in zip(*(column.to_pylist() for column in rows.columns), strict=True)
            )
        return counts


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
        repeats = self._find_repeats(staged)
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
            return stage_lines(self.context.spark, files, self.records, folder)

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

    @property
    def _id(self) -> str:
        return self.records.id_column

    def _lines_before(self, staged: Staged) -> Iterator[tuple[StagedBlock, int]]:
        """Yield each block with the number of lines before it in its file."""
        for _, of_file in groupby(staged.blocks, key=lambda block: block.file_index):
            before = 0
            for block in of_file:
                yield block, before
                before += block.lines

    def _positions(self, staged: Staged) -> DataFrame:
        """Return the file of each block's lines and the number of lines before the block."""
        from pyspark.sql import functions as F

        rows = []
        for block, before in self._lines_before(staged):
            file = self.plan.files[block.file_index]
            rows.append((block.file_index, block.block_start, before, file.source, file.position))
        schema = (
            "file_index INT, block_start BIGINT, lines_before BIGINT, source STRING, file_position STRING"
        )
        return F.broadcast(frame_of(self.context.spark, rows, schema))

    def _find_repeats(self, staged: Staged) -> Repeats:
        """Find duplicates and conflicts among the events that may repeat others.

        If history may have an id of the batch, these are all events; else only those that share their id's
        hash with another event of the batch.
        """
        hashes, folder = staged.id_hashes(), self.staging / "repeats"
        days = KeyIndex(self.table, self._id).days_of(hashes, self.plan.batch_id - 1)
        twice, suspects = (None, len(hashes)) if days else _twice(hashes)
        if not suspects:
            return Repeats(folder=None)
        if suspects <= MAX_EVENTS_IN_PROCESS and (known := self._known_in_process(staged, days)) is not None:
            return self._find_duplicates_in_process(
                staged.columns((self._id, *_LOOKED_AT), twice), staged, known, folder
            )
        from pyspark.sql import functions as F

        events = staged.events(self.context.spark)
        if twice is not None:
            events = events.join(self._hashes_for_spark(twice), "id_hash", "left_semi")
        located = events.join(self._positions(staged), list(RUN_KEY)).select(
            F.col(self._id).alias("event_id"), "fingerprint", ordinal(), "source", source_position()
        )
        find_duplicates(located, self._history(staged, days)).write.parquet(str(folder))
        return Repeats(folder=folder)

    def _known_in_process(
        self, staged: Staged, days: Sequence[dt.date]
    ) -> dict[str, Mapping[str, Any]] | None:
        """Return the accepted events of some days that have an id of the batch, by id.

        None if Spark has to find them.
        """
        if not days:
            return {}
        ids = {name for piece in staged.columns([self._id]) for name in piece.column(0).to_pylist()}
        history = rows_in_process(
            self.table,
            self.plan.batch_id - 1,
            days,
            key=self._id,
            values=ids,
            columns=(self._id, *_KNOWN_COLUMNS),
        )
        return None if history is None else {row[self._id]: row for row in history.to_pylist()}

    def _find_duplicates_in_process(
        self,
        suspects: Iterable[pa.RecordBatch],
        staged: Staged,
        known: Mapping[str, Mapping[str, Any]],
        folder: Path,
    ) -> Repeats:
        """Find duplicates and conflicts without Spark.

        For few events, a single Spark job costs more than all of this.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        before = {(block.file_index, block.block_start): lines for block, lines in self._lines_before(staged)}
        events = []
        for piece in suspects:
            for event in piece.to_pylist():
                index, start, line = event["file_index"], event["block_start"], event["block_line"]
                file = self.plan.files[index]
                event["ordinal"] = first_ordinal(index, start) + line
                event["event_id"] = event[self._id]
                event["source"] = file.source
                event["source_position"] = f"{file.position}:{before[index, start] + line + 1}"
                events.append(event)
        found = list(find_duplicates_in_process(events, known))
        columns = zip(*found, strict=True) if found else ([], [], [], [])
        number = pa.int64()
        schema = pa.schema(
            {
                "ordinal": number,
                "outcome": pa.string(),
                "original_offset": number,
                "original_ordinal": number,
            }.items()
        )
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        folder.mkdir()
        pq.write_table(pa.table(arrays, schema=schema), folder / "repeats.parquet")
        return Repeats(folder=folder)

    def _hashes_for_spark(self, hashes: Hashes) -> DataFrame:
        import pyarrow as pa
        from pyspark.sql import functions as F

        # Signed, because Spark has no unsigned numbers. Not by `frame_of`, which takes rows: these are one
        # array already.
        signed = pa.table({"id_hash": hashes.view(np.int64)})
        return F.broadcast(self.context.spark.createDataFrame(signed))

    def _history(self, staged: Staged, days: Sequence[dt.date]) -> DataFrame | None:
        """Return the accepted events of some days that the batch may repeat.

        These are the events between the batch's lowest and highest id.

        If ids rise with time, file statistics leave few files to open; if ids are random, the index of ids
        does.
        """
        from pyspark.sql import functions as F

        if not days:
            return None
        ids = [name for block in staged.blocks for name in (block.lowest_id, block.highest_id) if name]
        history = self.table.read(self.context.spark, self.plan.batch_id - 1, whole_days(days))
        known = history.where(F.col(self._id).between(min(ids), max(ids)))
        return known.select(F.col(self._id).alias("event_id"), *_KNOWN_COLUMNS)

    def _count_outcomes(self, staged: Staged, repeats: Repeats) -> dict[dt.date | None, Counter[str]]:
        """Count the outcomes of the batch by day. An event is accepted unless it is rejected or a repeat."""
        counts: dict[dt.date | None, Counter[str]] = {day: Counter() for day in self.plan.days}
        for block in staged.blocks:
            figures = counts[self.plan.files[block.file_index].day]
            figures[READ] += block.lines - block.blank
            figures[Outcome.REJECTED.value] += block.rejected
        for (index, outcome), events in repeats.outcomes().items():
            if outcome != Outcome.ACCEPTED.value:
                counts[self.plan.files[index].day][outcome] += events
        for figures in counts.values():
            refused = figures[Outcome.CONFLICT.value] + figures[Outcome.REJECTED.value]
            figures[Outcome.ACCEPTED.value] = figures[READ] - refused - figures[Outcome.DUPLICATE.value]
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
                spark=self.context.spark,
                contract=self.rejects,
                stage=self.stage,
                records=self.records,
                tasks=tasks,
                staging=staging,
                repeats=repeats.files,
                originals=originals,
                stamps=stamps,
            )
            return Exceptions(frame=rows.frame(), files=rows.write)

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
            spark=self.context.spark,
            contract=contract,
            repeating=self.records.repeating,
            tasks=tuple(rows_tasks(blocks, self._first_offset())),
            staging=staging,
            repeats=repeats.files,
            ingest_domain=self.context.domain.name,
            ingested_at=self.context.clock(),
            batch_id=self.plan.batch_id,
        )
        frame = rows.frame()
        check_schema(contract, frame.schema)
        done = commit(
            self.table,
            Write(
                rows=frame,
                files=rows.write,
                base_version=self.plan.batch_id - 1,
                transaction=Transaction(app_id=FILES, version=self.plan.batch_id),
                facts={FILES_READ: self.plan.marks},
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
        for (block, before), not_new, again in zip(self._lines_before(staged), old, repeated, strict=True):
            yield LocatedBlock(
                staged=block,
                input_file=files[block.file_index],
                lines_before=before,
                new=block.events - int(not_new),
                repeated=int(again),
            )

    def _report(self, done: Commit, outcomes: Mapping[dt.date | None, Counter[str]]) -> StepReport:
        for day, rows in done.net_rows_by_partition.items():
            outcomes[dt.date.fromisoformat(day)][INSERTED] = rows
        return StepReport(
            table=self.table.name, version=done.version, counts=outcomes, commits=int(not done.repeated)
        )


def _twice(hashes: Hashes) -> tuple[Hashes, int]:
    """Return the hashes shared by the ids of more than one event, and the number of these events."""
    different, events = np.unique(hashes, return_counts=True)
    return different[events > 1], int(events[events > 1].sum())
