"""Event versions: old files are lifted, newer events wait as dead letters until the code knows them."""

from __future__ import annotations

import dataclasses

import pytest

from etl_assets.orders.event_contracts import (
    EVENT_CONTRACTS,
    EventContract,
    EventType,
    PayloadColumn,
    PayloadField,
    Upcaster,
)
from etl_assets.orders.order_status import OrderStatus
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import event

pytestmark = pytest.mark.spark

AMOUNT = PayloadField(name="amount", column=PayloadColumn.AMOUNT, required=True)
CURRENCY = PayloadField(name="currency", column=PayloadColumn.CURRENCY, required=True)
TO_SECOND = Upcaster(from_version=1, renamed={"buyer": "customer_id"}, defaults={"currency": "BRL"})
SECOND = EventContract(
    status=OrderStatus.CREATED,
    fields=(PayloadField(name="buyer", column=PayloadColumn.CUSTOMER_ID, required=True), AMOUNT, CURRENCY),
    newest_version=2,
    upcasters=(TO_SECOND,),
)
THIRD = EventContract(
    status=OrderStatus.CREATED,
    fields=(PayloadField(name="person", column=PayloadColumn.CUSTOMER_ID, required=True), AMOUNT, CURRENCY),
    newest_version=3,
    upcasters=(TO_SECOND, Upcaster(from_version=2, renamed={"person": "buyer"})),
)
STEPS = ["customers", "raw_events", "normalized_orders", "dead_letters"]


def test_each_version_is_read_by_its_own_fields_and_one_unknown_yet_is_replayed_once_it_is_known(pipeline):
    def contracts(created: EventContract):
        return {**EVENT_CONTRACTS, EventType.ORDER_CREATED: created}

    pipeline.land(
        [
            event(
                1,
                payload={"customer_id": "first", "amount": 1, "currency": "EUR", "buyer": "not yet a field"},
            ),
            event(
                2,
                schema_version=2,
                payload={"buyer": "second", "amount": "2.50", "currency": "USD", "extra": [1]},
            ),
            event(3, schema_version=2, payload={"customer_id": "old name", "amount": 1, "currency": "USD"}),
            event(4, schema_version=3, payload={"person": "third", "amount": 3, "currency": "EUR"}),
            event(5, event_type="ItemShipped", schema_version=1, payload={}),
        ]
    )
    knows_two = dataclasses.replace(pipeline, contracts=contracts(SECOND))
    knows_two.run(only=STEPS)

    def normalized():
        return {
            row["event_id"]: (row["customer_id"], row["currency"])
            for row in pipeline.rows("normalized_orders")
        }

    def letters():
        return {row["event_id"]: (row["reason"], row["state"]) for row in pipeline.rows("dead_letters")}

    first_run = {"event-1": ("first", "BRL"), "event-2": ("second", "USD"), "event-5": (None, None)}
    assert normalized() == first_run
    assert letters() == {
        "event-3": ("InvalidPayload", "open"),
        "event-4": ("UnsupportedSchemaVersion", "open"),
    }
    payload = {row["event_id"]: row["payload"] for row in pipeline.rows("raw_events")}["event-2"]
    assert '"extra":[1]' in payload

    knows_three = dataclasses.replace(pipeline, contracts=contracts(THIRD))
    assert knows_three.run(only=STEPS)["normalized_orders"].commits == 0, "nothing new arrived"
    knows_three.run(mode=ReadMode.WHOLE, only=STEPS)
    assert normalized() == first_run | {"event-4": ("third", "EUR")}
    assert letters() == {
        "event-3": ("InvalidPayload", "open"),
        "event-4": ("UnsupportedSchemaVersion", "replayed"),
    }
    offsets = [row["offset"] for row in pipeline.rows("normalized_orders", order_by="offset")]
    assert offsets == list(range(4))
