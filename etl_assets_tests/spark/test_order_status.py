"""The state of an order does not depend on the order in which its events arrive, nor on how often they are read."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest

from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event

pytestmark = pytest.mark.spark

STEPS = ["customers", "raw_events", "normalized_orders", "warehouse_rows", "order_status_view"]


def test_days_read_backwards_and_twice_give_the_state_of_days_read_in_order(pipeline):
    def of_order(order: str, kind: str, number: int, payload: dict | None = None, **fields):
        amount = payload if payload is not None else {}
        return event(
            number,
            aggregate_id=order,
            event_id=f"{order}-{kind}-{number}",
            event_type=kind,
            payload=amount,
            **fields,
        )

    early, late = "2026-01-05T08:00:00Z", "2026-01-05T09:00:00Z"
    pipeline.land(
        [
            of_order(
                "o1",
                "OrderCreated",
                1,
                {"customer_id": "c", "amount": "10.00", "currency": "EUR"},
                timestamp=early,
            ),
            of_order("o1", "PaymentProcessed", 2, {"amount": "4.00", "currency": "EUR"}, timestamp=late),
            of_order("o2", "ItemShipped", 3, timestamp=early),
            of_order("o3", "OrderCanceled", 4, timestamp=early),
        ]
    )
    pipeline.land(
        [
            of_order("o1", "PaymentProcessed", 5, {"amount": "6.00", "currency": "EUR"}, timestamp=early),
            of_order("o1", "ItemShipped", 6, timestamp=late),
            of_order("o2", "OrderCreated", 7, {"customer_id": "d", "amount": "7.25"}, timestamp=early),
            of_order("o3", "OrderDelivered", 8, timestamp=late),
        ],
        day=NEXT_DAY,
    )
    forwards = dataclasses.replace(pipeline, root=pipeline.root / "forwards")
    backwards = dataclasses.replace(pipeline, root=pipeline.root / "backwards")
    forwards.run([DAY, NEXT_DAY], only=STEPS)
    for day in (NEXT_DAY, DAY):
        backwards.run([day], only=STEPS)
    backwards.run([NEXT_DAY], mode=ReadMode.WHOLE, only=STEPS)

    def state(platform):
        of_reading = ("last_event_id", "last_offset", "updated_at", "batch_id")
        return [
            {key: _without_order(value) for key, value in row.items() if key not in of_reading}
            for row in platform.rows("order_status_view", order_by="order_id")
        ]

    assert state(backwards) == state(forwards)
    one, two, three = state(forwards)
    assert (one["order_status"], one["order_total"], one["paid_total"]) == (
        "shipped",
        Decimal("10.00"),
        Decimal("10.00"),
    )
    assert one["paid_at"].hour == 8
    assert (two["order_status"], two["order_total"], two["created_at"].hour) == (
        "shipped",
        Decimal("7.25"),
        8,
    )
    assert (three["order_status"], three["delivered_at"].hour, three["created_at"]) == ("canceled", 9, None)


def _without_order(value):
    """A map is read as a list of entries, whose order means nothing."""
    return sorted(value) if isinstance(value, list) else value
