"""Made-up order events, with the faults of real senders: repeated, contradicted, out of range, no JSON.

Belongs here: lines that depend on their arguments only. Does not belong here: sending them (`feed.py`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from random import Random

STEPS = ("OrderCreated", "PaymentProcessed", "ItemShipped", "OrderDelivered")
_REPEATED, _CONTRADICTED, _INVALID, _BROKEN = 0.02, 0.001, 0.002, 0.001
_SINCE = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def event_lines(channel: str, number: int, events: int, *, broken: bool) -> Iterator[tuple[str, bytes]]:
    """Yield lines, each with the id of its order: `events` good events, and the faulty lines between them.

    The same arguments give the same lines.

    Args:
        channel: Where they are sent; ids differ from those of other channels.
        number: Which lot it is; ids differ from those of other lots.
        events: Good events.
        broken: Whether some lines are no JSON: an HTTP server refuses a whole request with one.
    """
    random = Random(f"{channel}/{number}")
    for index in range(events):
        order, step = divmod(index, len(STEPS))
        order_id = number * 10_000_000 + order
        event: dict[str, object] = {
            "event_id": f"{channel}-{number}-{index}",
            "order_id": order_id,
            "event_type": STEPS[step],
            "customer": f"customer-{order_id % 997}",
            "amount": f"{100 + order % 9_900}.{order % 100:02d}",
            "occurred_at": (_SINCE + dt.timedelta(minutes=number * 60 + index)).isoformat(),
        }
        key = str(order_id)
        yield key, _line(event)
        chance = random.random()
        if chance < _REPEATED:
            yield key, json.dumps(event, sort_keys=True).encode()
        elif chance < _REPEATED + _CONTRADICTED:
            yield key, _line({**event, "amount": "0.01"})
        elif chance < _REPEATED + _CONTRADICTED + _INVALID:
            yield key, _line({**event, "event_id": f"{event['event_id']}-invalid", "amount": "-1.00"})
        elif broken and chance < _REPEATED + _CONTRADICTED + _INVALID + _BROKEN:
            yield key, _line(event)[:-20]


def _line(event: dict[str, object]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()
