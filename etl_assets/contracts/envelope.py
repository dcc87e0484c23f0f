"""The envelope of an event on the wire: the fields of every event, and the validation of one line of input.

Belongs here: validating one line, as a pure function of the line and its day. Does not belong here: the
payload, which the normalize stage validates by the contract of its type and version (`events.py`).
"""

from __future__ import annotations

import base64
import codecs
import datetime as dt
import hashlib
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused
from etl_assets.contracts.reasons import DeadLetterReason, RecordEncoding
from etl_assets.contracts.tables.recurring_columns import MAX_ID_CHARACTERS

KEPT_RECORD_BYTES = 4_096
"""Number of bytes of a too large record that its dead letter keeps."""

_RFC_3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:[0-5]\d)", re.ASCII)
_LOCAL_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NOT_FINGERPRINTED = ("trace_id", "span_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on input: bytes of a record, and event times (microseconds since 1970, UTC).

    An event's time may be from `earliest` to `skew` after the end of the day it arrived on. Both are fixed
    for a line, so validating the line again gives the same result.
    """

    max_record_bytes: int
    earliest_micros: int
    skew_micros: int

    @property
    def held_bytes(self) -> int:
        """Bytes of a line to hold, with byte order mark and line end. A longer line is too large."""
        return max(self.max_record_bytes, KEPT_RECORD_BYTES) + len(codecs.BOM_UTF8 + b"\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutLine:
    """The beginning of a line that is too long to hold, and the line's size in bytes without its end."""

    start: bytes
    size: int

    def __len__(self) -> int:
        """Return the number of bytes held."""
        return len(self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """The beginning of a record that its format does not allow, with the reason for rejecting it."""

    start: bytes
    reason: DeadLetterReason
    error: str

    def __len__(self) -> int:
        """Return the number of bytes held."""
        return len(self.start)


class AnnotatedRecord(bytes):
    """The JSON text of a record, with fields that its source adds, such as the key of a Kafka record.

    The added fields are no part of the fingerprint.

    Attributes:
        added: The fields.
    """

    added: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that says nothing about rows, such as a heartbeat: it is counted, and has no other outcome."""

    kind: str

    def __len__(self) -> int:
        """Return the number of bytes held."""
        return 0


Record = bytes | CutLine | BadRecord | SkippedRecord | dict[str, Any]
"""A record of a file: its JSON text, or the values of its fields; or what is left of one that is no record.
"""


class ValidatedLine(NamedTuple):
    """One line of input: an event, or the reason for rejecting it.

    `reason` is None for an event; then `event_id` to `fingerprint` are set. A named tuple, because one is
    created for every line: a frozen dataclass takes six times as long.
    """

    event_id: str | None = None
    tenant_id: str | None = None
    aggregate_id: str | None = None
    event_type: str | None = None
    schema_version: int | None = None
    occurred_at_micros: int | None = None
    payload: str | None = None
    fingerprint: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    reason: str | None = None
    error: str | None = None
    record: str | None = None
    record_encoding: str | None = None


def judge(line: bytes, *, latest_micros: int, limits: Limits) -> ValidatedLine:
    """Validate one line.

    Args:
        line: The bytes between two line feeds.
        latest_micros: The first event time that is too late for the line's day.
        limits: The platform's limits.
    """
    if len(line) > limits.max_record_bytes:
        return too_large(CutLine(start=line, size=len(line)), limits=limits)
    value: Any = None
    try:
        value, fast = canonical_json.parse(line)
        return _event(value, fast, latest_micros, limits)
    except Refused as refused:
        event_id = value.get("event_id") if isinstance(value, dict) else None
        record, encoding = kept_text(line)
        return ValidatedLine(
            event_id=event_id if isinstance(event_id, str) and event_id else None,
            reason=refused.reason.value,
            error=refused.error,
            record=record,
            record_encoding=encoding,
        )


def too_large(line: CutLine, *, limits: Limits) -> ValidatedLine:
    """Return the rejection of a line of more than `max_record_bytes`.

    Args:
        line: The line's beginning, at least `KEPT_RECORD_BYTES` of it.
        limits: The platform's limits.
    """
    record, encoding = kept_text(line.start[:KEPT_RECORD_BYTES])
    return ValidatedLine(
        reason=DeadLetterReason.RECORD_TOO_LARGE.value,
        error=f"the record has {line.size:,} bytes, at most {limits.max_record_bytes:,} are taken;"
        f" its first {KEPT_RECORD_BYTES:,} are kept here",
        record=record,
        record_encoding=encoding,
    )


def _event(value: Any, fast: bool, latest_micros: int, limits: Limits) -> ValidatedLine:
    if type(value) is not dict:
        raise Refused(DeadLetterReason.NOT_AN_OBJECT, "the line is JSON, but no object")
    payload = _required(value, "payload")
    if type(payload) is not dict:
        raise Refused(DeadLetterReason.WRONG_TYPE, "payload is not an object")
    trace_id, span_id = _optional_text(value, "trace_id"), _optional_text(value, "span_id")
    write = canonical_json.write_fast if fast else canonical_json.write
    return ValidatedLine(
        event_id=_text(value, "event_id"),
        tenant_id=_tenant(value),
        aggregate_id=_text(value, "aggregate_id"),
        event_type=_text(value, "event_type"),
        schema_version=_version(value),
        occurred_at_micros=_time(_required(value, "timestamp"), latest_micros, limits),
        payload=write(payload).decode(),
        fingerprint=_fingerprint(value, write),
        trace_id=trace_id,
        span_id=span_id,
    )


def _fingerprint(value: dict[str, Any], write: Any) -> str:
    if not value.keys().isdisjoint(_NOT_FINGERPRINTED):
        value = {key: item for key, item in value.items() if key not in _NOT_FINGERPRINTED}
    return hashlib.sha256(write(value)).hexdigest()


def _required(value: dict[str, Any], name: str) -> Any:
    item = value.get(name)
    if item is None:
        raise Refused(DeadLetterReason.MISSING_FIELD, f"{name} is missing or null")
    return item


def _text(value: dict[str, Any], name: str) -> str:
    item = _required(value, name)
    if type(item) is not str:
        raise Refused(DeadLetterReason.WRONG_TYPE, f"{name} is not a string")
    if not item:
        raise Refused(DeadLetterReason.MISSING_FIELD, f"{name} is empty")
    if len(item) > MAX_ID_CHARACTERS:
        raise Refused(DeadLetterReason.WRONG_TYPE, f"{name} is longer than {MAX_ID_CHARACTERS} characters")
    return item


def _tenant(value: dict[str, Any]) -> str:
    tenant = _text(value, "tenant_id")
    if "/" in tenant:
        raise Refused(DeadLetterReason.WRONG_TYPE, "tenant_id has a slash in it")
    return tenant


def _optional_text(value: dict[str, Any], name: str) -> str | None:
    item = value.get(name)
    if item is not None and type(item) is not str:
        raise Refused(DeadLetterReason.WRONG_TYPE, f"{name} is not a string")
    return item


def _version(value: dict[str, Any]) -> int:
    version = _whole(_required(value, "schema_version"))
    if type(version) is not int or not 1 <= version < 2**31:
        raise Refused(DeadLetterReason.WRONG_TYPE, "schema_version is not a whole number from 1")
    return version


def _whole(value: Any) -> Any:
    """Convert a whole number written as a fraction (`1.0`) to an integer; return other values unchanged."""
    return int(value) if type(value) is Decimal and value == value.to_integral_value() else value


def _time(value: Any, latest_micros: int, limits: Limits) -> int:
    value = _whole(value)
    if type(value) is int:
        micros = value * 1_000
    elif type(value) is str:
        micros = _parse_time(value)
    else:
        raise Refused(
            DeadLetterReason.WRONG_TYPE, "timestamp is neither whole milliseconds nor RFC 3339 text"
        )
    if not limits.earliest_micros <= micros < latest_micros:
        raise Refused(
            DeadLetterReason.TIMESTAMP_OUT_OF_RANGE,
            f"timestamp is not between {_show(limits.earliest_micros)} and {_show(latest_micros)}, the end of"
            " the day the record arrived on and the allowed clock skew",
        )
    return micros


def _parse_time(text: str) -> int:
    if not _RFC_3339.fullmatch(text):
        what = "has no zone" if _LOCAL_TIME.fullmatch(text) else "is not RFC 3339"
        raise Refused(
            DeadLetterReason.INVALID_TIMESTAMP, f"timestamp {what}; write it like 2026-01-31T12:00:00Z"
        )
    try:
        return (dt.datetime.fromisoformat(text.upper()) - _EPOCH) // dt.timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise Refused(DeadLetterReason.INVALID_TIMESTAMP, "timestamp is no time that exists") from error


def _show(micros: int) -> str:
    return (_EPOCH + dt.timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%SZ")


def kept_text(kept: bytes) -> tuple[str, str]:
    """Return what is kept of a record as text, and how the text is written."""
    try:
        return kept.decode("utf-8"), RecordEncoding.UTF8.value
    except UnicodeDecodeError:
        return base64.b64encode(kept).decode(), RecordEncoding.BASE64.value
