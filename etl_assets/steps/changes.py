"""What a step reads of another table: the rows of its days that it has not consumed, or all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.delta.commit import Transaction
from etl_assets.delta.cursor import advance, days_with_news, read_cursors
from etl_assets.delta.footers import bounds_in
from etl_assets.delta.offsets import first_since_undo
from etl_assets.delta.range_predicate import Within
from etl_assets.delta.rows import files_with
from etl_assets.delta.table import Snapshot, Table
from etl_assets.ingest.pending_plan import settled_version
from etl_assets.steps.step import ReadMode, platform_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_FOOTERS = 100
"""Footers of so many files are read in some tenths of a second; an increment has few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """A reading of a table at one version.

    Attributes:
        source: The table.
        version: The version read, -1 if the table does not exist.
        days: The days there is something to read of; the others have nothing new.
        cursors: For each of them the version consumed before.
        mode: How it is read.
        recreated: The source was made anew, so that its versions are lower than those consumed.
    """

    source: Table
    version: int
    days: tuple[dt.date, ...]
    cursors: Mapping[dt.date, int]
    mode: ReadMode
    recreated: bool = False

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows."""
        return self.source.read(spark, self.version, self._after)

    def range_of(self, column: str) -> tuple[int, int] | None:
        """Between which values of a BIGINT column they lie, by file statistics; None where these do not tell."""
        snapshot = self.source.snapshot(self.version)
        return None if snapshot is None else snapshot.range_of(column, set(files_with(snapshot, self._after)))

    def bounds_of(self, column: str) -> tuple[Any, Any] | None:
        """The same of a BIGINT or STRING column that the log has no statistics of, from the footers of the data files."""
        snapshot = self.source.snapshot(self.version)
        if snapshot is None or not snapshot.is_plain:
            return None
        files = [self.source.path / file for file in files_with(snapshot, self._after)]
        return None if len(files) > _MAX_FOOTERS else bounds_in(files, column)

    def known_within(self, column: str, *, as_column: str) -> Within | None:
        """Where a table that is made of the source, and keeps its `column` as `as_column`, has those of them that it has.

        A row stands there under the very offset it was read with. So those that were read before are between the lowest and
        the highest offset of this reading, and where the table has nothing there, all are new: however far a cursor lags, and
        whatever is repeated after a kill. That holds for a source whose rows keep their offsets for ever, as those of
        raw_events do; rows of normalized_orders are dealt new ones when they are made again, and a backup of a later table
        may have them under the former.

        Returns:
            None where the table may have them anywhere, under other offsets: a day that was never read, as after a
            restore, may have come back with rows of the time before the source was made again; so may all days if the
            source was deleted alone; and who asks for the whole wants to be sure.
        """
        follows = self.mode is ReadMode.INCREMENTAL and not self.recreated
        if not follows or any(self.cursors[day] < 0 for day in self.days):
            return None
        found = self.range_of(column)
        return None if found is None else ({as_column: found},)

    def all_new_to(self, consumer: Snapshot) -> bool:
        """Whether a table that has a row for each row read, known by the same key, has none of this reading yet: by counts.

        Of each day it has what was read before. If it has just as many rows, it has no others, so none that is read now.
        Rows that the source had before its last undo do not count as read: those brought back have the batch ids that they
        had, which a cursor of a reader that was set back as well may have passed while they were out
        (docs/decisions/0030-little-work-is-done-here.md).

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
        """Transaction and cursors for the commit of what was read.

        A reading of the whole has no transaction id of its source: it is asked for again on purpose, for instance
        after the code has changed, and must not be taken for one already done.
        """
        transaction, cursors = advance(self.source.name, self.days, self.version)
        again = self.mode is ReadMode.WHOLE or self.recreated
        return (None if again else transaction), cursors


def read_changes(source: Table, consumer: Table, days: Sequence[dt.date], mode: ReadMode) -> Changes:
    """What `consumer` has to read of the days. Looks at logs only, starts no Spark."""
    version = _version_to_read(source)
    cursors, recreated = dict.fromkeys(days, -1), False
    if mode is ReadMode.INCREMENTAL and version >= 0:
        known = read_cursors(consumer, source.name, days)
        # A cursor beyond the source's newest version is of an earlier table of that name: everything is read again.
        cursors = {day: known[day] if known[day] <= version else -1 for day in days}
        recreated = any(cursor > version for cursor in known.values())
    found = days_with_news(source, version, cursors) if version >= 0 else ()
    return Changes(
        source=source, version=version, days=found, cursors=cursors, mode=mode, recreated=recreated
    )


def _version_to_read(source: Table) -> int:
    """The newest version, but for what a batch has refused whose rows are not committed: it may be taken back."""
    stage = source.domain.catalog.rejects_of_source(source.name)
    if stage is None:
        return source.version()
    return settled_version(source, platform_table(stage.name, source.domain))


def pending_days(source: Table, consumer: Table, days: Collection[dt.date]) -> tuple[dt.date, ...]:
    """Those of the days of which `consumer` has not consumed everything. Starts no Spark."""
    return read_changes(source, consumer, sorted(days), ReadMode.INCREMENTAL).days
