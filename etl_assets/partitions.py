"""Daily partitions: the days of arrival, in UTC, from the configured start through today."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping

import dagster as dg

MAX_DAYS_OF_SMALL_RUN = 366
"""Most days of a run, however small their files are: Dagster stores events for each day and asset."""


def daily_partitions(start: dt.date) -> dg.DailyPartitionsDefinition:
    """Return one partition per UTC day.

    Today has one: events are processed as they arrive, not a day later.
    """
    return dg.DailyPartitionsDefinition(start_date=start.isoformat(), end_offset=1, timezone="UTC")


def ranges(
    days: Iterable[dt.date],
    max_days: int,
    *,
    bridge_gaps: bool = False,
    sizes: Mapping[dt.date, int] | None = None,
    small_bytes: int = 0,
) -> Iterator[tuple[dt.date, dt.date]]:
    """Yield ranges of days (first, last), none longer than `max_days` unless its files are small.

    Args:
        days: Days in any order.
        max_days: Length of the longest range.
        bridge_gaps: Whether a range may include days that are not in `days`; otherwise it ends at a gap.
        sizes: Bytes to read of each day, where known.
        small_bytes: A range with no more bytes may have up to `MAX_DAYS_OF_SMALL_RUN` days, if all its days
            are in `sizes`.
    """
    known = sizes or {}
    first = last = None
    size = 0.0
    for day in sorted(set(days)):
        size += known.get(day, float("inf"))
        longest = max(max_days, MAX_DAYS_OF_SMALL_RUN) if size <= small_bytes else max_days
        if first is None or last is None:
            first = last = day
        elif (bridge_gaps or day - last == dt.timedelta(days=1)) and (day - first).days < longest:
            last = day
        else:
            yield first, last
            first = last = day
            size = known.get(day, float("inf"))
    if first is not None and last is not None:
        yield first, last
