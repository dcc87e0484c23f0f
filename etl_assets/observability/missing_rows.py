"""Rows of a day that a table lacks of what its input has, counted from file statistics: no Spark, no Dagster.

A table that has not read its input yet lacks nothing here: see `pending.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.tables import (
    NORMALIZED_ORDERS,
    NORMALIZED_ORDERS_EXCEPTIONS,
    RAW_EVENTS,
    WAREHOUSE_ROWS,
)
from etl_assets.delta.cursor import taken_back
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain

Rows = dict[str, int]
"""Rows by day, as text."""


def rows_by_day(domain: FailureDomain, table: str, *, outcome: str | None = None) -> Rows:
    """Rows of a table for each day, by file statistics."""
    snapshot = platform_table(table, domain).snapshot()
    if snapshot is None:
        return {}
    if outcome is None:
        return {day: rows for (day,), rows in snapshot.rows_by("partition_date").items()}
    by_outcome = snapshot.rows_by("partition_date", "outcome")
    return {day: rows for (day, found), rows in by_outcome.items() if found == outcome}


def not_normalized(domain: FailureDomain, *, unread: Collection[str] | None = None) -> Rows:
    """Raw events by day that are neither normalized nor refused; negative where more are normalized than there are.

    Days that wait to be made again after an undo are left out. An event that was refused and later replayed counts twice.

    Args:
        domain: Where to look.
        unread: Days of which normalized_orders has not read everything, left out as well; None where that is not known: then
            only days that have been normalized at all are compared.
    """
    raw = rows_by_day(domain, RAW_EVENTS.name)
    normalized = rows_by_day(domain, NORMALIZED_ORDERS.name)
    refused = rows_by_day(domain, NORMALIZED_ORDERS_EXCEPTIONS.name, outcome=Outcome.REJECTED.value)
    read = {*normalized, *refused} if unread is None else raw.keys() - unread
    known = (raw.keys() & read) - taken_back(
        platform_table(NORMALIZED_ORDERS.name, domain), platform_table(RAW_EVENTS.name, domain)
    )
    missing = {day: raw[day] - normalized.get(day, 0) - refused.get(day, 0) for day in known}
    too_many = {day: normalized.get(day, 0) - raw.get(day, 0) for day in normalized}
    return {day: n for day, n in missing.items() if n > 0} | {d: -n for d, n in too_many.items() if n > 0}


def not_committed(domain: FailureDomain, *, unread: Collection[str] | None = None) -> Rows:
    """Normalized events by day that are no warehouse row, negative where there are more of these. As `not_normalized`."""
    normalized = rows_by_day(domain, NORMALIZED_ORDERS.name)
    committed = rows_by_day(domain, WAREHOUSE_ROWS.name)
    read = committed.keys() if unread is None else {*normalized, *committed}.difference(unread)
    known = read - taken_back(
        platform_table(WAREHOUSE_ROWS.name, domain), platform_table(NORMALIZED_ORDERS.name, domain)
    )
    counted = {day: normalized.get(day, 0) - committed.get(day, 0) for day in known}
    return {day: rows for day, rows in counted.items() if rows}
