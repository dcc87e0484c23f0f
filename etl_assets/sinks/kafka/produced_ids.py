"""Ids of records that are sent: the same ones, whenever the same input is sent."""

from __future__ import annotations

import hashlib


def event_id_of(input_id: str, number: int) -> str:
    """Return the id of the n-th record of an input, counted from 0: 32 hexadecimal digits."""
    return hashlib.sha256(f"{input_id}\n{number}".encode()).hexdigest()[:32]


def traceparent_of(input_id: str, event_id: str) -> str:
    """Return a W3C trace context: one trace for an input, one span for a record of it."""
    trace = hashlib.sha256(f"trace\n{input_id}".encode()).hexdigest()[:32]
    span = hashlib.sha256(f"span\n{event_id}".encode()).hexdigest()[:16]
    return f"00-{trace}-{span}-01"
