"""A table as a source: its changes since a position.

Guarantees:

- Order: versions of the table, one after the other. Of versions that are read together each key has its
  newest row.
- Replay: a range is a pair of versions. As long as both can be read, it has the same records each time.
- A row that is gone is a record with its last values. So is one that has changed, where former values are
  wanted; its new values are the record after it. Both are found by comparing the two versions.
- Where versions cannot be compared, all rows are compared with the accepted records: after a restore or
  reprocess of the table, if it was created again, and if the version at the position was cleaned up. The
  records afterwards say the same as the table, whatever it was.

Belongs here: which versions are read next. Does not belong here: what a delivery reads of a table
(`steps/delivery_rows.py`), on which this is built, and the difference of two versions (`versions.py`).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SourceLost
from etl_assets.sinks.decision import DeliveryExtent, Head, extent_of
from etl_assets.sources.ranges import Lag, Positions, RangeRead, ReadRange
from etl_assets.sources.sql.staged import DELETED, IDS, ROWS, file_name
from etl_assets.sources.table.position import TablePosition
from etl_assets.sources.table.staged import files_of, write_lines
from etl_assets.sources.table.versions import former_rows
from etl_assets.steps.delivery_rows import DeliveryRows, batches_of, rows_taken_out

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedTable:
    """A table whose changes are read.

    Attributes:
        table: The table.
        contract: Its contract.
        columns: Its columns that records have.
        has_deletes: Whether its stage deletes rows.
        with_former: Whether a row that has changed is a record of its former values too.
        now: Returns the time; its day is that of the records.
    """

    table: Table
    contract: TableContract
    columns: tuple[str, ...]
    has_deletes: bool
    with_former: bool
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    @property
    def is_repeatable(self) -> bool:
        """Yes: a version never changes, and one that is gone is `SourceLost`."""
        return True

    def plan(self, positions: Positions, *, max_bytes: int, max_records: int) -> ReadRange | None:
        """Return the next versions; None if there is no other one than that of the position."""
        before, head = TablePosition.of(positions), self._at(self.table.version())
        extent = self._extent(before, head)
        if head is None or extent is DeliveryExtent.NOTHING:
            return None
        is_whole = extent is DeliveryExtent.WHOLE
        until, is_sorted = (head.table[1], False) if is_whole else self._until(before, head, max_records)
        end = TablePosition(
            number=before.number + 1, table_id=head.position.table_id, version=until
        ).as_positions()
        readable = until == head.table[1] or self._is_readable(until)
        return ReadRange(
            begin=positions,
            end=end,
            details={
                "day": self.now().date().isoformat(),
                "whole": is_whole,
                "sorted": is_sorted,
                "at": until if readable else head.table[1],
            },
            more=until < head.table[1],
            notes=(
                (f"all rows of {self.table.name} are compared: their changes cannot be told apart",)
                if is_whole
                else ()
            ),
        )

    def read(self, wanted: ReadRange, folder: Path) -> RangeRead:
        """Write the records of a range as lines of JSON: rows that are gone, then those that are there."""
        before, end = TablePosition.of(wanted.begin), TablePosition.of(wanted.end)
        rows = self._at(wanted.details["at"])
        if rows is None or not rows.is_readable() or rows.position.table_id != end.table_id:
            raise self._lost(wanted)
        day = folder / wanted.details["day"]
        day.mkdir(parents=True, exist_ok=True)
        path, gone = day / file_name(ROWS, end.number), day / file_name(DELETED, end.number)
        if wanted.details["whole"]:
            write_lines(path, rows.rows_where(None), self.columns)
            write_lines(folder / IDS, rows.rows_where(None), self.contract.merge_key)
        else:
            if self._compares and before.table_id:
                write_lines(gone, self._former(before, rows, end, wanted), self.columns)
            write_lines(path, self._new(before, rows, end, wanted), self.columns)
        return RangeRead(read=wanted, files=files_of(wanted, folder, self.table.name))

    def confirm(self, positions: Positions) -> None:
        """Do nothing: the table keeps its rows."""

    def lag(self, positions: Positions) -> Lag:
        """Return whether there is another version to read; how many records it has is not known."""
        extent = self._extent(TablePosition.of(positions), self._at(self.table.version()))
        is_due = extent is not DeliveryExtent.NOTHING
        return Lag(records=None if is_due else 0, oldest=None, first_day=self.now().date())

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    @property
    def _compares(self) -> bool:
        """Whether rows of the former version are looked for."""
        return self.has_deletes or (self.with_former and not self.contract.append_only)

    def _at(self, version: int) -> DeliveryRows | None:
        """Return the rows of a version; None if there is no table."""
        if version < 0 or self.table.version() < 0:
            return None
        return DeliveryRows(contract=self.contract, table=(self.table, version), tombstones=None)

    def _is_readable(self, version: int) -> bool:
        rows = self._at(version)
        return rows is not None and rows.is_readable()

    def _extent(self, before: TablePosition, head: DeliveryRows | None) -> DeliveryExtent:
        """Return whether nothing, what is new, or every row is read."""
        if head is None:
            return DeliveryExtent.NOTHING
        if (position := before.as_of_sink) is None:
            # No record says what an earlier range had, so that all rows are new: they can be read in parts.
            return DeliveryExtent.NEW
        taken_out = rows_taken_out(head, position) if position.table_id == head.position.table_id else False
        extent = extent_of(position, Head(position=head.position, rows_taken_out=taken_out))
        if extent is not DeliveryExtent.NEW:
            return extent
        if self._compares and not self._is_readable(before.version):
            return DeliveryExtent.WHOLE
        return extent if self._has_news(before, head) else DeliveryExtent.NOTHING

    def _has_news(self, before: TablePosition, head: DeliveryRows) -> bool:
        """Return whether a newer version may have other rows: a compaction alone has none."""
        column = self.contract.batch_column
        assert column is not None  # a table without one is not followed
        newest = head.snapshot.maximum(column)
        if newest is not None and newest > before.version:
            return True
        if not self._compares:
            return False
        older = self._at(before.version)
        return older is None or set(older.snapshot.files()) != set(head.snapshot.files())

    def _until(self, before: TablePosition, head: DeliveryRows, max_records: int) -> tuple[int, bool]:
        """Return the version up to which rows are read, and whether they are sorted by version.

        It is the last one up to which there are at most so many rows, or the next one if that has more.
        """
        column, last = self.contract.batch_column, head.table[1]
        assert column is not None  # a table without one is not followed
        rows: Counter[int] = Counter()
        for batch in batches_of(head.table, [column], _above(column, before.version)):
            rows.update(batch.column(column).to_pylist())
        if rows.total() <= max_records:
            return last, True
        total, until = 0, last
        for version in sorted(rows):
            total += rows[version]
            if total > max_records:
                return (version, False) if until == last else (until, True)
            until = version
        return last, True

    def _new(
        self, before: TablePosition, rows: DeliveryRows, end: TablePosition, wanted: ReadRange
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, version by version."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        column = self.contract.batch_column
        assert column is not None  # a table without one is not followed
        found = rows.rows_where(_above(column, before.version) & (ds.field(column) <= end.version))
        if not wanted.details["sorted"]:
            yield from found
            return
        if not (batches := list(found)):
            return
        table = pa.Table.from_batches(batches)
        order = [(name, "ascending") for name in (column, *self.contract.merge_key)]
        yield from table.sort_by(order).to_batches()

    def _former(
        self, before: TablePosition, rows: DeliveryRows, end: TablePosition, wanted: ReadRange
    ) -> Iterator[pa.RecordBatch]:
        older = self._at(before.version)
        if older is None or not older.is_readable():
            raise self._lost(wanted)
        until = end.version if self.with_former else None
        stored = {field["name"] for field in older.snapshot.fields()}
        columns = [name for name in self.columns if name in stored]
        yield from former_rows(older, rows, columns, until=until)

    def _lost(self, wanted: ReadRange) -> SourceLost:
        first, last = TablePosition.of(wanted.begin).version, TablePosition.of(wanted.end).version
        return SourceLost(
            f"{self.table.name}: versions {first} to {last} were cleaned up while they were read",
            fix="run again: then all rows are compared with the accepted records",
            source=self.table.name,
            lost=f"{self.table.name}:{first}..{last}",
        )


def _above(column: str, version: int) -> Any:
    import pyarrow.dataset as ds

    return ds.field(column) > version
