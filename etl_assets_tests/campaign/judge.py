"""What one line is and what its payload is, in plain Python: the reference that the tables are compared with.

Written from docs/events.md alone; imports nothing from the package. Where the docs leave open which of
several reasons a record is refused for, all of them are allowed. Does not belong here: lines that repeat each
other (`reference.py`).
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

MAX_RECORD_BYTES = 6_000
KEPT_BYTES = 4_096
EARLIEST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
SKEW = dt.timedelta(hours=24)
MAX_ID, MAX_DIGITS, MAX_DEPTH = 512, 38, 100
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

STATUS = {
    "OrderCreated": "created",
    "PaymentProcessed": "paid",
    "ItemShipped": "shipped",
    "OrderDelivered": "delivered",
    "OrderCanceled": "canceled",
}
NEWEST_VERSION = 1
_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:([Zz])|([+-])(\d{2}):(\d{2}))",
    re.ASCII,
)
_AMOUNT = re.compile(r"[0-9]{1,16}(\.[0-9]{1,2})?")
_CURRENCY = re.compile(r"[A-Z]{3}")
_BAD_PAYLOAD = frozenset({"InvalidPayload", "ContractViolation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line that ingest takes, unless its id was taken before."""

    event_id: str
    tenant_id: str
    aggregate_id: str
    event_type: str
    schema_version: int
    occurred_at: dt.datetime
    payload: dict[str, Any]
    fingerprint: str
    trace_id: str | None
    span_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A record that a stage refuses, for one of some reasons."""

    reasons: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What normalize makes of a payload."""

    amount: Decimal | None
    currency: str | None
    customer_id: str | None


class _RefusedError(Exception):
    def __init__(self, *reasons: str) -> None:
        self.reasons = frozenset(reasons)


def judge_line(line: bytes, day: dt.date) -> Event | Refusal | None:
    """What a line is, without its line feed, one carriage return before it, and the file's byte order mark.

    None for a line of white space.
    """
    if not line.strip():
        return None
    if len(line) > MAX_RECORD_BYTES:
        return Refusal(reasons=frozenset({"RecordTooLarge"}))
    try:
        return _event(parse(line), day)
    except _RefusedError as refused:
        return Refusal(reasons=refused.reasons)


def kept_record(line: bytes) -> tuple[str, str]:
    """How a dead letter keeps a line: `record` and `record_encoding`."""
    kept = line[:KEPT_BYTES] if len(line) > MAX_RECORD_BYTES else line
    try:
        return kept.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(kept).decode(), "base64"


def parse(line: bytes) -> Any:
    """A JSON text with exact numbers."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise _RefusedError("InvalidUtf8") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_number,
            parse_int=_number,
            parse_constant=_no_number,
        )
    except (json.JSONDecodeError, RecursionError):
        raise _RefusedError("MalformedJson") from None
    if _depth(value) > MAX_DEPTH or not _is_text(canonical(value)):
        raise _RefusedError("MalformedJson")
    return value


def canonical(value: Any) -> str:
    """One text for one meaning."""
    if isinstance(value, dict):
        parts = (f"{_string(key)}:{canonical(value[key])}" for key in sorted(value))
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, str):
        return _string(value)
    return {True: "true", False: "false", None: "null"}[value]


def plain(number: Decimal) -> str:
    """A number without trailing zeros, exponent and negative zero."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise _RefusedError("DuplicateKey")
    return dict(pairs)


def _number(text: str) -> Decimal:
    if "e" in text or "E" in text or sum(char.isdigit() for char in text) > MAX_DIGITS:
        raise _RefusedError("UnsafeNumber")
    return Decimal(text)


def _no_number(_: str) -> None:
    raise _RefusedError("MalformedJson")


def _depth(value: Any) -> int:
    """How many objects and lists are within each other at the deepest place."""
    deepest, level = 0, [value]
    while level := [each for each in level if isinstance(each, (dict, list))]:
        deepest += 1
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
    return deepest


def _event(value: Any, day: dt.date) -> Event:
    if not isinstance(value, dict):
        raise _RefusedError("NotAnObject")
    payload = _given(value, "payload")
    if not isinstance(payload, dict):
        raise _RefusedError("WrongType")
    tenant = _id(value, "tenant_id")
    if "/" in tenant:
        raise _RefusedError("WrongType")
    sent = {key: item for key, item in value.items() if key not in ("trace_id", "span_id")}
    return Event(
        event_id=_id(value, "event_id"),
        tenant_id=tenant,
        aggregate_id=_id(value, "aggregate_id"),
        event_type=_id(value, "event_type"),
        schema_version=_version(_given(value, "schema_version")),
        occurred_at=_moment(_given(value, "timestamp"), day),
        payload=payload,
        fingerprint=hashlib.sha256(canonical(sent).encode()).hexdigest(),
        trace_id=_optional(value, "trace_id"),
        span_id=_optional(value, "span_id"),
    )


