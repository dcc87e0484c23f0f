"""An undo, ready to be carried out: what it does to each table, and in which order.

Belongs here: the values, and the commits. Does not belong here: what goes and what comes back (`plan.py`), and how it is
shown (`cli/undo_preview.py`). Why it is done this way: docs/decisions/0015-undo.md.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from etl_assets.delta.commit import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.delta.content import StoredFile
from etl_assets.delta.replacement import Replacement, replace_contents
from etl_assets.placement.domains import FailureDomain

Day = dt.date | None
"""A day of a table; None for all of one that has no days."""
Domains = Callable[[str], FailureDomain]
"""Says in which failure domain a table is worked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayChange:
    """Rows of one day of a table, from file statistics: `kept` are among those that go with their files, and stay.

    A row in a file that is only there in another form on the other side counts as gone and as come back.
    """

    day: Day
    before: int
    gone: int
    back: int
    kept: int

    @property
    def after(self) -> int:
        """Rows once it is done."""
        return self.before - self.gone + self.back + self.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRollback:
    """What an undo does to one table.

    Attributes:
        replacement: The commit.
        days: Days it is about.
        before: The table's files by now.
    """

    replacement: Replacement
    days: tuple[Day, ...]
    before: tuple[StoredFile, ...]

    @property
    def name(self) -> str:
        """The table's name."""
        return self.replacement.table.name

    def changes(self) -> tuple[DayChange, ...]:
        """Its rows by day, of the days it is about."""
        before, gone, back = (
            _rows_by_day(files)
            for files in (self.before, self.replacement.removed, self.replacement.restored)
        )
        kept: Counter[Day] = Counter()
        for rows in self.replacement.kept:
            day = rows.partition.get("partition_date")
            kept[None if day is None else dt.date.fromisoformat(day)] += rows.rows.num_rows
        return tuple(
            DayChange(day=day, before=before[day], gone=gone[day], back=back[day], kept=kept[day])
            for day in self.days
        )

    def total(self) -> DayChange:
        """Its rows over all of these days."""
        sums = Counter[str]()
        for each in self.changes():
            sums.update(before=each.before, gone=each.gone, back=each.back, kept=each.kept)
        return DayChange(
            day=None, before=sums["before"], gone=sums["gone"], back=sums["back"], kept=sums["kept"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """An undo, ready to be carried out. `tables` are in the order of the data path; none: there is nothing to do."""

    tables: tuple[TableRollback, ...]

    @property
    def days(self) -> tuple[dt.date, ...]:
        """The days that are to be made again."""
        days = {day for each in self.tables for day in each.days if day is not None}
        return tuple(sorted(days))

    def carry_out(
        self, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS, forwards: bool = False
    ) -> dict[str, int]:
        """Commit it; the new version of each table by name.

        The end of the path goes first. Killed in between, what has gone is made again from what has not, as it was; the
        table that the undo is about changes last, so that the same call begins again. What puts tables back goes
        `forwards`: what it has not come to is made again from what is back.

        Raises:
            CommitConflict: a table was written meanwhile; nothing was changed.
            TableBusy: a table is being written; nothing was changed.
            FilesGone: files of the older version are not there any more.
        """
        ordered = [each.replacement for each in self.tables]
        if not forwards:
            ordered.reverse()
        versions = replace_contents(ordered, wait_seconds=wait_seconds)
        return {each.table.name: version for each, version in zip(ordered, versions, strict=True)}


def _rows_by_day(files: Sequence[StoredFile]) -> Counter[Day]:
    rows: Counter[Day] = Counter()
    for file in files:
        rows[file.day] += file.rows
    return rows
