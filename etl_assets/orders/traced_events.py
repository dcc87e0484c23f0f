"""Events of one trace, accepted or refused, found by its id. No JVM."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from etl_assets.observability.rows import find_rows
from etl_assets.observability.traced_records import MOST_RECORDS, TracedRecord
from etl_assets.orders.tables.exceptions import NORMALIZED_ORDERS_EXCEPTIONS, RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain

_TIME_AND_DOMAIN = {
    RAW_EVENTS.name: ("ingested_at", "ingest_domain"),
    RAW_EVENTS_EXCEPTIONS.name: ("failed_at", "domain"),
    NORMALIZED_ORDERS_EXCEPTIONS.name: ("failed_at", "domain"),
}
"""Tables that have the trace of an event, with their columns for when and where it was seen."""


def find_traced_events(domain: FailureDomain, trace_id: str) -> Iterator[TracedRecord]:
    """Yield the events of a trace that have an id, each once."""
    told: set[str] = set()
    for table, (at, of_domain) in _TIME_AND_DOMAIN.items():
        columns = ("event_id", "source_position", at, of_domain)
        found = find_rows(platform_table(table, domain), columns=columns, where={"trace_id": [trace_id]})
        for row in islice(found, MOST_RECORDS):
            if row["event_id"] is not None and row["event_id"] not in told:
                told.add(row["event_id"])
                yield TracedRecord(
                    pipeline="orders",
                    record_id=row["event_id"],
                    at=row[at],
                    origin=row["source_position"],
                    domain=row[of_domain],
                )
