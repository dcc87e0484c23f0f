"""One batch of source files into raw_events: its lines judged, repeats found, offsets dealt.

A batch is one plan (`sources.batch_plan`), one commit of exceptions and one commit of rows. The rows' commit makes the
batch count.
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

from etl_assets.contracts.envelope import Limits
from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.commit import Commit, Transaction, Write, commit
from etl_assets.delta.key_index import KeyIndex
from etl_assets.delta.offsets import next_offset
from etl_assets.delta.rows import rows_in_process, whole_days
from etl_assets.delta.session import frame_of
from etl_assets.delta.sorted_runs import Hashes
from etl_assets.delta.table import Table
from etl_assets.error_policy import disk_is_full
from etl_assets.errors import CommitConflict
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.ingest.located_blocks import LocatedBlock
from etl_assets.ingest.original_offsets import offsets_of, write_offsets
from etl_assets.ingest.pending_plan import FILES
from etl_assets.ingest.raw_exceptions import RawExceptions, exceptions_tasks
from etl_assets.ingest.raw_rows import RawRows, repeated_ordinals, rows_tasks
from etl_assets.ingest.stage_lines import Staged, StagedBlock, stage_lines
from etl_assets.orders.tables.exceptions import RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
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

MAX_EVENTS_IN_PROCESS = 100_000
"""Repeats among so many events are found in this process; beyond that Spark is as fast."""
_NO_ORDINALS = np.empty(0, dtype=np.int64)
_LOOKED_AT = ("event_id", "fingerprint", *RUN_KEY, "block_line")
"""What is looked at of an event that may be a repeat."""
_KNOWN_COLUMNS = ("event_id", "fingerprint", "offset", "source", "source_position")
"""What is looked at of an event that was accepted before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """What `find_duplicates` found, in Parquet files of a folder; no folder for nothing."""

    folder: Path | None

    @property
    def files(self) -> tuple[str, ...]:
        """The files."""
        return () if self.folder is None else tuple(sorted(map(str, self.folder.glob("*.parquet"))))

    def ordinals(self) -> np.ndarray:
        """The places of the events, in order."""
        return repeated_ordinals(self.files)

    def exceptional_ordinals(self) -> np.ndarray:
        """The places of duplicates and conflicts, in order."""
        import pyarrow.parquet as pq

        exceptional = [("outcome", "!=", Outcome.ACCEPTED.value)]
        found = (pq.read_table(file, columns=["ordinal"], filters=exceptional) for file in self.files)
        return np.sort(np.concatenate([_NO_ORDINALS, *(rows.column(0).to_numpy() for rows in found)]))

    def original_ordinals(self) -> np.ndarray:
        """The places of events of the batch that others repeat, in order, each once."""
        import pyarrow.parquet as pq

        found = (pq.read_table(file, columns=["original_ordinal"]).column(0) for file in self.files)
        return np.unique(np.concatenate([_NO_ORDINALS, *(rows.drop_null().to_numpy() for rows in found)]))

    def outcomes(self) -> Counter[tuple[int, str]]:
        """How many there are by file and outcome."""
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
        staged = self._stage()
        verify(self.folders, self.plan.files)
        failpoint(Failpoint.STAGE_AFTER_WRITE, table=self.table.name)
        repeats = self._find_repeats(staged)
        outcomes = self._count_outcomes(staged, repeats)
        blocks = tuple(self._placed(staged, repeats))
        self._commit_exceptions(staged.folder, blocks, repeats)
        done = self._commit_rows(staged.folder, blocks, repeats)
        return self._report(done, outcomes)

    def _stage(self) -> Staged:
        """Judge every line once and keep the result: all that follows reads columns of it."""
        by_source = {folders.source: folders for folders in self.folders}
        files = [(str(by_source[file.source].path_of(file)), file.size, file.day) for file in self.plan.files]
        folder = self.staging / "lines"
        folder.mkdir()
        with self._files_named():
            return stage_lines(self.context.spark, files, self.limits, folder)

    @contextmanager
    def _files_named(self) -> Generator[None]:
        """Name the file that an error of reading the plan's files is about: none says in words that tell what to do.

        Raises:
            SourceUnreadable: a file cannot be read.
            SourceChanged: a file changed meanwhile.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, Py4JError, OSError, EOFError, RuntimeError, zlib.error) as error:
            # A full disk says what to do; to read compressed files again would only delay that.
            if disk_is_full(error):
                raise
            verify(self.folders, self.plan.files)
            for folders in self.folders:
                of_folder = [file for file in self.plan.files if file.source == folders.source]
                folders.verify_compression(of_folder)
                folders.refuse_named(of_folder, error)
            raise

    def _lines_before(self, staged: Staged) -> Iterator[tuple[StagedBlock, int]]:
        """Each block with the number of lines that its file has before it."""
        for _, of_file in groupby(staged.blocks, key=lambda block: block.file_index):
            before = 0
            for block in of_file:
                yield block, before
                before += block.lines

    def _positions(self, staged: Staged) -> DataFrame:
        """For each block the file its lines are in and the number of lines before it."""
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
        """Look among the events that can be repeats: with history all of them, without it those with the hash of another."""
        hashes, folder = staged.id_hashes(), self.staging / "repeats"
        days = KeyIndex(self.table, "event_id").days_of(hashes, self.plan.batch_id - 1)
        twice, suspects = (None, len(hashes)) if days else _twice(hashes)
        if not suspects:
            return Repeats(folder=None)
        if suspects <= MAX_EVENTS_IN_PROCESS and (known := self._known_in_process(staged, days)) is not None:
            return self._find_duplicates_in_process(staged.columns(_LOOKED_AT, twice), staged, known, folder)
        events = staged.events(self.context.spark)
        if twice is not None:
            events = events.join(self._hashes_for_spark(twice), "id_hash", "left_semi")
        located = events.join(self._positions(staged), list(RUN_KEY)).select(
            "event_id", "fingerprint", ordinal(), "source", source_position()
        )
        find_duplicates(located, self._history(staged, days)).write.parquet(str(folder))
        return Repeats(folder=folder)

    def _known_in_process(
        self, staged: Staged, days: Sequence[dt.date]
    ) -> dict[str, Mapping[str, Any]] | None:
        """The accepted events of some days that have an id of the batch, by it; None where Spark is to look for them."""
        if not days:
            return {}
        ids = {name for piece in staged.columns(["event_id"]) for name in piece.column(0).to_pylist()}
        history = rows_in_process(
            self.table, self.plan.batch_id - 1, days, key="event_id", values=ids, columns=_KNOWN_COLUMNS
        )
        return None if history is None else {row["event_id"]: row for row in history.to_pylist()}

    def _find_duplicates_in_process(
        self,
        suspects: Iterable[pa.RecordBatch],
        staged: Staged,
        known: Mapping[str, Mapping[str, Any]],
        folder: Path,
    ) -> Repeats:
        """The same without Spark, of whose jobs each costs more than all of it for few events."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        before = {(block.file_index, block.block_start): lines for block, lines in self._lines_before(staged)}
        events = []
        for piece in suspects:
            for event in piece.to_pylist():
                index, start, line = event["file_index"], event["block_start"], event["block_line"]
                file = self.plan.files[index]
                event["ordinal"] = first_ordinal(index, start) + line
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

        # Signed, as Spark has all numbers; already in one array, so not by `frame_of`, which takes rows.
        signed = pa.table({"id_hash": hashes.view(np.int64)})
        return F.broadcast(self.context.spark.createDataFrame(signed))

    def _history(self, staged: Staged, days: Sequence[dt.date]) -> DataFrame | None:
        """The accepted events of some days that the batch may repeat: those between its lowest and highest id.

        Where ids rise with time, file statistics leave few files to open; where they are random, the index does.
        """
        from pyspark.sql import functions as F

        if not days:
            return None
        ids = [name for block in staged.blocks for name in (block.lowest_id, block.highest_id) if name]
        history = self.table.read(self.context.spark, self.plan.batch_id - 1, whole_days(days))
        return history.where(F.col("event_id").between(min(ids), max(ids))).select(*_KNOWN_COLUMNS)

    def _count_outcomes(self, staged: Staged, repeats: Repeats) -> dict[dt.date | None, Counter[str]]:
        """Outcomes of the batch by day; what is neither rejected nor a repeat is accepted."""
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
        """Write down what does not become a row, unless every line does."""
        tasks = tuple(exceptions_tasks(blocks))
        if not tasks:
            return

        originals = self._originals(staging, blocks, repeats)

        def make(stamps: Stamps) -> Exceptions:
            rows = RawExceptions(
                spark=self.context.spark,
                tasks=tasks,
                staging=staging,
                repeats=repeats.files,
                originals=originals,
                limits=self.limits,
                stamps=stamps,
            )
            return Exceptions(frame=rows.frame(), files=rows.write)

        with self._files_named():
            commit_exceptions(
                self.context,
                RAW_EVENTS_EXCEPTIONS,
                make,
                output=self.table.name,
                days=self.plan.days,
                facts=self.plan.facts(),
            )

    def _originals(self, staging: Path, blocks: tuple[LocatedBlock, ...], repeats: Repeats) -> str | None:
        """The file with the offsets of events that others of the batch repeat; None where there are none."""
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
        """Append the events that are in the table under no position yet, with their offsets."""
        rows = RawRows(
            spark=self.context.spark,
            tasks=tuple(rows_tasks(blocks, self._first_offset())),
            staging=staging,
            repeats=repeats.files,
            ingest_domain=self.context.domain.name,
            ingested_at=self.context.clock(),
            batch_id=self.plan.batch_id,
        )
        frame = rows.frame()
        check_schema(RAW_EVENTS, frame.schema)
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
                fix="run again: files that it has not read are planned anew",
                table=self.table.name,
            )
        return done

    def _placed(self, staged: Staged, repeats: Repeats) -> Iterator[LocatedBlock]:
        """The blocks, with what becomes of their events."""
        by_source = {folders.source: folders for folders in self.folders}
        first = [first_ordinal(block.file_index, block.block_start) for block in staged.blocks]
        bounds = [*first, np.iinfo(np.int64).max]
        old = np.diff(np.searchsorted(repeats.ordinals(), bounds))
        repeated = np.diff(np.searchsorted(repeats.exceptional_ordinals(), bounds))
        for (block, before), not_new, again in zip(self._lines_before(staged), old, repeated, strict=True):
            file = self.plan.files[block.file_index]
            yield LocatedBlock(
                staged=block,
                day=file.day,
                source=file.source,
                path=str(by_source[file.source].path_of(file)),
                file_position=file.position,
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
    """The hashes that more than one event of the batch has for its id, and how many events those are."""
    different, events = np.unique(hashes, return_counts=True)
    return different[events > 1], int(events[events > 1].sum())
