"""Lines of JSON of a direct load: rows and changes that are not plain, rows without a key, and replayed dead
letters.

Belongs here: judging them as the records of other pipelines are, first as records, then as rows of the table.
Does not belong here: what becomes of rejected ones (`direct_rejects.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from etl_assets.contracts.envelope import Record, SkippedRecord
from etl_assets.contracts.reasons import RecordEncoding
from etl_assets.ingest.records import Records
from etl_assets.pipelines.declared import OFFSET, DeclaredTables
from etl_assets.sources.landing import REPLAYS
from etl_assets.steps.plain_stage import PlainRows, StagedRowsWriter, plain_records, record_columns
from etl_assets.steps.staged_load import StagedLoad, stage_rows
from etl_assets.steps.step import StepContext
from etl_assets.transforms.typed_records import ERROR, REASON

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import DataFrame

    from etl_assets.sources.source_files import InputFile


class FoundLine(NamedTuple):
    """A line: its number, its position in its file, and what the format has read."""

    number: int
    position: int
    record: Record


class FoundLines(NamedTuple):
    """Lines of a file, and their offsets in the same order, unless there are more or fewer of these."""

    file: InputFile
    lines: Iterable[FoundLine]
    offsets: np.ndarray | None = None


class JudgedLine(NamedTuple):
    """A line, and why it is rejected, if it is."""

    source: str
    source_position: str
    day: dt.date
    record_id: str | None
    record: str | None
    record_encoding: str | None
    offset: int | None = None
    reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of lines.

    Attributes:
        lines: Number of the lines.
        plain: Rows of plain records, staged.
        by_spark: Rows of the other records, staged by Spark; None if there are none.
        rejected: Lines that become no rows.
        replayed: Replayed records that become rows.
        next_offset: The next offset.
    """

    lines: int
    plain: PlainRows
    by_spark: StagedLoad | None
    rejected: Sequence[JudgedLine]
    replayed: Sequence[JudgedLine]
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectLines:
    """The lines of one batch.

    Attributes:
        context: The step's context.
        tables: The pipeline's tables.
        records: What records must be.
        batch_id: The version that the batch becomes.
        staging: Folder for temporary files.
    """

    context: StepContext
    tables: DeclaredTables
    records: Records
    batch_id: int
    staging: Path

    def judge(self, found: Iterable[FoundLines], next_offset: int) -> Judged:
        """Judge lines of some files.

        Args:
            found: The lines.
            next_offset: The offset of the first line that has none yet.
        """
        rejected: list[JudgedLine] = []
        accepted: list[JudgedLine] = []
        number = 0
        for each in found:
            lines = list(self._validated(each))
            number += len(lines)
            if each.offsets is not None and len(lines) == len(each.offsets):
                offsets = each.offsets.tolist()
            else:
                offsets = list(range(next_offset, next_offset + len(lines)))
                next_offset += len(lines)
            for line, offset in zip(lines, offsets, strict=True):
                if line.reason is None:
                    accepted.append(line._replace(offset=offset))
                else:
                    rejected.append(line)
        plain, left = self._stage_plain(accepted)
        by_spark, reasons = self._stage_by_spark([accepted[place] for place in left])
        refused = {offset: (reason, error) for offset, reason, error in reasons}
        replayed: list[JudgedLine] = []
        for line in accepted:
            reason, error = refused.get(line.offset or 0, (None, None))
            if reason is not None:
                rejected.append(line._replace(reason=reason, error=error))
            elif line.source == REPLAYS:
                replayed.append(line)
        return Judged(
            lines=number,
            plain=plain,
            by_spark=by_spark,
            rejected=rejected,
            replayed=replayed,
            next_offset=next_offset,
        )

    def lines_of(self, file: InputFile) -> Iterator[FoundLine]:
        """Yield the lines of a file."""
        size, number = Path(file.path).stat().st_size, file.file.first_line
        for block in file.format.blocks(file.path, size, max(1, size)):
            for position, lines in file.format.read(block, self.records.held_bytes):
                for place, line in enumerate(lines):
                    yield FoundLine(number=number + place, position=position + place, record=line)
                number += len(lines)

    def _validated(self, found: FoundLines) -> Iterator[JudgedLine]:
        """Yield lines, each with its id, or the reason why it is no record."""
        file, validate = found.file.file, self.records.validator(found.file)
        for line in found.lines:
            record = line.record
            if isinstance(record, SkippedRecord) or (isinstance(record, bytes) and not record.strip()):
                continue
            made: Any = validate(record, line.position)
            yield JudgedLine(
                source=file.source,
                source_position=f"{file.position}:{line.number}",
                day=file.day,
                record_id=made.record_id,
                record=made.record if made.content is None else made.content,
                record_encoding=made.record_encoding or RecordEncoding.UTF8.value,
                reason=made.reason,
                error=made.error,
            )

    def _stage_plain(self, accepted: Sequence[JudgedLine]) -> tuple[PlainRows, list[int]]:
        """Stage the rows of plain records, and return the places of the others."""
        import numpy as np
        import pyarrow as pa

        writer = StagedRowsWriter(
            tables=self.tables, batch_id=self.batch_id, path=self.staging / "lines.zstd.parquet"
        )
        if not accepted:
            return writer.staged, []
        records = plain_records(self.tables)
        assert records is not None  # the declaration is refused otherwise
        typed, places = records.typed(pa.array([each.record for each in accepted], pa.string()))
        offsets = pa.array([each.offset for each in accepted], pa.int64()).take(places)
        with writer:
            if typed.num_rows:
                writer.write(typed.append_column(OFFSET, offsets))
        left = np.setdiff1d(np.arange(len(accepted)), places.to_numpy())
        return writer.staged, left.tolist()

    def _stage_by_spark(
        self, lines: Sequence[JudgedLine]
    ) -> tuple[StagedLoad | None, list[tuple[int, str, str]]]:
        """Stage the rows of other records by Spark.

        Returns:
            The rows, and offset, reason and error of each record that is rejected.
        """
        if not lines:
            return None, []
        from pyspark.sql import functions as F

        from etl_assets.transforms.change_kinds import partial_records
        from etl_assets.transforms.declared_transforms import LEFT_OUT
        from etl_assets.transforms.lacking_values import lacking_records
        from etl_assets.transforms.table_rows import judged_rows
        from etl_assets.transforms.typed_records import typed_records

        partial = [*partial_records(self.tables.spec.table), *lacking_records(self.tables)]
        rows = typed_records(self._frame(lines), record_columns(self.tables), partial=partial)
        rows = judged_rows(rows.withColumn(LEFT_OUT, F.lit(False)), self.tables)
        folder = self.staging / "judged_rows"
        staged = stage_rows(self.context.spark, self.tables, rows, folder, is_last=True)
        assert staged.rows is not None  # Spark has staged them
        found = staged.rows.here([OFFSET, REASON, ERROR]).to_pylist()
        return staged, [
            (each[OFFSET], each[REASON], each[ERROR]) for each in found if each[REASON] is not None
        ]

    def _frame(self, lines: Sequence[JudgedLine]) -> DataFrame:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.staging / "records.parquet"
        records = pa.table(
            {
                "offset": pa.array([each.offset for each in lines], pa.int64()),
                "record": pa.array([each.record for each in lines], pa.string()),
            }
        )
        pq.write_table(records, path)
        return self.context.spark.read.schema("offset BIGINT, record STRING").parquet(str(path))
