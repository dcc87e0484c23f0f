"""What is waiting: days with unread landing files, and days that a table has not taken over from its inputs. No Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING

from etl_assets.contracts.tables import (
    DEAD_LETTERS,
    ORDER_STATUS_VIEW,
    RAW_EVENTS,
    RAW_EVENTS_EXCEPTIONS,
    WAREHOUSE_ROWS,
)
from etl_assets.contracts.tables.exceptions import EXCEPTIONS_TABLES
from etl_assets.delta.cursor import read_cursors
from etl_assets.placement.policy import Stage
from etl_assets.sources.ledger import Ledger
from etl_assets.sources.watch import WatchCursor, Watched, watch
from etl_assets.steps.changes import read_changes
from etl_assets.steps.data_path import source_folders
from etl_assets.steps.inputs import INPUTS
from etl_assets.steps.pending_plan import pending_plan
from etl_assets.steps.placing import place
from etl_assets.steps.step import ReadMode, platform_table

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings

_EVERY_DAY = 1_000_000
_DAY_COLUMN = "partition_date"


def unread(settings: Settings, *, now: dt.datetime, settle_seconds: float) -> Watched:
    """Every partition with closed, unread files, and what else a look at the landing folder tells."""
    domain = place(settings.placement(), Stage.INGEST, RAW_EVENTS.name)
    return watch(
        source_folders(settings, domain),
        Ledger.of(platform_table(RAW_EVENTS.name, domain)),
        WatchCursor(),
        first_day=settings.start_date,
        now=now,
        settle_seconds=settle_seconds,
        most_days=_EVERY_DAY,
    )


def unread_days(settings: Settings, *, now: dt.datetime, settle_seconds: float) -> tuple[dt.date, ...]:
    """Every partition with closed, unread files."""
    return unread(settings, now=now, settle_seconds=settle_seconds).ready


def days_behind(domain: FailureDomain, first_day: dt.date) -> dict[str, tuple[dt.date, ...]]:
    """By table the days of its inputs, from the first partition on, that it has not consumed; tables that are up to date
    are left out.

    So a run that was killed between two tables is known by what it left, whoever it was and whatever Dagster knows of it.
    """
    inputs = {name: platform_table(name, domain) for names in INPUTS.values() for name in names}
    days = sorted({day for table in inputs.values() for day in _days_of(table) if day >= first_day})
    # A batch that was not ended is no input of another table; its step carries it out, or takes back what it refused.
    left = pending_plan(inputs[RAW_EVENTS_EXCEPTIONS.name], inputs[RAW_EVENTS.name])
    of_left = () if left is None else tuple(day for day in left.plan.days if day >= first_day)
    found = {RAW_EVENTS.name: of_left} | {
        name: _behind(platform_table(name, domain), inputs, days) for name in INPUTS
    }
    return {name: behind for name, behind in found.items() if behind}


def _behind(table: Table, inputs: dict[str, Table], days: list[dt.date]) -> tuple[dt.date, ...]:
    if table.name == ORDER_STATUS_VIEW.name:
        return tuple(day for day in _behind_as_a_whole(table, inputs[WAREHOUSE_ROWS.name]) if day in days)
    news = {
        name: read_changes(inputs[name], table, days, ReadMode.INCREMENTAL).days
        for name in INPUTS[table.name]
    }
    concerned = {day for found in news.values() for day in found}
    if table.name == DEAD_LETTERS.name:
        # A day on which nothing was refused has no letters, and leaves no cursor.
        refused = {day for contract in EXCEPTIONS_TABLES for day in news[contract.name]}
        concerned &= refused | set(_days_of(table))
    return tuple(sorted(concerned))


def _behind_as_a_whole(table: Table, source: Table) -> tuple[dt.date, ...]:
    """The days that a table without days has not consumed of its source: its one cursor is on the whole of that."""
    version, snapshot = source.version(), source.snapshot()
    if snapshot is None:
        return ()
    cursor = read_cursors(table, source.name, [None])[None]
    newest = snapshot.newest_batch_by_day()
    return tuple(sorted(day for day, batch in newest.items() if cursor > version or batch > cursor))


def _days_of(table: Table) -> Iterable[dt.date]:
    snapshot = table.snapshot()
    return (
        () if snapshot is None else (dt.date.fromisoformat(day) for (day,) in snapshot.rows_by(_DAY_COLUMN))
    )
