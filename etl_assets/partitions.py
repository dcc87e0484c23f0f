"""Daily partitions: the days of arrival, in UTC, from the configured start up to and including today."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

import dagster as dg


def daily_partitions(start: dt.date) -> dg.DailyPartitionsDefinition:
    """One partition a UTC day. Today has one: events are wanted while they arrive, not a day later."""
    return dg.DailyPartitionsDefinition(start_date=start.isoformat(), end_offset=1, timezone="UTC")


def ranges(
    days: Iterable[dt.date], max_days: int, *, bridge_gaps: bool = False
) -> Iterator[tuple[dt.date, dt.date]]:
    """Cut days into ranges (first, last), none longer than `max_days`.

    Args:
        days: In any order.
        max_days: Length of the longest range.
        bridge_gaps: A range may hold days that are not asked for; else it ends where a day is left out.
    """
    first = last = None
    for day in sorted(set(days)):
        if first is None or last is None:
            first = last = day
        elif (bridge_gaps or day - last == dt.timedelta(days=1)) and (day - first).days < max_days:
            last = day
        else:
            yield first, last
            first = last = day
    if first is not None and last is not None:
        yield first, last
