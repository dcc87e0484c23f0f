"""A wire event's line is what the wire's documentation shows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.orders.event_contracts import EventType
from etl_assets.orders.generator.wire import WireEvent, epoch_ms_of, moment_of, rfc3339, time_ordered_id

EVENT = WireEvent(
    event_id="e-1",
    tenant_id="sp",
    aggregate_id="o-1",
    event_type=EventType.ORDER_CREATED,
    payload={"amount": "12.30", "items": [{"sku": "café"}]},
    timestamp=1_700_000_000_000,
)


def test_a_line_is_compact_json_in_the_documented_order_without_empty_fields():
    assert EVENT.to_line() == (
        '{"event_id":"e-1","tenant_id":"sp","aggregate_id":"o-1","event_type":"OrderCreated",'
        '"payload":{"amount":"12.30","items":[{"sku":"café"}]},"timestamp":1700000000000,"schema_version":1}'
    )


def test_a_trace_is_sent_when_there_is_one():
    record = json.loads(replace(EVENT, trace_id="t", span_id="s").to_line())
    assert (record["trace_id"], record["span_id"]) == ("t", "s")


@given(st.text(), st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.booleans()))
def test_a_line_read_back_is_the_event(text, payload):
    event = replace(EVENT, event_id=text, payload=payload, timestamp=text, span_id=text)
    assert WireEvent.from_line(event.to_line()) == event
    assert "\n" not in event.to_line()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_refused(number):
    with pytest.raises(ValueError, match="JSON compliant"):
        replace(EVENT, payload={"amount": number}).to_line()


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**72 - 1))
def test_a_time_ordered_id_is_a_uuid_of_version_7_that_holds_its_time(epoch_ms, bits):
    uuid = UUID(time_ordered_id(epoch_ms, bits))
    assert str(uuid) == time_ordered_id(epoch_ms, bits)
    assert (uuid.version, uuid.variant, uuid.int >> 80) == (7, "specified in RFC 4122", epoch_ms)
    assert (uuid.int >> 64 & 0xFFF) << 60 | uuid.int & (1 << 60) - 1 == bits


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29T01:02:03Z"),
        (datetime(2024, 2, 29, 1, 2, 3, 45_000, tzinfo=UTC), "2024-02-29T01:02:03.045Z"),
        (datetime(2024, 2, 29, 1, tzinfo=timezone(timedelta(hours=-3))), "2024-02-29T01:00:00-03:00"),
    ],
)
def test_a_time_is_written_with_its_offset(moment, text):
    assert rfc3339(moment) == text


@given(st.integers(-(10**13), 10**14))
def test_epoch_milliseconds_are_exact_both_ways(epoch_ms):
    assert epoch_ms_of(moment_of(epoch_ms)) == epoch_ms
