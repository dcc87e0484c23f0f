"""What one line is: an event with its fingerprint, or the reason why not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contracts.envelope import KEPT_RECORD_BYTES, ValidatedLine, judge
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets_tests.pipeline import LIMITS, event

LATEST = 1_767_744_000_000_000 + LIMITS.skew_micros
"""The end of 2026-01-06 and the allowed skew."""


def judged(line: dict[str, Any] | bytes) -> ValidatedLine:
    return judge(
        line if isinstance(line, bytes) else json.dumps(line).encode(), latest_micros=LATEST, limits=LIMITS
    )


def test_a_good_line_is_an_event_with_every_field():
    found = judged(event(1, timestamp=1_767_607_200_123, trace_id="t", span_id="s"))
    assert found.reason is None
    assert found.error is None
    assert (found.event_id, found.tenant_id, found.aggregate_id) == ("event-1", "acme", "order-1")
    assert (found.event_type, found.schema_version) == ("OrderCreated", 1)
    assert found.occurred_at_micros == 1_767_607_200_123_000
    assert found.payload == '{"amount":"12.50","currency":"EUR","customer_id":"customer-1"}'
    assert (found.trace_id, found.span_id) == ("t", "s")
    assert len(found.fingerprint or "") == 64


def test_trace_and_span_are_no_part_of_the_fingerprint():
    assert judged(event(1, trace_id="a", span_id="b")).fingerprint == judged(event(1)).fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"event_id": "other"},
        {"tenant_id": "other"},
        {"aggregate_id": "other"},
        {"event_type": "Other"},
        {"payload": {}},
        {"timestamp": "2026-01-05T10:00:01Z"},
        {"schema_version": 2},
        {"unknown": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_else_the_producer_sent_is(change):
    assert judged(event(1, **change)).fingerprint != judged(event(1)).fingerprint


@given(st.permutations(sorted(event(1))), st.booleans())
def test_neither_order_of_keys_nor_white_space_changes_the_fingerprint(keys, compact):
    sent = event(1)
    line = json.dumps({key: sent[key] for key in keys}, separators=(",", ":") if compact else (" , ", " : "))
    assert judged(line.encode()).fingerprint == judged(sent).fingerprint


@pytest.mark.parametrize("kept", ["UnknownType", "OrderCreated"])
@pytest.mark.parametrize("version", [1, 99, 2**31 - 1])
def test_unknown_types_and_newer_versions_are_taken_in(kept, version):
    assert judged(event(1, event_type=kept, schema_version=version)).reason is None


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        *((name, None, DeadLetterReason.MISSING_FIELD) for name in event(1)),
        *(
            (name, 7, DeadLetterReason.WRONG_TYPE)
            for name in (
                "event_id",
                "tenant_id",
                "aggregate_id",
                "event_type",
                "payload",
                "trace_id",
                "span_id",
            )
        ),
        ("event_id", "", DeadLetterReason.MISSING_FIELD),
        ("event_id", "x" * 10_000, DeadLetterReason.WRONG_TYPE),
        ("tenant_id", "a/b", DeadLetterReason.WRONG_TYPE),
        ("payload", [], DeadLetterReason.WRONG_TYPE),
        ("schema_version", "1", DeadLetterReason.WRONG_TYPE),
        ("schema_version", True, DeadLetterReason.WRONG_TYPE),
        ("schema_version", 0, DeadLetterReason.WRONG_TYPE),
        ("schema_version", 1.5, DeadLetterReason.WRONG_TYPE),
        ("schema_version", 2**31, DeadLetterReason.WRONG_TYPE),
        ("timestamp", 1.5, DeadLetterReason.WRONG_TYPE),
        ("timestamp", True, DeadLetterReason.WRONG_TYPE),
        ("timestamp", "2026-01-05T10:00:00", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "2026-01-05", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "2026-02-30T10:00:00Z", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "yesterday", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "2026-01-05T20:00:00+10:60", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "2026-01-05T20:00:00-10:99", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "2026-01-05T20:00:00+24:00", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "2026-01-05T10:00:60Z", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "2026-01-05T10:00:00Z\n", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "\u0662\u0660\u0662\u0666-01-05T10:00:00Z", DeadLetterReason.INVALID_TIMESTAMP),
        ("timestamp", "9999-12-31T23:59:59Z", DeadLetterReason.TIMESTAMP_OUT_OF_RANGE),
        ("timestamp", 253_402_300_799_000, DeadLetterReason.TIMESTAMP_OUT_OF_RANGE),
        ("timestamp", 10**30, DeadLetterReason.TIMESTAMP_OUT_OF_RANGE),
        ("timestamp", -(10**30), DeadLetterReason.TIMESTAMP_OUT_OF_RANGE),
        ("timestamp", "1999-12-31T23:59:59Z", DeadLetterReason.TIMESTAMP_OUT_OF_RANGE),
        ("timestamp", "2026-01-08T00:00:00Z", DeadLetterReason.TIMESTAMP_OUT_OF_RANGE),
    ],
)
def test_an_envelope_that_is_not_right_is_refused(field, value, reason):
    found = judged(event(1, **{field: value}))
    assert found.reason == reason
    assert field in (found.error or "")
    assert json.loads(found.record or "") == event(1, **{field: value})


def test_a_refused_record_keeps_the_event_id_it_names():
    assert judged(event(1, timestamp="yesterday")).event_id == "event-1"
    assert judged(event(1, event_id=5)).event_id is None
    assert judged(b"not json").event_id is None


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-05T10:00:00Z",
        "2026-01-05t10:00:00z",
        "2026-01-05 10:00:00.000Z",
        "2026-01-05T11:30:00+01:30",
        "2026-01-05T10:00:00.000000000Z",
    ],
)
def test_one_moment_has_one_time_however_it_is_written(text):
    assert judged(event(1, timestamp=text)).occurred_at_micros == 1_767_607_200_000_000


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [("schema_version", "1", "1.0"), ("timestamp", "1767607200123", "1767607200123.00")],
)
def test_a_whole_number_is_one_however_it_is_written(field, one, other):
    sent = json.dumps({**event(1), field: "?"})
    plain, written_otherwise = (judged(sent.replace('"?"', number).encode()) for number in (one, other))
    assert plain.reason is None
    assert plain == written_otherwise


@pytest.mark.parametrize("levels", range(95, 99))
def test_how_deep_an_event_may_be_does_not_depend_on_its_spelling(levels):
    """The line and its payload are two of the 100 levels."""
    plain = json.dumps(event(1, payload={"a": "?", "d": 1})).replace('"?"', "[" * levels + "1" + "]" * levels)
    escaped = plain.replace('"d"', '"\\u0064"')
    assert judged(plain.encode()).reason is None
    assert judged(plain.encode()) == judged(escaped.encode())


@pytest.mark.parametrize("spelling", ['"d"', '"\\u0064"'])
def test_an_event_of_more_than_100_levels_is_refused_in_each_spelling(spelling):
    line = json.dumps(event(1, payload={"a": "?", "d": 1})).replace('"?"', "[" * 99 + "1" + "]" * 99)
    assert judged(line.replace('"d"', spelling).encode()).error == "nested deeper than 100 levels"


def test_the_last_microsecond_before_the_limit_is_taken():
    assert judged(event(1, timestamp="2026-01-07T23:59:59.999999Z")).reason is None


@pytest.mark.parametrize("line", [b"[]", b"1", b'"text"', b"null", b"true"])
def test_json_that_is_no_object_is_refused(line):
    assert judged(line).reason == DeadLetterReason.NOT_AN_OBJECT


def test_a_line_of_10_mb_is_refused_and_only_its_beginning_is_kept():
    found = judged(b'{"event_id": "' + b"x" * 10_000_000 + b'"}')
    assert found.reason == DeadLetterReason.RECORD_TOO_LARGE
    assert len(found.record or "") == KEPT_RECORD_BYTES


def test_a_large_record_cut_inside_a_character_is_kept_all_the_same():
    found = judged(("x" + "é" * 1_000_000).encode())
    assert found.record_encoding == "base64"
    assert base64.b64decode(found.record or "") == ("x" + "é" * 1_000_000).encode()[:KEPT_RECORD_BYTES]


def test_bytes_that_are_no_utf_8_are_kept_in_base64():
    line = b'{"event_id": "\xff\xfe"}'
    found = judged(line)
    assert found.reason == DeadLetterReason.INVALID_UTF8
    assert base64.b64decode(found.record or "") == line


@given(st.binary(max_size=200))
def test_no_bytes_whatever_raise(line):
    assert judged(line).reason is not None


@given(
    st.sampled_from(sorted(event(1))),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
)
def test_a_line_with_any_value_in_any_field_is_judged_the_same_twice(field, value):
    line = json.dumps({**event(1), field: value}).encode()
    assert judged(line) == judged(line)
