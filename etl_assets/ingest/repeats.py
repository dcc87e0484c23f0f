"""Events of a batch that repeat others, of the batch itself or of history: duplicates and conflicts.

Belongs here: which events are compared with what, in this process or by Spark. Does not belong here: the
comparison itself (`transforms/find_duplicates.py`), and what happens to repeats (`ingest_batch.py`).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.read.key_index import KeyIndex
from etl_assets.delta.read.rows import rows_in_process, whole_days
from etl_assets.delta.read.sorted_runs import Hashes, each_once
from etl_assets.delta.session import frame_of
from etl_assets.delta.table import Table
from etl_assets.ingest.raw_rows import repeated_ordinals
from etl_assets.ingest.stage_lines import Staged
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.steps.step import StepContext
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
        return each_once(np.concatenate([_NO_ORDINALS, *(rows.drop_null().to_numpy() for rows in found)]))

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
class RepeatSearch:
    """The search for the repeats of a batch.

    Attributes:
        context: The step's context.
        table: The source's table.
        id_column: Name of the column with an event's id.
        plan: The files and the version they become.
    """

    context: StepContext
    table: Table
    id_column: str
    plan: BatchPlan

    def find(self, staged: Staged, folder: Path) -> Repeats:
        """Find duplicates and conflicts among the events that may repeat others.

        These are the events that history may have the id of, and those that share their id's hash with
        another event of the batch.

        Args:
            staged: The events.
            folder: New folder for the repeats.
        """
        hashes = staged.id_hashes()
        known = KeyIndex(self.table, self.id_column).find(hashes, self.plan.batch_id - 1)
        suspects = each_once(np.concatenate([_twice(hashes), known.hashes]))
        if not len(suspects):
            return Repeats(folder=None)
        number = np.count_nonzero(np.isin(hashes, suspects))
        # Where most are suspects, looking at all of them costs less than picking these.
        among = suspects if 2 * number < len(hashes) else None
        if number <= MAX_EVENTS_IN_PROCESS:
            history = self._known_in_process(staged, known.days, among)
            if history is not None:
                events = staged.columns((self.id_column, *_LOOKED_AT), among)
                return self._find_duplicates_in_process(events, staged, history, folder)
        from pyspark.sql import functions as F

        events = staged.events(self.context.spark)
        if among is not None:
            events = events.join(self._hashes_for_spark(among), "id_hash", "left_semi")
        located = events.join(self._positions(staged), list(RUN_KEY)).select(
            F.col(self.id_column).alias("event_id"), "fingerprint", ordinal(), "source", source_position()
        )
        find_duplicates(located, self._history(staged, known.days)).write.parquet(str(folder))
        return Repeats(folder=folder)

    def _positions(self, staged: Staged) -> DataFrame:
        """Return the file of each block's lines and the number of lines before the block."""
        from pyspark.sql import functions as F

        rows = []
        for block, before in staged.lines_before():
            file = self.plan.files[block.file_index]
            before_block = before + file.first_line - 1
            rows.append((block.file_index, block.block_start, before_block, file.source, file.position))
        schema = (
            "file_index INT, block_start BIGINT, lines_before BIGINT, source STRING, file_position STRING"
        )
        return F.broadcast(frame_of(self.context.spark, rows, schema))

    def _known_in_process(
        self, staged: Staged, days: Sequence[dt.date], among: Hashes | None
    ) -> dict[str, Mapping[str, Any]] | None:
        """Return the accepted events of some days that have an id of the batch, by id.

        Args:
            staged: The events.
            days: The days.
            among: Hashes of the ids that are looked for; None: all.

        Returns:
            None if Spark has to find them.
        """
        if not days:
            return {}
        pieces = staged.columns([self.id_column], among)
        ids = {name for piece in pieces for name in piece.column(0).to_pylist()}
        history = rows_in_process(
            self.table,
            self.plan.batch_id - 1,
            days,
            key=self.id_column,
            values=ids,
            columns=(self.id_column, *_KNOWN_COLUMNS),
        )
        return None if history is None else {row[self.id_column]: row for row in history.to_pylist()}

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

        before = {(block.file_index, block.block_start): lines for block, lines in staged.lines_before()}
        events = []
        for piece in suspects:
            for event in piece.to_pylist():
                index, start, line = event["file_index"], event["block_start"], event["block_line"]
                file = self.plan.files[index]
                event["ordinal"] = first_ordinal(index, start) + line
                event["event_id"] = event[self.id_column]
                event["source"] = file.source
                event["source_position"] = f"{file.position}:{before[index, start] + file.first_line + line}"
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
        known = history.where(F.col(self.id_column).between(min(ids), max(ids)))
        return known.select(F.col(self.id_column).alias("event_id"), *_KNOWN_COLUMNS)


def _twice(hashes: Hashes) -> Hashes:
    """Return the hashes shared by the ids of more than one event."""
    different, events = np.unique(hashes, return_counts=True)
    return different[events > 1]
