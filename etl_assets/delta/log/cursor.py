"""Cursors: how far a table has read another one, kept in the reading table's own commits.

A cursor is a version of the source table: every row with a `batch_id` up to it has been consumed. `batch_id`
is the Delta version that wrote the row. So a day's new rows are those with `batch_id > cursor`, and file
statistics show whether there are any, without Spark.

A cursor is a transaction id of the reading table, and lasts as long as the table. Delta's own writer takes
only one such id per commit. The other cursors of such a commit are in its user metadata until the next entry
makes them transaction ids (`commit.py`). A cursor may lag: rows are then read again and change nothing. It
never leads.

An undo sets cursors back to -1.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from etl_assets.delta.log.lasting_cursors import remembered_cursors
from etl_assets.delta.write.write import Transaction

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

ALL_DAYS = "*"


def cursor_name(source: str, day: dt.date | None) -> str:
    """Return the name of the cursor on a source's day, or on the whole source if `day` is None."""
    return f"{source}/{ALL_DAYS if day is None else day.isoformat()}"


def read_cursors(
    table: Table, source: str, days: Collection[dt.date | None], version: int | None = None
) -> dict[dt.date | None, int]:
    """Return, for each day, the source version up to which `table` has consumed it, -1 for none.

    `None` among the days asks for the cursor on the whole source; a day's cursor is never behind that one.
    `version` is a version of `table`, by default its newest.
    """
    snapshot = table.snapshot(version)
    if snapshot is None:
        return dict.fromkeys(days, -1)
    names = {day: cursor_name(source, day) for day in (*days, None)}
    remembered = remembered_cursors(table, snapshot.version)
    lasting = snapshot.transaction_versions(names.values())
    known = {day: max(lasting.get(name, -1), remembered.get(name, -1)) for day, name in names.items()}
    return {day: max(known[None], known[day]) for day in days}


def taken_back(table: Table, source: Table) -> frozenset[str]:
    """Return the days of the source, or `*`, that an undo removed and no run has recomputed since."""
    snapshot, of_source = table.snapshot(), source.snapshot()
    if snapshot is None:
        return frozenset()
    remembered = remembered_cursors(table, snapshot.version)
    filled = {} if of_source is None else of_source.rows_by("partition_date")
    prefix = cursor_name(source.name, None).removesuffix(ALL_DAYS)
    names = {prefix + day for day in (ALL_DAYS, *(day for (day,) in filled))}
    names |= {name for name in remembered if name.startswith(prefix)}
    lasting = snapshot.transaction_versions(names)

    def is_set_back(name: str) -> bool:
        said = [cursors[name] for cursors in (remembered, lasting) if name in cursors]
        return bool(said) and max(said) < 0

    return frozenset(name.removeprefix(prefix) for name in names if is_set_back(name))


def days_with_news(source: Table, version: int, cursors: Mapping[dt.date, int]) -> tuple[dt.date, ...]:
    """Return the days among `cursors` whose source rows the reader has not all consumed. Starts no Spark."""
    snapshot = source.snapshot(version)
    newest = {} if snapshot is None else snapshot.newest_batch_by_day()
    return tuple(day for day, cursor in sorted(cursors.items()) if newest.get(day, -1) > cursor)


def advance(
    source: str, days: Collection[dt.date | None], version: int
) -> tuple[Transaction | None, dict[str, int]]:
    """Return the transaction and the cursors of a commit that consumed `days` of a source up to `version`.

    A single cursor serves as the transaction; several do not, and the transaction is None.
    """
    cursors = {cursor_name(source, day): version for day in days}
    if len(cursors) != 1:
        return None, cursors
    return Transaction(app_id=next(iter(cursors)), version=version), cursors
