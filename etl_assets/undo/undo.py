"""An undo, ready to be committed: what it does to each table, and in which order.

Belongs here: the values, and the commits. Does not belong here: what is removed and restored (`plan.py`), and
how it is shown (`cli/undo_preview.py`). Why it is done this way: docs/decisions/0015-undo.md.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from etl_assets.delta.write.content import StoredFile, day_in
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.delta.write.write_version import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.placement.domains import FailureDomain

Day = dt.date | None
"""A day of a table; None for the whole of a table without days."""
Domains = Callable[[str], FailureDomain]
"""Returns the failure domain in which a table, given by name, is worked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayChange:
    """Row counts of one day of a table, from file statistics.

    A row whose file is removed while another form of that file is restored counts in both `gone` and `back`.

    Attributes:
        day: The day.
        before: Rows before the undo.
        gone: Rows in files that are removed.
        back: Rows in files that are restored.
        kept: Rows in removed files that stay in the table.
    """

    day: Day
    before: int
    gone: int
    back: int
    kept: int

    @property
    def after(self) -> int:
        """Rows after the undo."""
        return self.before - self.gone + self.back + self.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRollback:
    """The undo of one table.

    Attributes:
        replacement: The commit.
        days: The days it undoes.
        before: The table's files before the undo.
    """

    replacement: Replacement
    days: tuple[Day, ...]
    before: tuple[StoredFile, ...]

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.replacement.table.name

    def changes(self) -> tuple[DayChange, ...]:
        """Return the row counts of each day to undo."""
        before, gone, back = (
            _rows_by_day(files)
            for files in (self.before, self.replacement.removed, self.replacement.restored)
        )
        kept: Counter[Day] = Counter()
        for rows in self.replacement.kept:
            kept[day_in(rows.partition)] += rows.rows.num_rows
        return tuple(
            DayChange(day=day, before=before[day], gone=gone[day], back=back[day], kept=kept[day])
            for day in self.days
        )

    def total(self) -> DayChange:
        """Return the row counts over all of these days."""
        sums = Counter[str]()
        for each in self.changes():
            sums.update(before=each.before, gone=each.gone, back=each.back, kept=each.kept)
        return DayChange(
            day=None, before=sums["before"], gone=sums["gone"], back=sums["back"], kept=sums["kept"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """An undo, ready to be committed.

    `tables` are in the order of the data path. Without tables there is nothing to do.
    """

    tables: tuple[TableRollback, ...]

    @property
    def days(self) -> tuple[dt.date, ...]:
        """The days to recompute."""
        days = {day for each in self.tables for day in each.days if day is not None}
        return tuple(sorted(days))

    def carry_out(
        self, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS, forwards: bool = False
    ) -> dict[str, int]:
        """Commit the undo.

        The last table of the data path is committed first. After a kill in between, the steps recompute the
        tables undone so far from those that still have the rows. The table named in the undo changes last, so
        that the same call starts over. An undo that puts tables back commits `forwards`: the steps recompute
        the tables it did not reach from those already put back.

        Returns:
            The new version of each table, by name.

        Raises:
            CommitConflict: a table was written in the meantime; nothing was changed.
            TableBusy: a table is being written; nothing was changed.
            FilesGone: files of the older version no longer exist.
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
