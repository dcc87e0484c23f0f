"""Changes that a step reads from another table: rows it has not consumed, or all rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.cursor import advance, days_with_news, read_cursors
from etl_assets.delta.read.footers import bounds_in
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.read.rows import files_with
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.offsets import first_since_undo
from etl_assets.delta.write.write import Transaction
from etl_assets.ingest.pending_plan import settled_version
from etl_assets.steps.step import ReadMode, platform_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_FOOTERS = 100
"""Most files whose footers are read for bounds: some tenths of a second. An increment has few files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of a table up to one version, as one step reads them.

    Attributes:
        source: The table.
        version: The version read, -1 if the table does not exist.
        days: The days with rows to read; the others have nothing new.
        cursors: The version consumed before, for each day that was asked for.
        mode: How the table is read.
        recreated: Whether the source was created again, so that its versions are lower than those consumed.
    """

    source: Table
    version: int
    days: tuple[dt.date, ...]
    cursors: Mapping[dt.date, int]
    mode: ReadMode
    recreated: bool = False

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a frame."""
        return self.source.read(spark, self.version, self._after)

    def rows_at_most(self) -> int | None:
        """Return the number of rows in the files to read, by file statistics; None if unknown."""
        if not self.days:
            return 0
        if (snapshot := self.source.snapshot(self.version)) is None:
            return None
        files = set(files_with(snapshot, self._after))
        found = [rows for path, rows in snapshot.rows_by_file() if path in files]
        return None if None in found else sum(rows for rows in found if rows is not None)

    def range_of(self, column: str) -> tuple[int, int] | None:
        """Return the lowest and highest value of a BIGINT column, by file statistics; None if unknown."""
        snapshot = self.source.snapshot(self.version)
        return None if snapshot is None else snapshot.range_of(column, set(files_with(snapshot, self._after)))

    def bounds_of(self, column: str) -> tuple[Any, Any] | None:
        """Return the lowest and highest value of a BIGINT or STRING column without statistics in the log.

        The bounds come from the footers of the data files. None if these do not say, or the files are too
        many.
        """
        snapshot = self.source.snapshot(self.version)
        if snapshot is None or not snapshot.is_plain:
            return None
        files = [self.source.path / file for file in files_with(snapshot, self._after)]
        return None if len(files) > _MAX_FOOTERS else bounds_in(files, column)

    def known_within(self, column: str, *, as_column: str) -> Within | None:
        """Return the range in which a downstream table has those of the rows read that it already stores.

        The downstream table stores the source's `column` as `as_column`. A row keeps the offset it was read
        with, so rows stored before lie between the lowest and highest offset of this reading. If the table
        has no rows in that range, all rows read are new, however far a cursor lags and whatever a retry
        repeats.

        This holds only for a source whose rows keep their offsets forever, such as a table of accepted
        records. Rows of a table made from it get new offsets when they are recomputed, and a backup of a
        downstream table may have them under the former (docs/decisions/0030-little-work-is-done-here.md).

        Returns:
            None if the table may have the rows anywhere, under other offsets. That is the case for a day that
            was never read: after a restore it may have rows of the time before the source was recomputed. It
            is the case for all days if the source alone was deleted. A reading of everything
            (`ReadMode.WHOLE`) also compares everything.
        """
        follows = self.mode is ReadMode.INCREMENTAL and not self.recreated
        if not follows or any(self.cursors[day] < 0 for day in self.days):
            return None
        found = self.range_of(column)
        return None if found is None else ({as_column: found},)

    def all_new_to(self, consumer: Snapshot) -> bool:
        """Return whether a downstream table has none of the rows read yet, judging by row counts alone.

        The table must have one row for each row of the source, under the same key. It has every row that was
        read before. If a day has exactly that many rows, it has no others, so none of this reading. Rows from
        before the source's last undo do not count as read (docs/decisions/0030-little-work-is-done-here.md,
        By counts): an undo restores rows with their former batch ids, which a cursor may have passed while
        they were out.

        Args:
            consumer: The table at the version that the commit of this reading follows.
        """
        source = self.source.snapshot(self.version)
        if source is None or self.recreated or not (source.is_plain and consumer.is_plain):
            return False
        read_before = source.rows_up_to(self._after, first_offset=first_since_undo(source))
        return all(rows == read_before[day] for day, rows in consumer.rows_by_day(self.days).items())

    @property
    def _after(self) -> Mapping[dt.date, int]:
        if self.mode is ReadMode.WHOLE:
            return dict.fromkeys(self.days, -1)
        return {day: self.cursors[day] for day in self.days}

    def consumed(self) -> tuple[Transaction | None, dict[str, int]]:
        """Return the transaction and the cursors for the commit of the rows read.

        A reading of everything has no transaction id of its source: it is requested on purpose, for instance
        after the code has changed, and must not be mistaken for one already committed.
        """
        transaction, cursors = advance(self.source.name, self.days, self.version)
        again = self.mode is ReadMode.WHOLE or self.recreated
        return (None if again else transaction), cursors


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRows:
    """Rows of a table that a step reads with one cursor for all days.

    Attributes:
        snapshot: The version of the table that is read.
        after: The batch id above which its rows are read; -1: all rows.
        transaction: Identity of the commit of the rows; None as for `Changes.consumed`.
        cursors: Cursors of the step's table after the commit.
    """

    snapshot: Snapshot
    after: int
    transaction: Transaction | None
    cursors: Mapping[str, int]


