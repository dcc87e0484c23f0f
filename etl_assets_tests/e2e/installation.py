"""What tests of the UI put into an installation and look for in it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

TODAY = dt.datetime.now(dt.UTC).date()
FIRST, SECOND = TODAY - dt.timedelta(days=2), TODAY - dt.timedelta(days=1)


def land(home: Path, day: dt.date, lines: int) -> None:
    folder = home / "landing" / day.isoformat()
    folder.mkdir(parents=True)
    text = "".join(json.dumps(_event(day, number)) + "\n" for number in range(lines))
    (folder / "a.jsonl").write_text(text)


def rows_by_day(home: Path) -> dict[str, int]:
    """Rows of raw_events by day, read by delta-rs."""
    from deltalake import DeltaTable

    (table,) = (home / "data" / "tables" / "raw_events").glob("g*")
    days = DeltaTable(str(table)).to_pyarrow_dataset().to_table(columns=["partition_date"])["partition_date"]
    counts = {str(each["values"]): each["counts"] for each in days.value_counts().to_pylist()}
    return dict(sorted(counts.items()))


def _event(day: dt.date, number: int) -> dict[str, object]:
    return {
        "event_id": f"{day}-{number}",
        "tenant_id": "acme",
        "aggregate_id": f"order-{number}",
        "event_type": "OrderCreated",
        "payload": {"customer_id": "c", "amount": "12.50", "currency": "EUR"},
        "timestamp": f"{day}T10:00:00Z",
        "schema_version": 1,
    }
