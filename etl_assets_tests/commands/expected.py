"""What the tables of a small installation hold, whichever commands wrote them.

Belongs here: the landing files of these tests, and tables in a form that two installations can be compared
by.
"""

from __future__ import annotations

import json
from typing import Any

from etl_assets_tests.commands.home import Home

DAY, NEXT_DAY = "2026-02-02", "2026-02-03"
TABLES = (
    "customers",
    "raw_events_exceptions",
    "raw_events",
    "normalized_orders_exceptions",
    "normalized_orders",
    "dead_letters",
    "warehouse_rows",
    "audit_log",
    "order_status_view",
)
"""In the order in which a run commits them."""

OF_THE_HOUR = frozenset({"batch_id", "ingested_at", "committed_at", "recorded_at", "failed_at", "updated_at"})
"""Columns that say with which commit and when a row came."""
OF_THE_NORMALIZATION = frozenset({"normalized_offset", "last_offset", "last_event_id"})
"""Columns that an undo changes: what is normalized again gets other offsets."""


def event(number: int, day: str = DAY, **other: Any) -> dict[str, Any]:
    """An event that every stage takes."""
    return {
        "event_id": f"event-{number}",
        "tenant_id": "acme",
        "aggregate_id": f"order-{number % 3}",
        "event_type": "OrderCreated",
        "payload": {"customer_id": f"customer-{number % 2}", "amount": f"{number}.50", "currency": "EUR"},
        "timestamp": f"{day}T10:00:{number:02d}Z",
        "schema_version": 1,
        **other,
    }


REFUSED_AMOUNT = event(5, payload={"customer_id": "customer-1", "amount": "-1"})
"""A dead letter of normalize."""
UNREADABLE = '{"event_id": "cut'
"""A dead letter of ingest."""


def land(home: Home, *, days: int = 2) -> Home:
    """Landing files with every outcome, and reference data."""
    paid = event(6, event_type="PaymentProcessed", payload={"amount": 3})
    conflict = event(2, tenant_id="another")
    first = [event(1), event(1), event(2), conflict, UNREADABLE, REFUSED_AMOUNT, paid]
    home.land(DAY, "a.jsonl", lines(*first))
    if days > 1:
        unknown = event(8, NEXT_DAY, event_type="Unheard")
        home.land(NEXT_DAY, "a.jsonl", lines(event(1), event(7, NEXT_DAY), unknown))
    (home.landing / "_reference").mkdir(exist_ok=True)
    (home.landing / "_reference" / "customers.csv").write_text(
        "customer_id,customer_region\ncustomer-1,north\n", "utf-8"
    )
    return home


def lines(*records: dict[str, Any] | str) -> str:
    """Records as lines."""
    return "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in records)


def tables(home: Home, *, undone: bool = False, root: str = "data") -> dict[str, list[str]]:
    """The content of every table, in an order of its own.

    Args:
        home: The installation.
        undone: Whether days were taken back and made again, so that offsets of normalized_orders tell
            nothing.
        root: The root of the domain that is read.
    """
    return {name: sorted(_shown(name, row, undone) for row in home.rows(name, root=root)) for name in TABLES}


def _shown(table: str, row: dict[str, Any], undone: bool) -> str:
    left_out = OF_THE_HOUR | (OF_THE_NORMALIZATION if undone else frozenset())
    if undone and table == "normalized_orders":
        left_out |= {"offset"}
    if undone and table == "audit_log":
        left_out |= {"offset"} if row["stage"] == "normalize" else set()
        left_out |= {"offset", "source_position"} if row["stage"] == "commit" else set()
    domain = frozenset({"domain", "ingest_domain", "transform_domain", "sink_domain"})
    return repr({key: value for key, value in row.items() if key not in left_out | domain})
