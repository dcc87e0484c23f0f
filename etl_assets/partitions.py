"""Daily partitions: the days of arrival, in UTC, from the configured start through today."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

import dagster as dg


def daily_partitions(start: dt.date) -> dg.DailyPartitionsDefinition:
    """Return one partition per UTC day.

    Today has one: events are processed as they arrive, not a day later.
    """
    return dg.DailyPartitionsDefinition(start_date=start.isoformat(), end_offset=1, timezone="UTC")


def ranges(
    days: Iterable[dt.date], max_days: int, *, bridge_gaps: bool = False
) -> Iterator[tuple[dt.date, dt.date]]:
    """Yield ranges of days (first, last), none longer than `max_days`.

    Args:
        days: Days in any order.
        max_days: Length of the longest range.
        bridge_gaps: Whether a range may include days that are not in `days`; otherwise it ends at a gap.
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
