"""The event on the wire: one JSON object per line, as a producer sends it.

Belongs here: the shape and text of a line, and the forms of time and id that producers use. Does not belong
here: the required content of a payload (`orders/event_contracts.py`), broken lines (`faults.py`) and files
(`writer.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000

_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WireEvent:
    """One event as it is sent.

    Args:
        event_id: Unique forever; the same id again is the same event again.
        tenant_id: The tenant of the event.
        aggregate_id: The order it belongs to.
        event_type: One of `EventType`, or a name the platform does not know.
        payload: The content; amounts are decimal strings or numbers with at most two decimals.
        timestamp: When it happened: epoch milliseconds or RFC 3339 text.
        schema_version: The version of the payload's contract.
        trace_id: The producer's trace, not part of the event's identity; left out of the line if None.
        span_id: The producer's span, not part of the event's identity; left out of the line if None.
    """

    event_id: str
    tenant_id: str
    aggregate_id: str
    event_type: str
    payload: Mapping[str, object]
    timestamp: int | str
    schema_version: int = 1
    trace_id: str | None = None
    span_id: str | None = None

    def as_record(self) -> dict[str, Any]:
        """Return the JSON object of the event, with fields in the order of the wire's documentation."""
        record: dict[str, Any] = {
            "event_id": self.event_id,
            "tenant_id": self.tenant_id,
            "aggregate_id": self.aggregate_id,
            "event_type": self.event_type,
            "payload": self.payload,
            "timestamp": self.timestamp,
            "schema_version": self.schema_version,
        }
        if self.trace_id is not None:
            record["trace_id"] = self.trace_id
        if self.span_id is not None:
            record["span_id"] = self.span_id
        return record

    def to_line(self) -> str:
        """Return compact JSON without a line end.

        Raises:
            ValueError: A number in the payload is NaN or infinite; JSON has no such numbers.
        """
        return _COMPACT.encode(self.as_record())

    @classmethod
    def from_line(cls, line: str | bytes) -> WireEvent:
        """Parse an event that `to_line` wrote; fields that the wire does not have are dropped."""
        record = json.loads(line)
        return cls(**{field.name: record[field.name] for field in fields(cls) if field.name in record})


def time_ordered_id(epoch_ms: int, random_bits: int) -> str:
    """Return a UUID of version 7 (RFC 9562): 48 bits of time, then 72 random bits.

    Args:
        epoch_ms: When the event happened.
        random_bits: 72 bits from the caller's generator, so that ids follow its seed.
    """
    text = f"{epoch_ms:012x}{random_bits:018x}"
    return f"{text[:8]}-{text[8:12]}-7{text[12:15]}-8{text[15:18]}-{text[18:]}"


def rfc3339(moment: datetime) -> str:
    """Format a moment with its offset, to the second, or the millisecond if it has a fraction; UTC is `Z`."""
    text = moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def moment_of(epoch_ms: int) -> datetime:
    """Return the UTC time of an epoch in milliseconds, without the rounding of a float."""
    return EPOCH + timedelta(milliseconds=epoch_ms)


def epoch_ms_of(moment: datetime) -> int:
    """Return the whole milliseconds since the epoch of a time with a zone."""
    return (moment - EPOCH) // timedelta(milliseconds=1)