def read_new_rows(source: Table, consumer: Table, mode: ReadMode) -> NewRows | None:
    """Return what `consumer` has to read of all days, None for nothing. Reads logs only, starts no Spark."""
    version = source.version()
    snapshot = source.snapshot(version) if version >= 0 else None
    cursor = read_cursors(consumer, source.name, [None])[None] if mode is ReadMode.INCREMENTAL else -1
    # A cursor beyond the source's newest version belongs to an earlier table of that name.
    recreated = cursor > version
    cursor = -1 if recreated else cursor
    newest = None if snapshot is None else snapshot.maximum("batch_id")
    # Compare batch ids, not versions: a compaction makes a version without new rows.
    if snapshot is None or newest is None or newest <= cursor:
        return None
    transaction, cursors = advance(source.name, [None], version)
    again = recreated or mode is ReadMode.WHOLE
    return NewRows(
        snapshot=snapshot, after=cursor, transaction=None if again else transaction, cursors=cursors
    )


def read_changes(source: Table, consumer: Table, days: Sequence[dt.date], mode: ReadMode) -> Changes:
    """Return what `consumer` has to read of the days. Reads logs only, starts no Spark."""
    version = _version_to_read(source)
    cursors, recreated = dict.fromkeys(days, -1), False
    if mode is ReadMode.INCREMENTAL and version >= 0:
        known = read_cursors(consumer, source.name, days)
        # A cursor beyond the source's newest version belongs to an earlier table of that name: read
        # everything.
        cursors = {day: known[day] if known[day] <= version else -1 for day in days}
        recreated = any(cursor > version for cursor in known.values())
    found = days_with_news(source, version, cursors) if version >= 0 else ()
    return Changes(
        source=source, version=version, days=found, cursors=cursors, mode=mode, recreated=recreated
    )


def _version_to_read(source: Table) -> int:
    """Return the newest version whose rejects are final.

    Rejects of a batch whose rows are not committed yet are left out, because they may still be taken back.
    """
    stage = source.domain.catalog.rejects_of_source(source.name)
    if stage is None:
        return source.version()
    return settled_version(source, platform_table(stage.name, source.domain))


def pending_days(source: Table, consumer: Table, days: Collection[dt.date]) -> tuple[dt.date, ...]:
    """Return the days of which `consumer` has not consumed everything. Starts no Spark."""
    return read_changes(source, consumer, sorted(days), ReadMode.INCREMENTAL).days
