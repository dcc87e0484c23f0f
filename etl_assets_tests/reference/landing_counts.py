"""What a landing folder holds, read line by line in plain Python: what ingest and normalize must arrive at.

Shares no code with the platform. Belongs here: judging lines in source order (day, file name, line). Does not
belong
here: orders and their amounts (`olist_pandas.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

TYPES = ("OrderCreated", "PaymentProcessed", "ItemShipped", "OrderDelivered", "OrderCanceled")
STATUSES = ("created", "paid", "shipped", "delivered", "canceled")
_TEXTS = ("event_id", "tenant_id", "aggregate_id", "event_type")


@dataclass
class LandingCounts:
    """The counts, and the first good event of each id: (arrival day, time, event)."""

    lines: int = 0
    duplicates: int = 0
    conflicts: int = 0
    rejected: int = 0
    invalid_payloads: int = 0
    late: int = 0
    by_type: Counter[str] = field(default_factory=Counter)
    events: dict[str, tuple[date, datetime, dict[str, Any]]] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        return len(self.events)

    @property
    def normalized(self) -> int:
        return self.by_type.total()

    def orders_by_status(self) -> Counter[str]:
        """Orders with a good event by their highest status."""
        ranks: dict[tuple[str, str], int] = {}
        for _, _, event in self.events.values():
            if is_normalizable(event):
                order = event["tenant_id"], event["aggregate_id"]
                ranks[order] = max(ranks.get(order, 0), TYPES.index(event["event_type"]))
        return Counter(STATUSES[rank] for rank in ranks.values())


def count_landing(landing: Path) -> LandingCounts:
    """Judge every line of a landing folder in source order; the first event of an id stands."""
    counts = LandingCounts()
    for day, line in lines_in_source_order(landing):
        counts.lines += 1
        event = parsed(line)
        moment = occurred_at(event, day) if event else None
        if event is None or moment is None:
            counts.rejected += 1
        elif event["event_id"] in counts.events:
            same = content(event) == content(counts.events[event["event_id"]][2])
            counts.duplicates += same
            counts.conflicts += not same
        else:
            counts.events[event["event_id"]] = day, moment, event
            if is_normalizable(event):
                counts.by_type[event["event_type"]] += 1
                counts.late += moment.date() < day
            else:
                counts.invalid_payloads += 1
    return counts


def lines_in_source_order(landing: Path) -> Iterator[tuple[date, bytes]]:
    for folder in sorted(landing.glob("[0-9]*")):
        for path in sorted(folder.glob("*.jsonl")):
            data = path.read_bytes()
            assert data.endswith(b"\n"), f"{path} ends in the middle of a line"
            for line in data[:-1].split(b"\n"):
                yield date.fromisoformat(folder.name), line


def content(event: dict[str, Any]) -> dict[str, Any]:
    """What makes an event the same event: all but its trace."""
    return {name: value for name, value in event.items() if name not in ("trace_id", "span_id")}


def parsed(line: bytes) -> dict[str, Any] | None:
    """The event with exact numbers, None if ingest must refuse the line whatever its time."""
    try:
        event = json.loads(
            line.decode(),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_exact,
            parse_int=_exact,
        )
        good = (
            all(isinstance(event[name], str) and event[name] for name in _TEXTS)
            and isinstance(event["payload"], dict)
            and isinstance(event["schema_version"], Decimal)
        )
    except (ValueError, KeyError, TypeError):
        return None
    return event if good else None


def occurred_at(event: dict[str, Any], day: date) -> datetime | None:
    """The event's time, None if it has none that is possible on its arrival day."""
    stamp = event.get("timestamp")
    if isinstance(stamp, Decimal):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(stamp))
    elif isinstance(stamp, str):
        moment = datetime.fromisoformat(stamp)
    else:
        return None
    if moment.tzinfo is None or not 1990 < moment.year < 2100 or moment.astimezone(UTC).date() > day:
        return None
    return moment.astimezone(UTC)


def is_normalizable(event: dict[str, Any]) -> bool:
    """Whether type, version and amount are ones that normalize takes."""
    payload = event["payload"]
    if event["event_type"] not in TYPES or event["schema_version"] != 1:
        return False
    if event["event_type"] not in TYPES[:2]:
        return True
    try:
        amount = Decimal(payload["amount"])
    except (KeyError, InvalidOperation):
        return False
    return amount >= 0 and amount == round(amount, 2)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _refuse(text: str) -> None:
    raise ValueError(text)


def _exact(text: str) -> Decimal:
    if not set(text) <= set("-.0123456789") or len(text) > 38:
        raise ValueError(text)
    return Decimal(text)
