"""Every faulty line is faulty in the way it says, and no other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contracts.envelope import Limits, judge
from etl_assets.errors import SettingsError
from etl_assets.orders.event_contracts import EventType
from etl_assets.orders.generator.faults import _KINDS, Fault, FaultRates, FaultyLines, plan_faults
from etl_assets.orders.generator.wire import WireEvent
from etl_assets_tests.reference.landing_counts import content, is_normalizable, occurred_at, parsed

DAY = date(2024, 3, 1)
LATEST_MICROS = 1_709_337_600_000_000
LIMITS = Limits(max_record_bytes=1_000_000, earliest_micros=0, skew_micros=0)
NUMERIC = WireEvent(
    event_id="e-1",
    tenant_id="sp",
    aggregate_id="o-1",
    event_type=EventType.ORDER_CREATED,
    payload={
        "customer_id": "c",
        "amount": 12.3,
        "currency": "EUR",
        "items": [{"sku": "café", "quantity": 2, "price": 6.0}, {"sku": "tea", "quantity": 1, "price": 0.3}],
    },
    timestamp="2024-02-29T12:00:00.001Z",
)
EVENTS = [
    NUMERIC,
    replace(NUMERIC, payload={"amount": "12.30", "currency": "EUR"}, event_type=EventType.PAYMENT_PROCESSED),
    replace(
        NUMERIC, payload={"amount": "0.07", "currency": "EUR"}, timestamp=1_709_200_000_000, trace_id="t" * 32
    ),
    replace(NUMERIC, payload={}, event_type=EventType.ORDER_DELIVERED),
]
ROUNDS = 60


def spelled(fault: Fault) -> list[tuple[WireEvent, bytes]]:
    """Each event beside every kind of the fault, with many draws of what varies."""
    lines = FaultyLines(Random(7))
    return [(event, lines.spell(fault, event)) for event in EVENTS for _ in range(ROUNDS)]


def judged(line: bytes):
    return judge(line, latest_micros=LATEST_MICROS, limits=LIMITS)


def test_a_duplicate_is_the_same_event_to_ingest():
    for event, line in spelled(Fault.DUPLICATE):
        assert judged(line).fingerprint == judged(event.to_line().encode()).fingerprint, line
        again = parsed(line)
        assert again
        assert content(again) == content(parsed(event.to_line().encode()) or {})


def test_duplicates_are_spelled_in_many_ways():
    lines = {line for event, line in spelled(Fault.DUPLICATE) if event is NUMERIC}
    assert len(lines) > ROUNDS // 2
    assert NUMERIC.to_line().encode() in lines
    assert any(b'"amount":12.30' in line for line in lines)
    assert any(rb"caf\u00e9" in line for line in lines)
    assert any(b'"trace_id"' in line for line in lines)
    assert any(line.index(b"tenant_id") < line.index(b"event_id") for line in lines)


def test_a_conflict_is_a_good_event_with_the_same_id_and_other_content():
    for event, line in spelled(Fault.CONFLICT):
        conflict = parsed(line)
        assert conflict
        assert is_normalizable(conflict)
        assert occurred_at(conflict, DAY)
        assert judged(line).event_id == event.event_id
        assert judged(line).reason is None
        assert judged(line).fingerprint != judged(event.to_line().encode()).fingerprint, line


def test_a_malformed_line_is_refused_at_ingest():
    for _, line in spelled(Fault.MALFORMED):
        event = parsed(line)
        assert event is None or occurred_at(event, DAY) is None, line
        assert judged(line).reason, line


def test_malformed_lines_show_every_reason_that_ingest_has_for_a_short_line():
    reasons = Counter(judged(line).reason for _, line in spelled(Fault.MALFORMED))
    assert set(reasons) == {
        "MalformedJson",
        "DuplicateKey",
        "InvalidUtf8",
        "NotAnObject",
        "MissingField",
        "WrongType",
        "UnsafeNumber",
        "InvalidTimestamp",
        "TimestampOutOfRange",
    }


def test_an_invalid_payload_is_accepted_at_ingest_and_refused_at_normalize():
    for _, line in spelled(Fault.INVALID_PAYLOAD):
        event = parsed(line)
        assert event
        assert judged(line).reason is None, line
        assert not is_normalizable(event), line


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.LATE])
def test_as_many_lines_as_there_are_kinds_show_every_kind(fault):
    lines = FaultyLines(Random(1))
    kinds = len(_KINDS[fault])
    shown = [lines.spell(fault, NUMERIC) for _ in range(kinds)]
    assert len(set(shown)) == kinds


@given(
    st.integers(0, 300),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_a_plan_has_exactly_the_share_of_every_fault(
    events, duplicates, conflicts, malformed, invalid, late, rng
):
    rates = FaultRates(
        duplicates=duplicates, conflicts=conflicts, malformed=malformed, invalid_payloads=invalid, late=late
    )
    plan = plan_faults(rng, events, rates)
    counts = Counter(fault for faults in plan.values() for fault in faults)
    assert counts[Fault.DUPLICATE] == round(events * duplicates)
    assert counts[Fault.CONFLICT] == min(round(events * conflicts), events - counts[Fault.DUPLICATE])
    assert counts[Fault.MALFORMED] == round(events * malformed)
    assert counts[Fault.INVALID_PAYLOAD] == round(events * invalid)
    assert counts[Fault.LATE] == round(events * late)
    assert all(0 <= index < events and len(set(faults)) == len(faults) for index, faults in plan.items())
    assert not any({Fault.DUPLICATE, Fault.CONFLICT} <= set(faults) for faults in plan.values())


@pytest.mark.parametrize(
    ("rates", "name"),
    [
        ({"duplicates": -0.1}, "duplicates"),
        ({"late": 1.1}, "late"),
        ({"malformed": float("nan")}, "malformed"),
        ({"duplicates": 0.6, "conflicts": 0.6}, "conflicts"),
    ],
)
def test_a_rate_out_of_range_is_refused_with_its_name_and_what_is_allowed(rates, name):
    with pytest.raises(SettingsError) as caught:
        FaultRates(**rates)
    assert caught.value.field == name
    assert str(caught.value.allowed).startswith("0 to ")
