"""How far a table has read another: cursors kept in the reading table's own commits.

A cursor is a version of the source table: every row with a `batch_id` up to it has been consumed. `batch_id` is the
Delta version that wrote the row, so what is new for a day is `batch_id > cursor`, and whether anything is new is
answered by file statistics, without Spark.

An undo sets cursors back: its commit names all that are remembered, and older commits are not looked at any more.

A commit advances its cursors in two ways: for one (source, day) by its transaction id, which lasts as long as the
table, and for any number by a map in its user metadata, which lasts as long as the log entry. A cursor that is lost
lags: rows are read again and change nothing. It never leads.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from etl_assets.delta.commit import Transaction
from etl_assets.delta.log import recent_user_metadata
from etl_assets.delta.replacement import UNDO

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

ALL_DAYS = "*"
REMEMBERED_COMMITS = 100
"""How many commits back the maps in user metadata are looked at."""


def cursor_name(source: str, day: dt.date | None) -> str:
    """Name of the cursor on a source's day, or on the whole source."""
    return f"{source}/{ALL_DAYS if day is None else day.isoformat()}"


def read_cursors(
    table: Table, source: str, days: Collection[dt.date | None], version: int | None = None
) -> dict[dt.date | None, int]:
    """For each day the source version up to which `table` has consumed it, -1 for not at all.

    `None` among the days asks for the cursor on the whole source; a day's cursor is never behind that. `version` is one
    of the table's, default its newest.
    """
    snapshot = table.snapshot(version)
    if snapshot is None:
        return dict.fromkeys(days, -1)
    remembered = remembered_cursors(table, snapshot.version)

    def known(day: dt.date | None) -> int:
        name = cursor_name(source, day)
        return max(snapshot.transaction_version(name), remembered.get(name, -1))

    whole = known(None)
    return {day: max(whole, known(day)) for day in days}


def remembered_cursors(table: Table, version: int) -> dict[str, int]:
    """The cursors in user metadata up to a version of the table: since the last undo, with those it set back at -1."""
    remembered: dict[str, int] = {}
    for metadata in recent_user_metadata(table.path, version, REMEMBERED_COMMITS):
        for name, cursor in (metadata.get("cursors") or {}).items():
            remembered[name] = max(remembered.get(name, -1), cursor)
        if UNDO in metadata:
            break
    return remembered


def taken_back(table: Table, source: str) -> frozenset[str]:
    """What an undo took out of `table` and no run has made again: days of the source, or `*`. Known as long as the undo
    is among the commits remembered.
    """
    snapshot = table.snapshot()
    if snapshot is None:
        return frozenset()
    waiting = (
        name
        for name, cursor in remembered_cursors(table, snapshot.version).items()
        if max(cursor, snapshot.transaction_version(name)) < 0
    )
    return frozenset(day for of, _, day in (name.partition("/") for name in waiting) if of == source)


def days_with_news(source: Table, version: int, cursors: Mapping[dt.date, int]) -> tuple[dt.date, ...]:
    """The days among `cursors` for which the source has rows that its reader has not consumed. Starts no Spark."""
    snapshot = source.snapshot(version)
    newest = {} if snapshot is None else snapshot.newest_batch_by_day()
    return tuple(day for day, cursor in sorted(cursors.items()) if newest.get(day, -1) > cursor)


def advance(
    source: str, days: Collection[dt.date | None], version: int
) -> tuple[Transaction | None, dict[str, int]]:
    """Transaction and cursor map for a commit that has consumed `days` of a source up to `version`."""
    cursors = {cursor_name(source, day): version for day in days}
    if len(cursors) != 1:
        return None, cursors
    return Transaction(app_id=next(iter(cursors)), version=version), cursors
