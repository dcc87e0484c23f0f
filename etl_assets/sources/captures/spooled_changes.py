"""The changes in the spool that a captured table takes up next: whole transactions, or a part of a large one.

Belongs here: where a batch ends, and its staged files. Does not belong here: the files of the spool
(`spool.py`), and how a table's phases follow (`captured_table.py`).
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_calls import call
from etl_assets.errors import SourceSchemaChanged
from etl_assets.pipelines.postgres_cdc_spec import LSN_FIELD, SEQUENCE_FIELD
from etl_assets.sources.captures.followed_columns import FollowedColumns
from etl_assets.sources.captures.spool import Segment
from etl_assets.sources.captures.table_declaration import delta_type
from etl_assets.sources.postgres_cdc.column_changes import Columns
from etl_assets.sources.postgres_cdc.staged import SUFFIX, columns_of, refused_upserts
from etl_assets.sources.postgres_cdc.table_changes import ReadUntil
from etl_assets.sources.postgres_cdc.transaction_parts import TransactionPart
from etl_assets.sources.ranges import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa

Place = tuple[int, int]
"""The place of a change: that of its commit in the log, and its number in the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledChanges:
    """Changes that come next.

    Attributes:
        segments: The files that have them.
        until: How far the table is with them.
        begin: The first change that counts; None: the files have no earlier one.
        end: The first change that does not count; None: the files have no later one.
        columns: The columns that the table has with them; None: those of before.
        columns_lsn: The place from which on it has them.
        quarantined: Why upserts of a file are not taken, by its path.
    """

    segments: tuple[Segment, ...]
    until: ReadUntil
    begin: Place | None = None
    end: Place | None = None
    columns: Columns | None = None
    columns_lsn: int = 0
    quarantined: Mapping[Path, str] = field(default_factory=dict)

    def stage(self, folder: Path, day: dt.date) -> list[StagedFile]:
        """Copy the changes into staged files.

        Raises:
            FileNotFoundError: another process has committed and removed them, or the table is copied again.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for number, each in enumerate(self.segments):
            name = f"log-{number:06d}{SUFFIX}"
            place = f"log/{each.path.stem}{self._copy(each, folder / name)}"
            files.append(StagedFile(day=day, name=name, place=place))
        return files

    def _copy(self, segment: Segment, path: Path) -> str:
        """Copy the changes of a file that count; return what tells them from others of it."""
        import pyarrow as pa

        begin, end = self.begin, self.end
        is_cut = end is not None and segment is self.segments[-1]
        if begin is not None and segment is self.segments[0]:
            is_cut = is_cut or _places(segment)[0] < begin
        why = self.quarantined.get(segment.path)
        if not is_cut and why is None:
            shutil.copyfile(segment.path, path)
            return ""
        with (
            pa.OSFile(str(segment.path)) as file,
            pa.ipc.open_stream(file) as stream,
            pa.ipc.new_stream(str(path), stream.schema) as copy,
        ):
            for batch in stream:
                rest = batch
                if is_cut and begin is not None:
                    rest = rest.filter(call("invert", _is_before(rest, begin)))
                if is_cut and end is not None:
                    rest = rest.filter(_is_before(rest, end))
                if rest.num_rows:
                    copy.write_batch(rest if why is None else refused_upserts(rest, why))
        return f"/{0 if begin is None else begin[1]}" if is_cut else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBefore:
    """The columns of a table, and what decides about the next ones.

    Attributes:
        followed: Decides.
        columns: The columns that were taken last; None: it is not known.
        lsn: The place in the log from which on the table has them.
        quarantined: Why upserts of a file are not taken, by its path.
    """

    followed: FollowedColumns
    columns: Columns | None = None
    lsn: int = 0
    quarantined: Mapping[Path, str] = field(default_factory=dict)

    def with_files(self, segments: Iterable[Segment]) -> TakenBefore:
        """Return what it is with the next files.

        Raises:
            SourceSchemaChanged: one has columns that are not followed.
        """
        taken = self
        for each in segments:
            taken = taken._with_file(each)
        return taken

    def into(self, changes: SpooledChanges) -> SpooledChanges:
        """Return changes with the columns that the table has with them."""
        return replace(changes, columns=self.columns, columns_lsn=self.lsn, quarantined=self.quarantined)

    def _with_file(self, segment: Segment) -> TakenBefore:
        for batch in _batches(segment):
            if not batch.num_rows:
                continue
            found, place = columns_of(batch.schema), _place(batch, 0)[0]
            # Changes from before a copy's rows have the columns of their time.
            if found is None or found == self.columns or place < self.lsn:
                return self
            names = {each.name for each in found}
            types = {each.name: delta_type(each.type) for each in batch.schema if each.name in names}
            why = self.followed.quarantined(self.columns, found, types, place)
            if why is None:
                return replace(self, columns=found, lsn=place)
            return replace(self, quarantined={**self.quarantined, segment.path: why})
        return self


def next_changes(
    segments: Sequence[Segment],
    after: ReadUntil,
    *,
    max_records: int,
    max_transaction: int,
    taken: TakenBefore,
) -> SpooledChanges:
    """Return the next changes: about `max_records`, and of a transaction no more than `max_transaction`.

    They end before changes of columns that are not followed.

    Args:
        segments: The files with the table's changes after the last whole transaction that it has.
        after: How far the table is.
        max_records: After so many changes no other transaction is taken up.
        max_transaction: A transaction with more changes is taken up in parts of so many.
        taken: The columns of the table until now, and what decides about others.

    Raises:
        SourceSchemaChanged: the first changes have columns that are not followed.
    """
    part = after.part
    found: list[Segment] = []
    rows = 0
    for _, files in groupby(segments, key=lambda each: each.end_lsn):
        place = tuple(files)
        if part is not None and _places(place[-1])[1] < (part.commit_lsn, part.sequence):
            continue  # the log was read again, and other readings ended elsewhere
        is_divided = part is not None or _is_divided(place, max_transaction)
        if is_divided and found:
            break  # the transaction begins with a batch of its own
        try:
            taken = taken.with_files(place)
        except SourceSchemaChanged:
            if not found:
                raise
            break  # what is before is applied
        if is_divided:
            return taken.into(_part(place, after, max_transaction))
        found += place
        rows += sum(each.rows for each in place)
        if rows >= max_records:
            break
    lsn = found[-1].end_lsn if found else after.lsn
    return taken.into(SpooledChanges(segments=tuple(found), until=ReadUntil(lsn=lsn)))


def _is_divided(place: Sequence[Segment], max_transaction: int) -> bool:
    """Return whether the last transaction of a reading is larger than a part. A reading ends with one."""
    if sum(each.rows for each in place) <= max_transaction:
        return False
    (_, last) = _places(place[-1])
    return last[1] >= max_transaction


def _part(place: Sequence[Segment], after: ReadUntil, max_transaction: int) -> SpooledChanges:
    """Return the next part of the last transaction of a reading, with what was read before it."""
    commit_lsn, last = _places(place[-1])[1]
    part = after.part
    first, number = (0, 0) if part is None else (part.sequence, part.number)
    begin = None if part is None else (part.commit_lsn, part.sequence)
    if part is not None and commit_lsn != part.commit_lsn:
        first = last = 0  # the log was read again, and the reading has more than the transaction
    end = (commit_lsn, first + max_transaction)
    wanted = []
    for each in place:
        lowest, highest = _places(each)
        if lowest >= end:
            break
        if begin is None or highest >= begin:
            wanted.append(each)
    if last < end[1]:
        return SpooledChanges(segments=tuple(wanted), until=ReadUntil(lsn=place[-1].end_lsn), begin=begin)
    reached = TransactionPart(commit_lsn=commit_lsn, sequence=end[1], number=number + 1)
    return SpooledChanges(
        segments=tuple(wanted), until=ReadUntil(lsn=after.lsn, part=reached), begin=begin, end=end
    )


def _places(segment: Segment) -> tuple[Place, Place]:
    """Return the places of the first and the last change of a file."""
    first: Place | None = None
    last: Place = (0, 0)
    for batch in _batches(segment):
        if batch.num_rows:
            first = first or _place(batch, 0)
            last = _place(batch, batch.num_rows - 1)
    return first or last, last


def _batches(segment: Segment) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    # Mapped: of the values only those that are looked at are read.
    with pa.memory_map(str(segment.path)) as file, pa.ipc.open_stream(file) as stream:
        yield from stream


def _place(batch: pa.RecordBatch, row: int) -> Place:
    return batch.column(LSN_FIELD)[row].as_py(), batch.column(SEQUENCE_FIELD)[row].as_py()


def _is_before(batch: pa.RecordBatch, place: Place) -> pa.BooleanArray:
    lsn, sequence = batch.column(LSN_FIELD), batch.column(SEQUENCE_FIELD)
    same = call("and", call("equal", lsn, place[0]), call("less", sequence, place[1]))
    return call("or", call("less", lsn, place[0]), same)
