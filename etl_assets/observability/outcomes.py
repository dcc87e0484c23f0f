"""Outcomes by day, from file statistics alone: no Spark, no rows read."""

from __future__ import annotations

from collections import Counter

from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.table import Table
from etl_assets.orders.tables.exceptions import RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.placement.domains import FailureDomain


def outcomes_by_day(domain: FailureDomain, *, newest: int | None = None) -> dict[str, Counter[str]]:
    """Return the number of records by outcome at ingest, for each day of arrival.

    Outcomes: accepted, duplicate, conflict and rejected.

    Args:
        domain: Failure domain of the tables.
        newest: Number of newest days to return; None returns all.
    """
    counts: dict[str, Counter[str]] = {}
    accepted = Table(name=RAW_EVENTS.name, domain=domain, contract=RAW_EVENTS).snapshot()
    if accepted is not None:
        for (day,), rows in accepted.rows_by("partition_date").items():
            counts.setdefault(day, Counter())[Outcome.ACCEPTED.value] += rows
    exceptions = Table(
        name=RAW_EVENTS_EXCEPTIONS.name, domain=domain, contract=RAW_EVENTS_EXCEPTIONS
    ).snapshot()
    if exceptions is not None:
        for (day, outcome), rows in exceptions.rows_by("partition_date", "outcome").items():
            counts.setdefault(day, Counter())[outcome] += rows
    days = sorted(counts)
    return {day: counts[day] for day in (days if newest is None else days[-newest:])}