def _given(value: dict[str, Any], name: str) -> Any:
    if (item := value.get(name)) is None:
        raise _RefusedError("MissingField")
    return item


def _id(value: dict[str, Any], name: str) -> str:
    item = _given(value, name)
    if item == "":
        raise _RefusedError("MissingField", "WrongType")
    if not isinstance(item, str) or len(item) > MAX_ID:
        raise _RefusedError("WrongType")
    return item


def _optional(value: dict[str, Any], name: str) -> str | None:
    item = value.get(name)
    if item is not None and not isinstance(item, str):
        raise _RefusedError("WrongType")
    return item


def _version(item: Any) -> int:
    if not _is_whole(item) or not 1 <= item < 2**31:
        raise _RefusedError("WrongType")
    return int(item)


def _is_whole(item: Any) -> bool:
    """Whether it is a whole number, which may be written as `1.0`."""
    return isinstance(item, Decimal) and item == item.to_integral_value()


def _moment(item: Any, day: dt.date) -> dt.datetime:
    if isinstance(item, str):
        micros = _micros(item)
    elif _is_whole(item):
        micros = int(item) * 1_000
    else:
        raise _RefusedError("WrongType")
    latest = dt.datetime.combine(day, dt.time(), dt.UTC) + dt.timedelta(days=1) + SKEW
    since = dt.timedelta(microseconds=1)
    if not (EARLIEST - EPOCH) // since <= micros < (latest - EPOCH) // since:
        raise _RefusedError("TimestampOutOfRange")
    return EPOCH + dt.timedelta(microseconds=micros)


def _micros(text: str) -> int:
    """Microseconds since 1970 of a time by RFC 3339."""
    if not (found := _TIME.fullmatch(text)):
        raise _RefusedError("InvalidTimestamp")
    year, month, day, hour, minute, second = (int(found[number]) for number in range(1, 7))
    offset = dt.timedelta()
    if found[9]:
        hours, minutes = int(found[10]), int(found[11])
        if hours > 23 or minutes > 59:
            raise _RefusedError("InvalidTimestamp")
        offset = dt.timedelta(hours=hours, minutes=minutes) * (1 if found[9] == "+" else -1)
    try:
        local = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC) - EPOCH
    except ValueError:
        raise _RefusedError("InvalidTimestamp") from None
    fraction = int((found[7] or "0")[:6].ljust(6, "0"))
    return (local - offset) // dt.timedelta(microseconds=1) + fraction


def judge_payload(event_type: str, version: int, payload: dict[str, Any]) -> Order | Refusal:
    """What normalize makes of an event."""
    if event_type not in STATUS:
        return Refusal(reasons=frozenset({"UnknownEventType"}))
    if version > NEWEST_VERSION:
        return Refusal(reasons=frozenset({"UnsupportedSchemaVersion"}))
    if event_type not in ("OrderCreated", "PaymentProcessed"):
        return Order(amount=None, currency=None, customer_id=None)
    try:
        customer = _customer(payload) if event_type == "OrderCreated" else None
        return Order(amount=_amount(payload), currency=_currency(payload), customer_id=customer)
    except _RefusedError as refused:
        return Refusal(reasons=refused.reasons)


def _amount(payload: dict[str, Any]) -> Decimal:
    item = payload.get("amount")
    text = plain(item) if isinstance(item, Decimal) else item
    if not isinstance(text, str) or not _AMOUNT.fullmatch(text):
        raise _RefusedError(*_BAD_PAYLOAD)
    return Decimal(text).quantize(Decimal("0.01"))


def _currency(payload: dict[str, Any]) -> str | None:
    item = payload.get("currency")
    if item is not None and not (isinstance(item, str) and _CURRENCY.fullmatch(item)):
        raise _RefusedError(*_BAD_PAYLOAD)
    return item


def _customer(payload: dict[str, Any]) -> str:
    item = payload.get("customer_id")
    if not isinstance(item, str) or not 1 <= len(item) <= MAX_ID:
        raise _RefusedError(*_BAD_PAYLOAD)
    return item
