"""Rows of a day that a table lacks compared with its input.

They are counted from file statistics: no Spark, no Dagster.

A table that has not read its input yet lacks nothing here: see `observability/days_behind.py`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.log.cursor import taken_back
from etl_assets.orders.tables.exceptions import NORMALIZED_ORDERS_EXCEPTIONS
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.steps.changes import pending_days
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain

Rows = dict[str, int]
"""Number of rows by day; days are ISO text."""


def rows_by_day(domain: FailureDomain, table: str, *, outcome: str | None = None) -> Rows:
    """Return the rows of a table for each day, by file statistics."""
    snapshot = platform_table(table, domain).snapshot()
    if snapshot is None:
        return {}
    if outcome is None:
        return {day: rows for (day,), rows in snapshot.rows_by("partition_date").items()}
    by_outcome = snapshot.rows_by("partition_date", "outcome")
    return {day: rows for (day, found), rows in by_outcome.items() if found == outcome}


def not_normalized(domain: FailureDomain) -> Rows:
    """Return the raw events by day that are neither normalized nor rejected.

    A number is negative if more events are normalized than exist.

    Counts days that normalized_orders has read and that do not wait to be recomputed after an undo. An event
    that was rejected and later replayed counts twice.
    """
    raw = rows_by_day(domain, RAW_EVENTS.name)
    normalized = rows_by_day(domain, NORMALIZED_ORDERS.name)
    refused = rows_by_day(domain, NORMALIZED_ORDERS_EXCEPTIONS.name, outcome=Outcome.REJECTED.value)
    read = _read_days(domain, NORMALIZED_ORDERS.name, RAW_EVENTS.name, raw)
    missing = {day: raw[day] - normalized.get(day, 0) - refused.get(day, 0) for day in read}
    too_many = {day: normalized.get(day, 0) - raw.get(day, 0) for day in normalized}
    return {day: n for day, n in missing.items() if n > 0} | {d: -n for d, n in too_many.items() if n > 0}


def not_committed(domain: FailureDomain) -> Rows:
    """Return the normalized events by day without a warehouse row; negative if there are more warehouse rows.

    Counts days that warehouse_rows has read and that do not wait to be recomputed after an undo.
    """
    normalized = rows_by_day(domain, NORMALIZED_ORDERS.name)
    committed = rows_by_day(domain, WAREHOUSE_ROWS.name)
    days = {*normalized, *committed}
    read = _read_days(domain, WAREHOUSE_ROWS.name, NORMALIZED_ORDERS.name, days)
    counted = {day: normalized.get(day, 0) - committed.get(day, 0) for day in read}
    return {day: rows for day, rows in counted.items() if rows}


def _read_days(domain: FailureDomain, table: str, source: str, days: Iterable[str]) -> set[str]:
    """Return the days of which a table has consumed its whole source.

    Runs under way or killed make no difference.
    """
    reader, read = platform_table(table, domain), platform_table(source, domain)
    of_source = sorted(dt.date.fromisoformat(day) for day in days)
    unread = {day.isoformat() for day in pending_days(read, reader, of_source)}
    return {day.isoformat() for day in of_source} - unread - taken_back(reader, read)
